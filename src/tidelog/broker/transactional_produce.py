"""Produce in a transaction: nothing is appended before the transaction's record names the partition, on disk.

Up to v11 the client has named it with AddPartitionsToTxn and waited for the reply. From v12 on (transaction version 2)
the request itself names it: it waits here until that is synced, in the order in which requests came. A batch whose
partition is not in an open transaction at its very epoch is refused, in every version (KIP-890): a batch that was late
cannot join the next transaction, nor stay open for ever behind the last marker.

A batch in no transaction, in a request that names a transactional id, waits until the last transaction of the id is
marked, and is refused unless it comes from the present holder (`transactions/adding.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.broker.transactions.adding import Writer, may_write, may_write_alone
from tidelog.broker.transactions.outcome import TransactionOutcome
from tidelog.broker.transactions.state import PartitionName
from tidelog.errors import MalformedBatch
from tidelog.record.codec import peek
from tidelog.record.header import BatchHeader
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

ABORTABLE_SINCE = 11
JOINS_SINCE = 12

SENTENCES = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "epoch {epoch} of producer {producer} is fenced: {id!r} has a newer one",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "producer {producer} is not the one of transactional id {id!r}",
    ErrorCode.INVALID_TXN_STATE: "no open transaction of {id!r} names this partition",
    ErrorCode.TRANSACTION_ABORTABLE: "no open transaction of {id!r} names this partition",
    ErrorCode.NOT_ENOUGH_REPLICAS: "what the transaction of {id!r} names could not be written; the broker's disk may be"
    " full, its log says why",
}

AGAIN = "the transaction cannot take this batch now; send it again"


def when_named(broker: Broker, request: ProduceRequest, call: Call, then: Callable[[int], None]) -> None:
    """Calls `then`, with the error if the partitions could not be named. The request's buffer stays until then."""
    ticket = _Pinned(call, then)
    joins = _joins(broker, request) if call.version >= JOINS_SINCE else None
    if joins is not None:
        broker.transactions.add(*joins, [], ticket)
    elif _has_batch_alone(request):
        broker.transactions.when_settled(request.transactional_id or "", ticket)
    else:
        broker.transactions.when_synced(request.transactional_id or "", ticket)


class _Pinned:
    """The ticket of a request whose batches lie in its buffer."""

    __slots__ = ("_call", "_then")

    def __init__(self, call: Call, then: Callable[[int], None]) -> None:
        call.buffer.pin()
        self._call = call
        self._then = then

    def reply(self, outcome: TransactionOutcome) -> None:
        try:
            self._then(outcome.error_code)
        except Exception as error:
            self._call.fault(error)
        finally:
            self._call.buffer.unpin()

    def drop(self) -> None:
        self.reply(TransactionOutcome(ErrorCode.COORDINATOR_NOT_AVAILABLE))


def _joins(broker: Broker, request: ProduceRequest) -> tuple[Writer, list[PartitionName]] | None:
    """Who writes where its transaction does not say so yet; None if nobody does. What is malformed is refused further
    on.
    """
    writer, places = None, []
    for topic in request.topic_data:
        name = broker.topics.name_of(topic.name, topic.topic_id)
        for part in topic.partition_data:
            header = _peek(part.records)
            if header is None or not header.is_transactional or broker.find_partition(name, part.index) is None:
                continue
            who = Writer(request.transactional_id or "", header.producer_id, header.producer_epoch)
            if may_write(broker.transactions.state, who, (name or "", part.index)) != ErrorCode.NONE:
                writer = who
                places.append((name or "", part.index))
    return None if writer is None else (writer, places)


def _has_batch_alone(request: ProduceRequest) -> bool:
    headers = (_peek(part.records) for topic in request.topic_data for part in topic.partition_data)
    return any(header is not None and not header.is_transactional for header in headers)


def _peek(records: object) -> BatchHeader | None:
    try:
        return peek(records) if isinstance(records, memoryview) else None
    except MalformedBatch:
        return None


def refusal(
    broker: Broker,
    transactional_id: str | None,
    header: BatchHeader,
    place: PartitionName,
    version: int,
    error_code: int,
) -> tuple[int, str] | None:
    """Why a transactional batch may not be appended, as an error code and a sentence; `error_code` of `when_named`."""
    if transactional_id is None:
        sentence = "a transactional batch came in a request without a transactional id"
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, sentence
    writer = Writer(transactional_id, header.producer_id, header.producer_epoch)
    code = _known(error_code or may_write(broker.transactions.state, writer, place), version)
    if code == ErrorCode.NONE:
        return None
    sentence = SENTENCES.get(code, AGAIN)
    return code, sentence.format(id=transactional_id, producer=writer.producer_id, epoch=writer.epoch)


def refusal_alone(
    broker: Broker, transactional_id: str, header: BatchHeader, version: int, error_code: int
) -> tuple[int, str] | None:
    """The same of a batch in no transaction, whose request names a transactional id."""
    writer = Writer(transactional_id, header.producer_id, header.producer_epoch)
    code = _known(error_code or may_write_alone(broker.transactions.state, writer), version)
    if code == ErrorCode.NONE:
        return None
    open_now = "{id!r} has a transaction open, and this batch is not in it"
    sentence = open_now if code == ErrorCode.INVALID_TXN_STATE else SENTENCES.get(code, AGAIN)
    return code, sentence.format(id=transactional_id, producer=writer.producer_id, epoch=writer.epoch)


def _known(error_code: int, version: int) -> int:
    """As producers know it."""
    if error_code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error_code == ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # tried again, without asking for metadata
    return error_code
