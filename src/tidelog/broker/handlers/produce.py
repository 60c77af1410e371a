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
open and names the partition, and of another whose request names a transactional id, that it is the present holder's
(`transactional_produce`). Records are not parsed: a batch is stored as it came. Only for a compacted topic somebody
looks whether all have a key (`keys`).

A partition that is in the request twice is refused both times, as nobody can tell which batch comes first. (Kafka takes
the last one, and does not say so.) A partition that is not loaded yet, as after a start, is loaded in a worker thread;
batches for it wait in their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.keys import BatchRefused, KeyCheck, compacted
from tidelog.broker.loading import find_cold, sentence, when_ready
from tidelog.broker.overload.refusal import Overloaded
from tidelog.broker.partition import Partition
from tidelog.errors import (
    CorruptBatch,
    MalformedBatch,
    OutOfOrderSequence,
    OutsideTransaction,
    StaleProducerEpoch,
    StorageError,
)
from tidelog.log.log import Log
from tidelog.record.codec import check
from tidelog.record.header import BatchHeader
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call
    from tidelog.broker.overload.policy import OverloadPolicy

TOPIC_ID_SINCE = 13
NO_TIMESTAMP = -1
# A small batch is copied, so that it does not pin the receive buffer until it is written. Not with acks=0: how many of
# those wait for a slow disk is bounded by nothing but the memory for requests, which pinned buffers count against.
COPY_BELOW_BYTES = 8192
PUT_OFF_S = 0.2
CODES_OF_FAULTS = (  # of a batch; the first that fits
    (CorruptBatch, ErrorCode.CORRUPT_MESSAGE),
    (MalformedBatch, ErrorCode.INVALID_RECORD),
    (OutOfOrderSequence, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (StaleProducerEpoch, ErrorCode.INVALID_PRODUCER_EPOCH),
    (OutsideTransaction, ErrorCode.INVALID_TXN_STATE),
)
BATCH_FAULTS = tuple(kind for kind, _ in CODES_OF_FAULTS)


def handle(broker: Broker, request: ProduceRequest, call: Call) -> None:
    if request.transactional_id is None:
        _append_all(broker, request, call)
        return
    from tidelog.broker.transactional_produce import when_named

    when_named(broker, request, call, lambda error_code: _append_all(broker, request, call, error_code))


def _append_all(broker: Broker, request: ProduceRequest, call: Call, unnamed: int = ErrorCode.NONE) -> None:
    """`unnamed`: why partitions could not be added to the transaction of the batches for them."""
    call.timeout_ms = request.timeout_ms
    waiting = _Waiting(broker, request, call, unnamed)
    topics = request.topic_data
    alone = len(topics) == 1 and len(topics[0].partition_data) == 1  # as most are
    twice = () if alone else _named_twice(topics)
    undecided = broker.undecided()
    if undecided is not None:
        waiting.topics(undecided)
    responses = []
    for topic in topics:
        name = broker.topics.name_of(topic.name, topic.topic_id)
        parts = [
            _refuse_twice(broker, name, part)
            if twice and (topic.name, topic.topic_id, part.index) in twice
            else _append(broker, name, part, request, call, waiting)
            for part in topic.partition_data
        ]
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts))
    waiting.finish(ProduceResponse(responses=responses))


def _named_twice(topics: list[TopicProduceData]) -> Collection[tuple[str, bytes, int]]:
    named = [(topic.name, topic.topic_id, part.index) for topic in topics for part in topic.partition_data]
    if len(set(named)) == len(named):
        return ()
    return {place for place, times in Counter(named).items() if times > 1}


