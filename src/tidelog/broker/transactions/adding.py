"""What joins a transaction: partitions and groups; and whether a batch or an offset may be written under it.

Nothing is written under a transaction to a place that its record does not name, so that no marker is ever missing
(KIP-890). A place is named by AddPartitionsToTxn and AddOffsetsToTxn, or, from transaction version 2 on, by the first
Produce or TxnOffsetCommit itself; either way the record is synced before anything is written.

A batch may also come alone: without the transactional bit, in a request that names a transactional id. It counts by
itself. Kafka's clients send nothing of the kind, and Apache Kafka takes it as any idempotent batch. Here it is refused
unless the id's present holder sent it, so that an owner (`control/owner.py`) is fenced by it as by a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.broker.decision import Decision, Instant, Ticket
from tidelog.broker.transactions.outcome import DONE, Later, refuse
from tidelog.broker.transactions.settings import MAX_GROUPS_IN_TRANSACTION
from tidelog.broker.transactions.state import PartitionName, Transaction, TransactionsState, record
from tidelog.broker.transactions.states import State, TransactionEvent
from tidelog.wire.error_code import ErrorCode


class Writer(NamedTuple):
    """Who says that it writes."""

    transactional_id: str
    producer_id: int
    epoch: int


def decide_add(
    state: TransactionsState,
    writer: Writer,
    partitions: Iterable[PartitionName],
    groups: Iterable[str],
    ticket: Ticket,
    now: Instant,
) -> Decision | Later:
    found = find(state, writer)
    if isinstance(found, int):
        return refuse(ticket, found)
    if found.is_prepared:
        return Later.SETTLED
    ongoing = found.state is State.ONGOING
    new_partitions = frozenset(partitions) | (found.partitions if ongoing else frozenset())
    new_groups = frozenset(groups) | (found.groups if ongoing else frozenset())
    if len(new_groups) > MAX_GROUPS_IN_TRANSACTION:
        return refuse(ticket, ErrorCode.POLICY_VIOLATION)
    if ongoing and new_partitions == found.partitions and new_groups == found.groups:
        return Decision([], [(ticket, DONE)])
    started_ms = found.started_ms if ongoing else now.wall_ms
    grown = found.move(
        TransactionEvent.ADDED, now.wall_ms, partitions=new_partitions, groups=new_groups, started_ms=started_ms
    )
    return Decision([record(grown)], [(ticket, DONE)])


def find(state: TransactionsState, writer: Writer) -> Transaction | int:
    """The writer's transaction, or the error code that says why it has none."""
    if not writer.transactional_id:
        return ErrorCode.INVALID_REQUEST
    found = state.transactions.get(writer.transactional_id)
    if found is not None and found.is_prepared and (found.next_producer_id, 0) == writer[1:]:
        return found  # it has been given its next producer id, which counts when the last transaction is marked
    if found is None or found.producer_id != writer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return found if found.epoch == writer.epoch else ErrorCode.PRODUCER_FENCED


def may_write(state: TransactionsState, writer: Writer, place: PartitionName) -> int:
    """NONE if a batch may be written there now; TRANSACTION_ABORTABLE where its partition was not added."""
    found = find(state, writer)
    if isinstance(found, int):
        return found
    return _named(found, place in found.partitions)


def may_write_alone(state: TransactionsState, writer: Writer) -> int:
    """NONE if a batch that is in no transaction may be written now under the name of a transactional id: its present
    holder may, while none of its transactions is under way.
    """
    found = find(state, writer)
    if isinstance(found, int):
        return found
    if found.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.INVALID_TXN_STATE if found.state is State.ONGOING else ErrorCode.NONE


def may_commit_offsets(state: TransactionsState, writer: Writer, group_id: str) -> int:
    found = find(state, writer)
    if isinstance(found, int):
        return found
    return _named(found, group_id in found.groups)


def _named(found: Transaction, named: bool) -> int:
    return ErrorCode.NONE if found.state is State.ONGOING and named else ErrorCode.TRANSACTION_ABORTABLE
