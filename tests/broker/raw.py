"""A connection that sends what it is told, byte by byte if need be: for what no proper client would do."""

from __future__ import annotations

import select
import socket
import struct
from typing import TypeVar

from tidelog.record.columns import encode
from tidelog.wire.codec import Struct
from tidelog.wire.frame import decode_response, encode_request
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

Response = TypeVar("Response", bound=Struct)


class RawConnection:
    def __init__(self, bootstrap: str, timeout_s: float = 180) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: Struct, version: int, correlation_id: int = 1) -> None:
        self.socket.sendall(frame_of(request, version, correlation_id))

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def receive(self, kind: type[Response], version: int) -> tuple[int, Response]:
        return decode_response(kind, version, memoryview(self.receive_frame()))

    def call(self, request: Struct, version: int, kind: type[Response]) -> Response:
        self.send(request, version)
        return self.receive(kind, version)[1]

    def has_answer(self, within_s: float = 0) -> bool:
        """Whether something has come; by `poll`, which knows descriptors of any number."""
        poller = select.poll()
        poller.register(self.socket.fileno(), select.POLLIN)
        return bool(poller.poll(within_s * 1000))

    def is_closed(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, count: int) -> bytes:
        parts = b""
        while len(parts) < count:
            part = self.socket.recv(count - len(parts))
            assert part, f"the broker closed the connection after {len(parts)} of {count} bytes"
            parts += part
        return parts


def frame_of(request: Struct, version: int, correlation_id: int = 1) -> bytes:
    return b"".join(bytes(chunk) for chunk in encode_request(request, version, correlation_id, "raw"))


def batch_of(*values: bytes, **options: object) -> bytes:
    return bytes(encode([(None, value, (), 1_000) for value in values], **options))


def produce(topic: str, records: bytes, *, acks: int = -1, partition: int = 0) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch(topic: str, offset: int, *, wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, topics=[FetchTopic(topic=topic, partitions=[part])])