class _Waiting:
    """Counts the batches of one request that are not visible yet; the last one lets the reply go.

    `_held` are those that are not appended yet: their partition is being loaded, or their keys are being looked at.
    """

    __slots__ = (
        "_broker",
        "_call",
        "_held",
        "_keys",
        "_left",
        "_request",
        "_response",
        "_rest_ms",
        "_unchecked",
        "acks",
        "transactional_id",
        "unnamed",
    )

    def __init__(self, broker: Broker, request: ProduceRequest, call: Call, unnamed: int) -> None:
        self.acks = request.acks
        self.transactional_id = request.transactional_id
        self.unnamed = unnamed
        self._broker = broker
        self._request: ProduceRequest | None = request  # until all of it was looked at: what waits is to hold little
        self._call = call
        self._left = 1
        self._held = 0
        self._rest_ms = 0
        self._keys: KeyCheck | None = None
        self._unchecked: list[tuple[Partition, memoryview, Callable[[Exception | bool], None]]] | None = None
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

    def rest(self, hold_ms: int) -> None:
        """The connection is not read for so long, as KIP-219 has it: the answer leaves, and says so."""
        if hold_ms > self._rest_ms:
            self._rest_ms = hold_ms
            self._call.connection.mute(hold_ms / 1000)

    def put_off(self, append: Callable[[], None]) -> None:
        """Appends in a while; until then nothing more is read of this connection."""
        connection = self._call.connection
        self._hold()
        connection.mute()

        def again() -> None:
            connection.unmute()
            try:
                self._go_on(append)
            except Exception as fault:
                self._call.fault(fault)

        self._broker.scheduler.call_later(PUT_OFF_S, again)

    def loaded(self, broker: Broker, partition: Partition, append: Callable[[], None]) -> None:
        """Appends when the partition is loaded; until then the batch stays in the request's buffer."""
        self._hold()
        when_ready(broker, self._call, partition, lambda: self._go_on(append))

    @property
    def keys(self) -> KeyCheck:
        if self._keys is None:
            topics = self._request.topic_data if self._request is not None else ()
            parts = [part.records for topic in topics for part in topic.partition_data]
            self._keys = KeyCheck(sum(len(one) for one in parts if isinstance(one, memoryview)))
        return self._keys

    def checked(self, partition: Partition, records: memoryview, append: Callable[[Exception | bool], None]) -> None:
        """Calls `append` when the batch's keys are looked at: with what is wrong with them, or True."""
        self._hold()
        self._unchecked = [*(self._unchecked or ()), (partition, records, append)]
        if self._response is not None:
            self._check_keys()

    def _check_keys(self) -> None:
        batches, self._unchecked = self._unchecked or [], None
        keys, call = self.keys, self._call
        call.connection.mute()

        def look() -> list[Exception | bool]:
            return [_outcome(keys, partition, records) for partition, records, _ in batches]

        def looked(outcomes: object, error: BaseException | None) -> None:
            try:
                if error is not None:
                    raise error
                assert isinstance(outcomes, list)
                for (_, _, append), outcome in zip(batches, outcomes, strict=True):
                    self._go_on(partial(append, outcome))
            except Exception as fault:
                call.fault(fault)
            call.connection.unmute()

        self._broker.beside(look, looked)

    def _hold(self) -> None:
        self._left += 1
        self._held += 1
        self._call.buffer.pin()

    def _go_on(self, append: Callable[[], None]) -> None:
        try:
            append()
        finally:
            self._call.buffer.unpin()
        self._held -= 1
        if self.acks:
            self._one_less()
        elif not self._held:
            self._end_silently()

    def finish(self, response: ProduceResponse) -> None:
        self._response = response
        self._request = None
        if self._unchecked:
            self._check_keys()
        if self.acks:
            self._one_less()
        elif not self._held:
            self._end_silently()

    def _end_silently(self) -> None:
        responses = self._response.responses if self._response is not None else ()
        if any(part.error_code for topic in responses for part in topic.partition_responses):
            self._call.connection.close("produce with acks=0 failed")
        self._call.reply(None)

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left and self.acks:
            if self._rest_ms and self._response is not None:
                self._response.throttle_time_ms = self._rest_ms
            self._call.reply(self._response)


def _outcome(keys: KeyCheck, partition: Partition, records: memoryview) -> Exception | bool:
    try:
        keys.whole(partition, records)
    except (BatchRefused, MalformedBatch) as error:
        return error
    return True


