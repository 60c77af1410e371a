"""Produce: record batches from a client to the logs of their partitions.

    v3    record batches (v2 format) and transactional ids
    v5    log start offset in the reply          v8    error message and the records at fault
    v9    flexible                               v10   current leader (tagged), never set: there is one node
    v11   TRANSACTION_ABORTABLE                  v12   a transaction's partitions are named by it
    v13   topics by id

An ack means on disk: the reply leaves when every batch of the request is visible, which for
`tidelog.durability=disk` means synced, and when all that was decided about topics before it is synced too: a batch
cannot outlive a power cut that its topic does not. acks=1 means the same as acks=all. acks=0 gets no reply and no
promise; an error then ends the connection, as the client has no other way to hear of it.

What is checked here and what is not: one batch a partition, whole, of format 2, CRC right, count as stated
(`record.codec.check`); sequence and epoch (`log.producers`); size; of a transactional batch, that its transaction is
open and names the partition (`transactional_produce`). Records are not parsed: a batch is stored as it came.

A partition that is not loaded yet, as after a start, is loaded in a worker thread; batches for it wait in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.broker.loading import find_cold, sentence, when_ready
from tidelog.broker.partition import Partition
from tidelog.errors import (
    CorruptBatch,
    FencedProducer,
    MalformedBatch,
    OutOfOrderSequence,
    OutsideTransaction,
    StorageError,
)
from tidelog.log.log import Log
from tidelog.record.codec import check
from tidelog.record.columns import decode
from tidelog.record.header import BatchHeader
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

TOPIC_ID_SINCE = 13
NO_TIMESTAMP = -1
RECORD_ERRORS_MAX = 1000  # named one by one; a client takes the others of the batch to be refused with them
KEYS_LIMIT = 64 << 20  # bytes that a batch may become when its keys are looked at, which is done on the loop
# A small batch is copied, so that it does not pin the receive buffer until it is written. Not with acks=0: how many of
# those wait for a slow disk is bounded by nothing but the memory for requests, which pinned buffers count against.
COPY_BELOW_BYTES = 8192


def handle(broker: Broker, request: ProduceRequest, call: Call) -> None:
    if request.transactional_id is None:
        _append_all(broker, request, call)
        return
    from tidelog.broker.transactional_produce import when_named

    when_named(broker, request, call, lambda error_code: _append_all(broker, request, call, error_code))


def _append_all(broker: Broker, request: ProduceRequest, call: Call, unnamed: int = ErrorCode.NONE) -> None:
    """`unnamed`: why partitions could not be added to the transaction of the batches for them."""
    waiting = _Waiting(request.acks, call, request.transactional_id, unnamed)
    undecided = broker.undecided()
    if undecided is not None:
        waiting.topics(undecided)
    responses = []
    for topic in request.topic_data:
        name = broker.topics.name_of(topic.name, topic.topic_id)
        parts = [_append(broker, name, part, request, call, waiting) for part in topic.partition_data]
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts))
    waiting.finish(ProduceResponse(responses=responses))


class _Waiting:
    """Counts the batches of one request that are not visible yet; the last one lets the reply go."""

    __slots__ = ("_call", "_cold", "_left", "_response", "acks", "transactional_id", "unnamed")

    def __init__(self, acks: int, call: Call, transactional_id: str | None, unnamed: int) -> None:
        self.acks = acks
        self.transactional_id = transactional_id
        self.unnamed = unnamed
        self._call = call
        self._left = 1
        self._cold = 0
        self._response: ProduceResponse | None = None

    def batch(self, partition: Partition, offset: int, reply: PartitionProduceResponse) -> None:
        self._left += 1

        def visible(error: StorageError | None) -> None:
            if error is not None:
                _fail(reply, ErrorCode.KAFKA_STORAGE_ERROR, sentence(error))
            self._one_less()

        partition.log.when_visible(offset, visible)

    def topics(self, undecided: Log) -> None:
        """What this request finds may be gone again, if the records that say so cannot be written."""
        self._left += 1

        def settled(error: StorageError | None) -> None:
            if error is not None and self._response is not None:
                for topic in self._response.responses:
                    for reply in topic.partition_responses:
                        _fail(reply, reply.error_code or ErrorCode.KAFKA_STORAGE_ERROR, sentence(error))
            self._one_less()

        undecided.when_visible(undecided.end_offset, settled)

    def loaded(self, broker: Broker, partition: Partition, append: Callable[[], None]) -> None:
        """Appends when the partition is loaded; until then the batch stays in the request's buffer."""
        self._left += 1
        self._cold += 1
        self._call.buffer.pin()

        def ready() -> None:
            try:
                append()
            finally:
                self._call.buffer.unpin()
            self._cold -= 1
            if self.acks:
                self._one_less()
            elif not self._cold:
                self._end_silently()

        when_ready(broker, self._call, partition, ready)

    def finish(self, response: ProduceResponse) -> None:
        self._response = response
        if self.acks:
            self._one_less()
        elif not self._cold:
            self._end_silently()

    def _end_silently(self) -> None:
        responses = self._response.responses if self._response is not None else ()
        if any(part.error_code for topic in responses for part in topic.partition_responses):
            self._call.connection.close("produce with acks=0 failed")
        self._call.reply(None)

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left and self.acks:
            self._call.reply(self._response)


