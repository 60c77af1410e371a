"""What members of a classic consumer group tell each other through the broker: a version, then a message in it.

    bytes = version int16, then ConsumerProtocolSubscription or ConsumerProtocolAssignment in that version

A version newer than ours is read as our newest, as Kafka does: newer versions only add to the end. The broker itself
passes these bytes on unread; who shows or makes assignments needs them.
"""

from __future__ import annotations

from typing import TypeVar

from tidelog.errors import MalformedMessage
from tidelog.wire.codec import decode, encode
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

C = TypeVar("C", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def to_bytes(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int) -> bytes:
    return b"".join((version.to_bytes(2, "big"), *encode(message, version)))  # type: ignore[arg-type]


def from_bytes(cls: type[C], data: bytes | memoryview) -> C:
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise MalformedMessage(f"{cls.__name__} of {len(data)} bytes begins with no version")
    return decode(cls, min(version, cls.SCHEMA.versions[-1]), data, 2)[0]
