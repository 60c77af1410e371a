"""Consume, transform, produce, in transactions: a client that dies at a request of its choice, sent or not sent.

One instance after the other runs under one transactional id. Each reads where its group's committed offset says, writes
what it made of the records to the outputs, and commits the offset with them. A dead instance may come back as a zombie:
it goes on with what it knew, and must not change anything. Some instances outlive the broker: they send the request
whose reply they have not seen again, when it is back. To the others that is a reason to die, and so is an error that
asks for patience: the next one begins from what the broker says.

    v1    AddPartitionsToTxn, Produce 11, AddOffsetsToTxn, TxnOffsetCommit 3, EndTxn 3: as librdkafka does
    v2    Produce 12, TxnOffsetCommit 5, EndTxn 5: as Java's producers do
"""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidelog.record.codec import scan
from tidelog.record.columns import decode, encode
from tidelog.wire.error_code import ErrorCode, name
from tidelog.wire.frame import decode_response, encode_request
from tidelog.wire.message import Struct
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

INPUT, OUTPUT = "input", "output"
OUTPUTS = 2
GROUP, TRANSACTIONAL_ID = "transforming", "transform-0"
TIMEOUT_S = 120.0
LOOK_S = 0.02
RECORDS_MAX = 7
PATIENCE = (  # the broker asks to come again
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

ABORT_MARKER = struct.pack(">hh", 0, 0)

Response = TypeVar("Response", bound=Struct)


class Died(Exception):
    """The client is gone."""


class Gone(Died):
    """The connection ended before the reply came."""


class AskedForPatience(Died):
    """The broker cannot do it now, and the client gave up at once."""


class Refused(AssertionError):
    """The broker told it something that a live client must not hear."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {name(code)}")
        self.code = code


@dataclass
class Instance:
    """From its start to its death. `dies_at` counts requests; `dies_after` says whether that one is sent."""

    bootstrap: str
    version_2: bool
    rng: random.Random
    dies_at: int
    dies_after: bool
    is_gone: Callable[[], bool]  # the broker: then there is nothing to wait for
    come_back: Callable[[], None] | None = None  # waits for the broker; the request is then sent again, as clients do
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)
    _socket: socket.socket | None = None
    _asked: int = 0

    # One transaction after the other ----------------------------------------------------------------------------

    def run(self) -> None:
        try:
            self._connect()
            self.take_id()
            while True:
                if not self.transform():
                    return
        except OSError as error:
            raise Died from error
        finally:
            self.close()

    def transform(self) -> bool:
        """One transaction; False when there is nothing left to do."""
        offset = self.committed_offset()
        values = self.read(offset, self.rng.randint(1, RECORDS_MAX))
        if not values:
            return False
        outputs = sorted(self.rng.sample(range(OUTPUTS), self.rng.randint(1, OUTPUTS)))
        if not self.version_2:
            self.add_partitions(outputs)
        for number, output in enumerate(outputs):
            self.produce(output, values[number :: len(outputs)])
        if not self.version_2:
            self.add_offsets()
        self.commit_offset(offset + len(values))
        self.end(self.rng.random() < 0.75)
        return True

    # Requests ---------------------------------------------------------------------------------------------------

    def take_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=60_000)
        reply = self.ask(request, 4, InitProducerIdResponse)
        self.check("InitProducerId", reply.error_code)
        self.producer_id, self.epoch, self.sequences = reply.producer_id, reply.producer_epoch, {}

    def committed_offset(self) -> int:
        asked = OffsetFetchRequestTopic(name=INPUT, partition_indexes=[0])
        request = OffsetFetchRequest(group_id=GROUP, topics=[asked], require_stable=True)
        [found] = self.ask(request, 7, OffsetFetchResponse).topics[0].partitions
        self.check("OffsetFetch", found.error_code)
        return max(found.committed_offset, 0)

    def read(self, offset: int, count: int) -> list[bytes]:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_bytes=1 << 20, isolation_level=1, topics=[FetchTopic(topic=INPUT, partitions=[part])]
        )
        [found] = self.ask(request, 11, FetchResponse).responses[0].partitions
        self.check("Fetch", found.error_code)
        rows = [row for row in decode(bytes(found.records or b"")).rows() if row.offset >= offset]
        return [row.value or b"" for row in rows[:count]]

    def add_partitions(self, outputs: list[int]) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=OUTPUT, partitions=outputs)],
        )
        for topic in self.ask(request, 3, AddPartitionsToTxnResponse).results_by_topic_v3_and_below:
            for one in topic.results_by_partition:
                self.check("AddPartitionsToTxn", one.partition_error_code)

    def produce(self, output: int, values: list[bytes]) -> None:
        if not values:
            return
        sequence = self.sequences.get(output, 0)
        batch = encode(
            [(None, value, (), 1_000) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = [
            TopicProduceData(name=OUTPUT, partition_data=[PartitionProduceData(index=output, records=bytes(batch))])
        ]
        request = ProduceRequest(transactional_id=TRANSACTIONAL_ID, acks=-1, timeout_ms=10_000, topic_data=data)
        reply = self.ask(request, 12 if self.version_2 else 11, ProduceResponse)
        self.check("Produce", reply.responses[0].partition_responses[0].error_code)
        self.sequences[output] = sequence + len(values)

    def add_offsets(self) -> None:
        who = {"transactional_id": TRANSACTIONAL_ID, "producer_id": self.producer_id, "producer_epoch": self.epoch}
        reply = self.ask(AddOffsetsToTxnRequest(group_id=GROUP, **who), 3, AddOffsetsToTxnResponse)
        self.check("AddOffsetsToTxn", reply.error_code)

    def commit_offset(self, offset: int) -> None:
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        who = {"transactional_id": TRANSACTIONAL_ID, "producer_id": self.producer_id, "producer_epoch": self.epoch}
        topics = [TxnOffsetCommitRequestTopic(name=INPUT, partitions=[part])]
        request = TxnOffsetCommitRequest(group_id=GROUP, topics=topics, **who)
        reply = self.ask(request, 5 if self.version_2 else 3, TxnOffsetCommitResponse)
        self.check("TxnOffsetCommit", reply.topics[0].partitions[0].error_code)

    def end(self, commit: bool) -> None:
        who = {"transactional_id": TRANSACTIONAL_ID, "producer_id": self.producer_id, "producer_epoch": self.epoch}
        reply = self.ask(EndTxnRequest(committed=commit, **who), 5 if self.version_2 else 3, EndTxnResponse)
        self.check("EndTxn", reply.error_code)
        if self.version_2:
            self.producer_id, self.epoch, self.sequences = reply.producer_id, reply.producer_epoch, {}

    def check(self, what: str, code: int) -> None:
        if code in PATIENCE:
            raise AskedForPatience
        if code:
            raise Refused(what, code)

    # The wire ---------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        host, _, port = self.bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._socket.settimeout(LOOK_S)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, request: Struct, version: int, kind: type[Response]) -> Response:
        self._asked += 1
        if self._asked == self.dies_at and not self.dies_after:
            raise Died
        while True:
            try:
                return self._ask_once(request, version, kind)
            except (OSError, Gone):
                if self.come_back is None:
                    raise
            self.close()
            self.come_back()
            with suppress(OSError):
                self._connect()

    def _ask_once(self, request: Struct, version: int, kind: type[Response]) -> Response:
        if self._socket is None:
            raise Gone
        self._socket.sendall(b"".join(bytes(one) for one in encode_request(request, version, self._asked, "transform")))
        if self._asked == self.dies_at:
            raise Died
        (size,) = struct.unpack(">i", self._exactly(4))
        return decode_response(kind, version, memoryview(self._exactly(size)))[1]

    def _exactly(self, count: int) -> bytes:
        parts = b""
        deadline = time.monotonic() + TIMEOUT_S
        while len(parts) < count:
            assert self._socket is not None
            try:
                part = self._socket.recv(count - len(parts))
            except TimeoutError:
                assert time.monotonic() < deadline, "no reply"
                if self.is_gone():
                    raise Gone from None
                continue
            if not part:
                raise Gone
            parts += part
        return parts


class Zombie:
    """A dead instance that comes back with what it knew, and must change nothing."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        instance.dies_at, instance.come_back = -1, None

    def haunt(self) -> None:
        instance = self._instance
        tries: list[Any] = [
            lambda: instance.produce(0, [b"zombie"]),
            lambda: instance.commit_offset(1_000_000),
            lambda: instance.end(True),
        ]
        try:
            instance._connect()
            for one in instance.rng.sample(tries, len(tries)):
                try:
                    one()
                except Refused as refused:
                    assert refused.code in FENCED, refused
                else:
                    raise AssertionError("a zombie was let in")
        except (OSError, Died):
            pass
        finally:
            instance.close()


def read_committed(instance: Instance, topic: str, index: int) -> list[bytes]:
    """All of a partition, as a reader of committed records sees it, as soon as no transaction is open in it."""
    instance._connect()
    values: list[bytes] = []
    offset, end = 0, -1
    deadline = time.monotonic() + TIMEOUT_S
    while offset != end:
        part = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_bytes=1 << 20, isolation_level=1, topics=[FetchTopic(topic=topic, partitions=[part])]
        )
        [found] = instance.ask(request, 11, FetchResponse).responses[0].partitions
        instance.check("Fetch", found.error_code)
        records = bytes(found.records or b"")
        assert records or found.last_stable_offset == found.high_watermark or time.monotonic() < deadline, "it hangs"
        starts = sorted((one.first_offset, one.producer_id) for one in found.aborted_transactions or [])
        values += _without_aborted(records, offset, starts)
        headers = scan(records).headers
        end = found.high_watermark
        offset = headers[-1].next_offset if headers else offset
    instance.close()
    return values


def _without_aborted(records: bytes, offset: int, starts: list[tuple[int, int]]) -> Iterator[bytes]:
    """As clients do it: from its first offset to its marker, what a producer wrote in an aborted transaction is out."""
    out: set[int] = set()
    found = scan(records)
    for header, position in zip(found.headers, found.positions, strict=True):
        while starts and starts[0][0] <= header.last_offset:
            out.add(starts.pop(0)[1])
        rows = list(decode(records[position : position + header.size]).rows())
        if header.is_control:
            if rows[0].key == ABORT_MARKER:
                out.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in out:
            yield from (row.value or b"" for row in rows if row.offset >= offset)