def _refuse_twice(broker: Broker, name: str | None, part: PartitionProduceData) -> PartitionProduceResponse:
    reply = PartitionProduceResponse(index=part.index, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1)
    message = f"partition {part.index} of {name} is in the request more than once; send one batch for it"
    return _refuse(broker, reply, ErrorCode.INVALID_REQUEST, message)


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
    keys: Exception | bool = False,
) -> None:
    """`keys`: whether all records are known to have one, or why they are not as they should be."""
    if partition.dropped:  # while it was loaded
        _refuse(broker, reply, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        return
    try:
        _append_batch(broker, partition, part, call, waiting, reply, keys)
    except BatchRefused as error:
        _refuse(broker, reply, error.code, str(error))
        reply.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=compacted(partition))
            for number in error.records
        ]
    except BATCH_FAULTS as error:
        code = next(code for kind, code in CODES_OF_FAULTS if isinstance(error, kind))
        _refuse(broker, reply, code, str(error))
    except StorageError as error:
        _refuse(broker, reply, ErrorCode.KAFKA_STORAGE_ERROR, sentence(error))


def _append_batch(
    broker: Broker,
    partition: Partition,
    part: PartitionProduceData,
    call: Call,
    waiting: _Waiting,
    reply: PartitionProduceResponse,
    keys: Exception | bool,
) -> None:
    records = part.records
    if not isinstance(records, memoryview) or not records:
        raise MalformedBatch("produce without a record batch")
    now_ms = broker.now().wall_ms
    header = _check(partition, records, now_ms)
    if partition.config.compact and keys is not True:
        if isinstance(keys, Exception):
            raise keys
        if not waiting.keys.at_once(partition, records):
            again = partial(_try_append, broker, partition, part, call, waiting, reply)
            waiting.checked(partition, records, again)
            return
    _check_writer(broker, partition, header, call, waiting)
    if partition.config.overload is not None:
        policy = partition.config.overload
        if _waits_for_readers(broker, partition, policy, header, call, waiting):
            waiting.put_off(partial(_try_append, broker, partition, part, call, waiting, reply, keys))
            return
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
        raise BatchRefused(
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
            raise BatchRefused(
                ErrorCode.INVALID_TIMESTAMP,
                f"a timestamp of {header.max_timestamp} is {ahead} ms from now; {partition.topic} takes"
                f" -{config.timestamp_before_max_ms} to {config.timestamp_after_max_ms}",
            )
    return header


def _check_writer(broker: Broker, partition: Partition, header: BatchHeader, call: Call, waiting: _Waiting) -> None:
    """Whether who sends this batch may write it, and now."""
    transactional_id = waiting.transactional_id
    writers = partition.config.writers
    if writers and not (transactional_id or "").startswith(writers):
        raise BatchRefused(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{partition.topic} has tidelog.writers={writers} and takes records only of transactional ids that begin"
            f" with it; this one came from {transactional_id!r}",
        )
    refused = None
    if header.is_transactional:
        from tidelog.broker.transactional_produce import refusal

        place = partition.topic, partition.index
        refused = refusal(broker, transactional_id, header, place, call.version, waiting.unnamed)
    elif transactional_id is not None:
        from tidelog.broker.transactional_produce import refusal_alone

        refused = refusal_alone(broker, transactional_id, header, call.version, waiting.unnamed)
    if refused is not None:
        raise BatchRefused(*refused)


def _waits_for_readers(
    broker: Broker, partition: Partition, policy: OverloadPolicy, header: BatchHeader, call: Call, waiting: _Waiting
) -> bool:
    """What a topic with `tidelog.overload.policy` asks; BatchRefused when it takes nothing for now.

    True with acks=0, instead of a refusal of which nobody would hear: then the batch is to be tried again.
    """
    if partition.log.has(header):
        return False  # it is stored already, and its producer must be told so
    try:
        waiting.rest(broker.overload.admit(partition, policy, call, waiting.transactional_id, waiting.acks))
    except Overloaded as error:
        if not waiting.acks:
            return True
        waiting.rest(error.hold_ms)
        raise
    return False


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
