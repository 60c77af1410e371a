"""What tools are shown of transactions. As in Kafka, a group's offsets show as the topic that they are kept in."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.decision import Instant
from tidelog.broker.transactions.state import NEVER, Transaction, TransactionsState
from tidelog.broker.transactions.states import State
from tidelog.errors import UsageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from tidelog.wire.messages.describe_transactions import TransactionState as Described
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.wire.messages.list_transactions import TransactionState as Listed

GROUPS_TOPIC = "__tidelog.groups"
NAMES = {state.value: state for state in State}


def list_transactions(
    state: TransactionsState, request: ListTransactionsRequest, now: Instant
) -> ListTransactionsResponse:
    try:
        matches = _matching(request.transactional_id_pattern)
    except UsageError:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    reply = ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in NAMES]
    )
    wanted = {NAMES[name] for name in request.state_filters if name in NAMES}
    producers = frozenset(request.producer_id_filters)
    for one in state.transactions.values():
        if (
            (one.state in wanted or not request.state_filters)
            and (one.producer_id in producers or not producers)
            and (request.duration_filter < 0 or _open_for(one, now) > request.duration_filter)
            and matches(one.transactional_id)
        ):
            reply.transaction_states.append(
                Listed(
                    transactional_id=one.transactional_id,
                    producer_id=one.producer_id,
                    transaction_state=one.state.value,
                )
            )
    return reply


def _matching(pattern: str | None) -> Callable[[str], bool]:
    if not pattern:
        return lambda _: True
    from tidelog.broker.groups.patterns import compile_pattern

    return compile_pattern(pattern).matches


def _open_for(one: Transaction, now: Instant) -> int:
    return now.wall_ms - one.started_ms if one.started_ms != NEVER else -1


def describe_transactions(
    state: TransactionsState, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(state, transactional_id) for transactional_id in request.transactional_ids]
    )


def _describe(state: TransactionsState, transactional_id: str) -> Described:
    one = state.transactions.get(transactional_id)
    if one is None:
        unknown = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        return Described(transactional_id=transactional_id, error_code=unknown)
    topics: dict[str, list[int]] = {GROUPS_TOPIC: [0]} if one.groups else {}
    for topic, index in sorted(one.partitions):
        topics.setdefault(topic, []).append(index)
    return Described(
        transactional_id=transactional_id,
        transaction_state=one.state.value,
        transaction_timeout_ms=one.timeout_ms,
        transaction_start_time_ms=one.started_ms,
        producer_id=one.producer_id,
        producer_epoch=one.epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
