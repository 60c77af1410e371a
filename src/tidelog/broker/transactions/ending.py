"""EndTxn, and what follows: Prepare*, then markers everywhere, then Complete*.

Transaction version 1 (EndTxn up to v4): the epoch stays. The same end asked for again is answered as the first time.

Transaction version 2 (v5, KIP-890): the epoch moves with every end, so that nothing sent before it counts after it. A
request whose reply was lost then comes with the epoch before (`last_epoch`):

                      abort again   abort, present epoch   commit again   commit, present epoch
    Empty             fenced        the epoch moves        fenced         INVALID_TXN_STATE
    Prepare*          when settled, as Complete*; the holder of the present epoch may be quick
    CompleteAbort     as before     the epoch moves        INVALID_TXN_STATE   INVALID_TXN_STATE
    CompleteCommit    INVALID_TXN_STATE   the epoch moves  as before      INVALID_TXN_STATE
"""

from __future__ import annotations

from tidelog.broker.decision import Decision, Instant, NewRecord, Ticket
from tidelog.broker.transactions.adding import Writer
from tidelog.broker.transactions.outcome import Later, TransactionOutcome, refuse
from tidelog.broker.transactions.state import (
    NO_EPOCH,
    NO_PRODUCER,
    Transaction,
    TransactionsState,
    record,
)
from tidelog.broker.transactions.states import State, TransactionEvent
from tidelog.wire.error_code import ErrorCode

ENDED = {
    State.COMPLETE_COMMIT: True,
    State.COMPLETE_ABORT: False,
    State.PREPARE_COMMIT: True,
    State.PREPARE_ABORT: False,
}


def decide_end(
    state: TransactionsState,
    writer: Writer,
    commit: bool,
    ticket: Ticket,
    now: Instant,
    *,
    bump: bool,
    fresh_id: int = NO_PRODUCER,
) -> Decision | Later:
    """`bump`: transaction version 2. `fresh_id`: see `initialising.Init`."""
    if not writer.transactional_id:
        return refuse(ticket, ErrorCode.INVALID_REQUEST)
    found = state.transactions.get(writer.transactional_id)
    if found is None:
        return refuse(ticket, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if bump and found.is_prepared and writer[1:] == _holder(found)[1:]:
        return Later.SETTLED  # it has heard of the last end, and was quick
    again = bump and _is_again(found, writer)
    if found.producer_id != writer.producer_id and not again:
        return refuse(ticket, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if found.epoch != writer.epoch and not again:
        return refuse(ticket, ErrorCode.PRODUCER_FENCED)
    if found.state is State.ONGOING:
        return _end(found, commit, ticket, now, bump=bump, fresh_id=fresh_id)
    if again or not bump:
        return _answer_again(found, commit, ticket)
    if commit:
        return refuse(ticket, ErrorCode.INVALID_TXN_STATE)
    return _abort_nothing(found, ticket, now, fresh_id)


def _is_again(found: Transaction, writer: Writer) -> bool:
    """Whether this is a request of the present holder whose reply it has not seen."""
    if found.state not in ENDED or found.last_epoch == NO_EPOCH or writer.epoch != found.last_epoch:
        return False
    if writer.producer_id == found.producer_id:
        return found.epoch == found.last_epoch + 1
    return writer.producer_id == found.previous_producer_id and found.epoch == 0


def _end(
    found: Transaction, commit: bool, ticket: Ticket, now: Instant, *, bump: bool, fresh_id: int
) -> Decision | Later:
    event = TransactionEvent.COMMITTED if commit else TransactionEvent.ABORTED
    if not bump:
        ended = found.move(event, now.wall_ms)
        return Decision([record(ended)], [(ticket, _holder(ended))])
    if found.is_exhausted and fresh_id == NO_PRODUCER:
        return Later.PRODUCER_ID
    next_id = fresh_id if found.is_exhausted else NO_PRODUCER
    ended = found.move(event, now.wall_ms, epoch=found.epoch + 1, last_epoch=found.epoch, next_producer_id=next_id)
    return Decision([record(ended)], [(ticket, _holder(ended))])


def _answer_again(found: Transaction, commit: bool, ticket: Ticket) -> Decision | Later:
    if ENDED.get(found.state) is not commit:
        return refuse(ticket, ErrorCode.INVALID_TXN_STATE)
    return Later.SETTLED if found.is_prepared else Decision([], [(ticket, _holder(found))])


def _abort_nothing(found: Transaction, ticket: Ticket, now: Instant, fresh_id: int) -> Decision | Later:
    if found.is_exhausted:
        if fresh_id == NO_PRODUCER:
            return Later.PRODUCER_ID
        moved = found.move(
            TransactionEvent.NOTHING_ABORTED,
            now.wall_ms,
            epoch=0,
            last_epoch=found.epoch,
            producer_id=fresh_id,
            previous_producer_id=found.producer_id,
        )
    else:
        moved = found.move(TransactionEvent.NOTHING_ABORTED, now.wall_ms, epoch=found.epoch + 1, last_epoch=found.epoch)
    return Decision([record(moved)], [(ticket, _holder(moved))])


def _holder(transaction: Transaction) -> TransactionOutcome:
    """What the holder is to go on with: the next producer id at once, though it counts only when all is marked."""
    if transaction.next_producer_id != NO_PRODUCER:
        return TransactionOutcome(ErrorCode.NONE, transaction.next_producer_id, 0)
    return TransactionOutcome(ErrorCode.NONE, transaction.producer_id, transaction.epoch)


def decide_complete(found: Transaction, now: Instant) -> list[NewRecord]:
    """The outcome is visible everywhere."""
    complete = found.move(TransactionEvent.MARKED, now.wall_ms, partitions=frozenset(), groups=frozenset())
    if found.next_producer_id != NO_PRODUCER:
        complete = complete._replace(
            producer_id=found.next_producer_id,
            previous_producer_id=found.producer_id,
            next_producer_id=NO_PRODUCER,
            epoch=0,
        )
    return [record(complete)]
