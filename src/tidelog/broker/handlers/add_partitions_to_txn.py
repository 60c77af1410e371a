"""AddPartitionsToTxn: partitions that a transaction is going to write to.

    v0    one transaction                         v2    PRODUCER_FENCED
    v3    flexible                                v4    many transactions, and `verify only`: for Kafka's brokers
    v5    TRANSACTION_ABORTABLE

All partitions or none: when one is unknown, the others are told OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.broker.names import is_own
from tidelog.broker.transaction_coordinator import OutcomeTicket, fenced_code
from tidelog.broker.transactions.adding import Writer, may_write
from tidelog.broker.transactions.outcome import TransactionOutcome
from tidelog.broker.transactions.state import PartitionName
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

MANY_SINCE = 4
PRODUCER_FENCED_SINCE = 2


def handle(broker: Broker, request: AddPartitionsToTxnRequest, call: Call) -> AddPartitionsToTxnResponse | None:
    if call.version < MANY_SINCE:
        asked = [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    else:
        asked = request.transactions
    if not asked:
        return AddPartitionsToTxnResponse()
    answers = _Answers(call, len(asked))
    times = Counter(one.transactional_id for one in asked)
    for number, one in enumerate(asked):
        if times[one.transactional_id] > 1:  # each would write all that the transaction has so far
            answers.put(number, one.transactional_id, _results(one.topics, {}, ErrorCode.INVALID_REQUEST))
        else:
            _add(broker, one, number, answers)
    return None


class _Answers:
    """The reply leaves when every transaction of the request has its result."""

    def __init__(self, call: Call, count: int) -> None:
        self.call = call
        self._left = count
        self._results: list[AddPartitionsToTxnResult | None] = [None] * count

    def put(self, number: int, transactional_id: str, topics: list[AddPartitionsToTxnTopicResult]) -> None:
        self._results[number] = AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)
        self._left -= 1
        if self._left:
            return
        results = [one for one in self._results if one is not None]
        if self.call.version < MANY_SINCE:
            self.call.reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results))
        else:
            self.call.reply(AddPartitionsToTxnResponse(results_by_transaction=results))


def _add(broker: Broker, asked: AddPartitionsToTxnTransaction, number: int, answers: _Answers) -> None:
    writer = Writer(asked.transactional_id, asked.producer_id, asked.producer_epoch)
    places = [(topic.name, index) for topic in asked.topics for index in topic.partitions]
    unknown = {place: code for place in places if (code := _place_error(broker, place))}

    def put(codes: dict[PartitionName, int], others: int) -> None:
        answers.put(number, asked.transactional_id, _results(asked.topics, codes, others))

    def added(outcome: TransactionOutcome) -> None:
        put({}, fenced_code(outcome.error_code, answers.call.version, PRODUCER_FENCED_SINCE))

    if unknown:
        put(unknown, ErrorCode.OPERATION_NOT_ATTEMPTED)
    elif asked.verify_only:
        state = broker.transactions.state
        put({place: may_write(state, writer, place) for place in places}, ErrorCode.NONE)
    else:
        broker.transactions.add(writer, places, [], OutcomeTicket(answers.call, added))


def _place_error(broker: Broker, place: PartitionName) -> int:
    name, index = place
    if is_own(name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = broker.topics.by_name.get(name)
    known = topic is not None and 0 <= index < topic.partitions
    return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _results(
    topics: list[AddPartitionsToTxnTopic], codes: dict[PartitionName, int], others: int
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes.get((topic.name, index), others)
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
