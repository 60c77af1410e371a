"""kafka-python reads our bytes as we wrote them and writes the same, for every message and version that it has."""

from __future__ import annotations

import pkgutil
import uuid
from importlib import import_module
from random import Random
from typing import Any

import kafka.protocol
import pytest
from kafka.protocol.api_message import ApiMessage

from proving import proves
from tidelog.wire.codec import decode, encode
from tidelog.wire.field import ZERO_UUID, span
from tidelog.wire.message import Struct, StructType
from tidelog.wire.messages.api_versions import ApiVersionsResponse
from wire.any_message import any_message, message_classes

SEEDS = range(6)
NO_OPERATIONS = -(1 << 31)
"""Kafka's number for authorized operations that nobody asked for."""
THEIR_NAMES = dict.fromkeys(("cluster_authorized_operations", "topic_authorized_operations"), "authorized_operations")
FEWEST_SHARED = 90
"""Messages that kafka-python must have in common with us, so that the comparison is not an empty one."""


def their_classes() -> dict[str, Any]:
    classes = {}
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate" not in module.name:
            for one in vars(import_module(module.name)).values():
                if isinstance(one, type) and issubclass(one, ApiMessage) and one is not ApiMessage:
                    classes[one.__name__] = one
    return classes


THEIRS = their_classes()
SHARED = [cls for cls in message_classes() if cls.__name__ in THEIRS]


def their_value(theirs: Any, name: str) -> Any:
    return getattr(theirs, name) if hasattr(theirs, name) else getattr(theirs, THEIR_NAMES[name])


def plain(value: Any) -> Any:
    """Their value as we write it: they have UUID objects, None for the zero one, and sets for bit fields."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    return sum(1 << bit for bit in value) if isinstance(value, set) else value


def same(ours: Any, theirs: Any, version: int) -> bool:
    if isinstance(ours, Struct):
        return all(
            same(getattr(ours, field.name), their_value(theirs, field.name), version)
            for field in type(ours).SCHEMA.fields
            if version in span(field.versions) and (field.tag < 0 or getattr(ours, field.name) is not None)
        )
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(
            same(one, other, version) for one, other in zip(ours, theirs, strict=True)
        )
    if theirs is None:
        return ours in (None, ZERO_UUID, NO_OPERATIONS)
    if isinstance(theirs, set):
        ours &= 0xFFFFFFFF
    return bool(ours == plain(theirs))


@proves("T1")
@pytest.mark.parametrize("cls", SHARED, ids=lambda cls: cls.__name__)
def test_kafka_python_reads_and_writes_the_same_bytes(cls: StructType) -> None:
    theirs = THEIRS[cls.__name__]
    for version in cls.SCHEMA.versions:
        if version > theirs.max_version:
            continue
        for seed in SEEDS:
            message = any_message(Random(seed), cls, version, unknown_tags=False)
            if cls is ApiVersionsResponse:
                message.error_code = 0  # with any error they read version 0
            data = b"".join(encode(message, version))
            read = theirs.decode(data, version=version)
            assert same(message, read, version)
            read._header = None  # decoding without a header leaves it unset, which encoding stumbles over
            written = bytes(read.encode(version=version))
            assert written == data
            assert decode(cls, version, written)[0] == message


@proves("T1")
def test_most_messages_are_compared() -> None:
    assert len(SHARED) >= FEWEST_SHARED
