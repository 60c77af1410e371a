"""Requests written by hand, in versions that both brokers take, for rows that need thousands of plain connections.

Metadata v4 (which makes a topic), Produce v3, Fetch v4, ApiVersions v0. Each call gives or takes whole frames.
"""

from __future__ import annotations

import socket
import struct
import time

from tidelog.record.codec import crc32c

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
ACKS_ALL = -1
UNKNOWN_TOPIC_OR_PARTITION = 3


def frame(api: int, version: int, body: bytes, correlation: int = 1) -> bytes:
    head = struct.pack(">hhih", api, version, correlation, 5) + b"bench"
    return struct.pack(">i", len(head) + len(body)) + head + body


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def batch(value: bytes) -> bytes:
    """One record batch with one record, no key."""
    record = b"\x00\x00\x00\x01" + _varint(len(value)) + value + b"\x00"
    record = _varint(len(record)) + record
    stamp = int(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", 0, 0, stamp, stamp, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, crc32c(checked)) + checked


def _varint(value: int) -> bytes:
    zigzag = value << 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def produce(topic: str, partition: int, records: bytes) -> bytes:
    body = struct.pack(">hhii", -1, ACKS_ALL, 30_000, 1) + text(topic)
    return frame(PRODUCE, 3, body + struct.pack(">iii", 1, partition, len(records)) + records)


def fetch(topic: str, partition: int, offset: int, wait_ms: int) -> bytes:
    body = struct.pack(">iiiibi", -1, wait_ms, 1, 1 << 20, 0, 1) + text(topic)
    return frame(FETCH, 4, body + struct.pack(">iiqi", 1, partition, offset, 1 << 20))


def metadata(topic: str) -> bytes:
    return frame(METADATA, 4, struct.pack(">i", 1) + text(topic) + b"\x01")


def api_versions() -> bytes:
    return frame(API_VERSIONS, 0, b"")


def receive(connection: socket.socket) -> bytes:
    """One whole frame without its size and correlation id."""
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)[4:]


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)


def produce_error(answer: bytes, topic: str) -> int:
    """The error code in a Produce v3 answer for one partition."""
    error: int = struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)[0]
    return error


def fetched(answer: bytes, topic: str) -> tuple[int, int]:
    """(error code, bytes of records) in a Fetch v4 answer for one partition."""
    position = 4 + 4 + 2 + len(topic) + 4 + 4
    error, _, _, aborted = struct.unpack_from(">hqqi", answer, position)
    (size,) = struct.unpack_from(">i", answer, position + 22 + 16 * max(aborted, 0))
    return error, size
