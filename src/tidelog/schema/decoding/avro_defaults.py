"""Defaults of fields in Avro's binary encoding: a reader takes them from there as it takes what was written.

In the JSON of a schema bytes are texts of letters below 256, and the default of a union is of its first branch that
fits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from tidelog.schema.avro.model import MISSING, Array, Enum, Fixed, Map, RecordType, Type, Union, kind_of

RANGES = {"int": 1 << 31, "long": 1 << 63}


def encode(one: Type, value: Any) -> bytes:
    """ValueError when the value is not one of this type."""
    if isinstance(one, Union):
        return _union(one, value)
    if isinstance(one, RecordType):
        return _record(one, value)
    if isinstance(one, Array) and isinstance(value, list):
        return _block(encode(one.items, item) for item in value)
    if isinstance(one, Map) and isinstance(value, dict):
        return _block(_sized(key.encode()) + encode(one.values, item) for key, item in value.items())
    if isinstance(one, Enum) and value in one.symbols:
        return varint(one.symbols.index(value))
    if isinstance(one, Fixed) and isinstance(value, str) and len(value) == one.size:
        return value.encode("latin-1")
    return _primitive(kind_of(one), value)


def varint(number: int) -> bytes:
    left = number << 1 if number >= 0 else ~(number << 1)
    made = bytearray()
    while left >= 0x80:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def _primitive(kind: str, value: Any) -> bytes:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "null" and value is None:
        return b""
    if kind == "boolean" and isinstance(value, bool):
        return bytes([value])
    if kind in RANGES and number and value == int(value) and -RANGES[kind] <= value < RANGES[kind]:
        return varint(int(value))
    if kind in ("float", "double") and number:
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind == "string" and isinstance(value, str):
        return _sized(value.encode())
    if kind == "bytes" and isinstance(value, str):
        return _sized(value.encode("latin-1"))
    raise ValueError(f"{value!r} is not of type {kind}")


def _union(one: Union, value: Any) -> bytes:
    for index, branch in enumerate(one.branches):
        try:
            return varint(index) + encode(branch, value)
        except ValueError:
            continue
    raise ValueError(f"{value!r} is of no branch of the union")


def _record(one: RecordType, value: Any) -> bytes:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a record")
    made = b""
    for field in one.fields:
        given = value.get(field.name, field.default)
        if given is MISSING:
            raise ValueError(f"{field.name!r} is missing in {value!r}")
        made += encode(field.type, given)
    return made


def _block(items: Iterable[bytes]) -> bytes:
    listed = list(items)
    return varint(len(listed)) + b"".join(listed) + b"\0" if listed else b"\0"


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data