def _append(
    broker: Broker, name: str | None, part: PartitionProduceData, request: ProduceRequest, call: Call, waiting: _Waiting
) -> PartitionProduceResponse:
    reply = PartitionProduceResponse(index=part.index, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1)
    partition = find_cold(broker, name, part.index)
    if not isinstance(partition, Partition):
        by_id = call.version >= TOPIC_ID_SINCE and name is None
        return _refuse(broker, reply, ErrorCode.UNKNOWN_TOPIC_ID if by_id else partition, None)
    refused = broker.refuses_produce(partition.topic, request.acks)
    if refused is not None:
        return _refuse(broker, reply, *refused)
    if partition.loading is None and partition.log.loaded:
        _try_append(broker, partition, part, call, waiting, reply)
    else:
        waiting.loaded(broker, partition, lambda: _try_append(broker, partition, part, call, waiting, reply))
    return reply


def _try_append(
    broker: Broker,
    partition: Partition,
    part: PartitionProduceData,
    call: Call,
    waiting: _Waiting,
    reply: PartitionProduceResponse,
) -> None:
    if partition.dropped:  # while it was loaded
        _refuse(broker, reply, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        return
    try:
        _append_batch(broker, partition, part, call, waiting, reply)
    except _Refused as error:
        _refuse(broker, reply, error.code, str(error))
        reply.record_errors = error.records
    except CorruptBatch as error:
        _refuse(broker, reply, ErrorCode.CORRUPT_MESSAGE, str(error))
    except MalformedBatch as error:
        _refuse(broker, reply, ErrorCode.INVALID_RECORD, str(error))
    except OutOfOrderSequence as error:
        _refuse(broker, reply, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(error))
    except FencedProducer as error:
        _refuse(broker, reply, ErrorCode.INVALID_PRODUCER_EPOCH, str(error))
    except OutsideTransaction as error:
        _refuse(broker, reply, ErrorCode.INVALID_TXN_STATE, str(error))
    except StorageError as error:
        _refuse(broker, reply, ErrorCode.KAFKA_STORAGE_ERROR, sentence(error))


def _append_batch(
    broker: Broker,
    partition: Partition,
    part: PartitionProduceData,
    call: Call,
    waiting: _Waiting,
    reply: PartitionProduceResponse,
) -> None:
    records = part.records
    if not isinstance(records, memoryview) or not records:
        raise MalformedBatch("produce without a record batch")
    now_ms = broker.now().wall_ms
    header = _check(partition, records, now_ms)
    _check_writer(broker, partition, header, call, waiting)
    release = None
    if header.size <= COPY_BELOW_BYTES and waiting.acks:
        records = memoryview(bytearray(records))
    else:
        call.buffer.pin()
        release = call.buffer.unpin
    queued = False
    try:
        appended = partition.log.append(records, header, now_ms, release)
        queued = not appended.duplicate
    finally:
        if release is not None and not queued:
            release()
    reply.base_offset = appended.base_offset
    reply.log_append_time_ms = appended.append_time
    reply.log_start_offset = partition.log.start_offset
    waiting.batch(partition, appended.last_offset + 1, reply)


def _check(partition: Partition, records: memoryview, now_ms: int) -> BatchHeader:
    """What a partition asks of a batch before it takes it."""
    config = partition.config
    size = len(records)
    if size > config.max_message_bytes:
        raise _Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {size} bytes is above max.message.bytes={config.max_message_bytes} of {partition.topic}",
        )
    header = check(records)
    if header.size != size:
        raise MalformedBatch(f"{size} bytes hold more than one batch; a produce request carries one a partition")
    if header.is_control:
        raise MalformedBatch("a client may not write control batches")
    if header.is_transactional and header.producer_id < 0:
        raise MalformedBatch("a transactional batch without a producer id")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise MalformedBatch(
            f"producer {header.producer_id} sent epoch {header.producer_epoch}, sequence {header.base_sequence};"
            " neither can be negative"
        )
    if not config.log.append_time and header.max_timestamp != NO_TIMESTAMP:
        ahead = header.max_timestamp - now_ms
        if ahead > config.timestamp_after_max_ms or -ahead > config.timestamp_before_max_ms:
            raise _Refused(
                ErrorCode.INVALID_TIMESTAMP,
                f"a timestamp of {header.max_timestamp} is {ahead} ms from now; {partition.topic} takes"
                f" -{config.timestamp_before_max_ms} to {config.timestamp_after_max_ms}",
            )
    if config.compact:
        _check_keys(partition, records)
    return header


