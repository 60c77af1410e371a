"""Any message: a random but valid value of every field that a class has in a version, for round trips and comparisons.

All choices come from the `Random` given, so one seed gives one message.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from tidelog.wire.api import APIS, request_class, response_class
from tidelog.wire.field import ZERO_UUID, Field, span
from tidelog.wire.message import StructType, struct_named
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

INTEGERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
LENGTHS = (0, 1, 2, 3, 5, 8, 126, 127, 128, 300)
"""126 and 127 stand on both sides of where a compact length takes a second byte."""
ALPHABET = "aZ09._-ü€𝄞\0"
UNKNOWN_TAG = 100
SEEDS_KNOWN = 3


def message_classes() -> list[StructType]:
    classes = [one(key) for key in APIS for one in (request_class, response_class)]
    return [*classes, ConsumerProtocolSubscription, ConsumerProtocolAssignment]


def messages_and_versions() -> list[tuple[StructType, int]]:
    return [(cls, version) for cls in message_classes() for version in cls.SCHEMA.versions]


def digest_of(encoded: Iterable[bytes]) -> str:
    return sha256(b"".join(encoded)).hexdigest()[:16]


def known_digests() -> dict[tuple[str, int], str]:
    """Of SEEDS_KNOWN messages of each class and version, without unknown tags, as Apache Kafka encodes them."""
    rows = [line.split() for line in (Path(__file__).parent / "kafka_digests.txt").read_text().splitlines()]
    return {(name, int(version)): digest for name, version, digest in rows}


def any_message(random: Random, cls: StructType, version: int, *, unknown_tags: bool = True) -> Any:
    return _struct(random, cls, version, version in cls.SCHEMA.flexible and unknown_tags, 0)


def _struct(random: Random, cls: StructType, version: int, unknown_tags: bool, depth: int) -> Any:
    values = {}
    for field in cls.SCHEMA.fields:
        if version in span(field.versions):
            values[field.name] = _field(random, cls, field, version, unknown_tags, depth)
    message: Any = cls(**values)
    if unknown_tags and random.random() < 0.2:
        message.unknown_tags = {UNKNOWN_TAG + random.randrange(100): random.randbytes(random.choice(LENGTHS))}
    return message


def _field(random: Random, cls: StructType, field: Field, version: int, unknown_tags: bool, depth: int) -> Any:
    if version in span(field.nullable) and random.random() < 0.2:
        return None
    if field.kind == "array":
        count = random.choice((0, 1, 1, 2, 3)) if depth < 3 else random.randrange(2)
        if field.element in INTEGERS and random.random() < 0.1:
            count = 130
        return [_value(random, cls, field, field.element, version, unknown_tags, depth + 1) for _ in range(count)]
    if field.kind == "struct":
        if field.tag < 0:
            return _value(random, cls, field, field.element, version, unknown_tags, depth + 1)
        struct = struct_named(cls, field.element)
        value = _struct(random, struct, version, unknown_tags, depth + 1)
        return None if value == struct() else value
    return _value(random, cls, field, field.kind, version, unknown_tags, depth)


def _value(
    random: Random, cls: StructType, field: Field, kind: str, version: int, unknown_tags: bool, depth: int
) -> Any:
    if kind in INTEGERS:
        least, most = INTEGERS[kind]
        return random.choice((least, most, 0, 1, random.randint(least, most)))
    if kind == "bool":
        return random.random() < 0.5
    if kind == "float64":
        return random.choice((0.0, -1.5, 1e300, random.random()))
    if kind == "uuid":
        return random.choice((ZERO_UUID, random.randbytes(16)))
    if kind == "string":
        return "".join(random.choices(ALPHABET, k=random.choice(LENGTHS)))
    if kind in ("bytes", "records"):
        return random.randbytes(random.choice((*LENGTHS, 9000)))
    return _struct(random, struct_named(cls, kind), version, unknown_tags, depth)