def _check_writer(broker: Broker, partition: Partition, header: BatchHeader, call: Call, waiting: _Waiting) -> None:
    """Whether who sends this batch may write it, and now."""
    transactional_id = waiting.transactional_id
    writers = partition.config.writers
    if writers and not (header.is_transactional and (transactional_id or "").startswith(writers)):
        raise _Refused(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{partition.topic} has tidelog.writers={writers} and takes records only in transactions of ids that begin"
            f" so; this one came from {transactional_id!r}",
        )
    if header.is_transactional:
        from tidelog.broker.transactional_produce import refusal

        place = partition.topic, partition.index
        refused = refusal(broker, transactional_id, header, place, call.version, waiting.unnamed)
        if refused is not None:
            raise _Refused(*refused)


def _check_keys(partition: Partition, records: memoryview) -> None:
    """A record without a key could never be compacted away. This is the one place where an append looks at records."""
    columns = decode(records, crc=False, limit=KEYS_LIMIT)
    validity = columns.keys.validity
    if validity is None:
        return
    bits = memoryview(validity).cast("B")
    keyless = [index for index in range(columns.count) if not bits[index >> 3] >> (index & 7) & 1]
    named = f"{partition.topic}[{partition.index}] is compacted and takes no record without a key"
    raise _Refused(
        ErrorCode.INVALID_RECORD,
        f"{named}; {len(keyless)} of the batch's {columns.count} have none, the first is number {keyless[0]}",
        [
            BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=named)
            for i in keyless[:RECORD_ERRORS_MAX]
        ],
    )


class _Refused(Exception):
    """`records` are those at fault, by their place in the batch; none when it is the batch as a whole."""

    def __init__(self, code: int, message: str, records: list[BatchIndexAndErrorMessage] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.records = records or []


def _refuse(
    broker: Broker, reply: PartitionProduceResponse, code: int, message: str | None
) -> PartitionProduceResponse:
    broker.counters.refused_batches[code] += 1
    return _fail(reply, code, message)


def _fail(reply: PartitionProduceResponse, code: int, message: str | None) -> PartitionProduceResponse:
    reply.error_code = code
    reply.error_message = message
    reply.base_offset = -1
    return reply
