"""The columns of a topic, decided from a sample of its records. Pure.

Of the record, always, by Kafka's names: `key`, `value`, `topic`, `partition`, `offset`, `timestamp` (UTC), `headers`.
`key` and `value` are text where all of the sample is, and bytes otherwise. Before them stand the fields of the value:

    a frame of a schema registry   the fields of its Avro, Protobuf or JSON Schema
    JSON objects                   the members that the sample has, with the types that their values have there
    anything else                  none: the value is the text, or the bytes, that it is

Types of members:

    whole numbers of 64 bits    BIGINT                 objects    STRUCT of their members, by the same rules
    numbers                     DOUBLE                 arrays     LIST of one type
    true and false              BOOLEAN                all null, or of two kinds, or nested deeper than DEPTH_MAX:
    text                        VARCHAR                           VARCHAR, the JSON as it is written

Where nine of ten values of a member are of one kind, that is its kind: an odd record does not turn a number into text.

Rules:
- Kafka's columns keep their names, whatever a value has. A field of the same name has `value_` before it.
- SQL takes no note of case. Of two fields whose names differ by case alone, the later has `_2` after it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tidelog.schema.column_types import LONG_MAX, LONG_MIN
from tidelog.schema.decoding.column import Column

OF_THE_RECORD = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
DEPTH_MAX = 8
MOST = 0.9  # of the values that are not null
MEMBERS_MAX = 1000  # of one object: more are keys of a map, and not names of columns
FRAME_SIZE = 5  # a zero, and the schema's id in four bytes


class Shape(NamedTuple):
    """`root` has the fields as its children, under the names that they have in the value."""

    root: Column | None
    names: tuple[str, ...]  # of the fields, as columns
    key_is_text: bool
    value_is_text: bool


class Sample(NamedTuple):
    keys: Sequence[bytes]
    values: Sequence[bytes]


def shape_of(sample: Sample, framed: Column | None = None, *, raw: bool = False) -> Shape:
    """`framed` is the column of the registry's schema, where the values have its frame."""
    if raw:
        return Shape(None, (), False, False)
    root = framed or json_column(sample.values)
    if root is not None and root.kind != "struct":
        root = Column("", "struct", (Column("decoded", root.kind, root.children, root.precision, root.scale),))
    names = column_names([child.name for child in root.children]) if root is not None else ()
    return Shape(root, names, all(map(is_text, sample.keys)), framed is None and all(map(is_text, sample.values)))


def column_names(fields: Iterable[str]) -> tuple[str, ...]:
    taken = set(OF_THE_RECORD)
    names = []
    for field in fields:
        name = wanted = f"value_{field}" if field.lower() in OF_THE_RECORD else field or "value_"
        number = 1
        while name.lower() in taken:
            number += 1
            name = f"{wanted}_{number}"
        taken.add(name.lower())
        names.append(name)
    return tuple(names)


def frame_of(value: bytes) -> int | None:
    """The schema's id, of a value that begins as framed ones do."""
    return int.from_bytes(value[1:FRAME_SIZE], "big") if len(value) >= FRAME_SIZE and value[0] == 0 else None


def is_text(data: bytes) -> bool:
    """UTF-8 without control characters other than those of lines and tabs."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return text.isprintable() or not any(c < " " and c not in "\t\n\r" for c in text)


# --- JSON ------------------------------------------------------------------------------------------------------------


def json_column(values: Iterable[bytes]) -> Column | None:
    """None where no value is an object."""
    objects = [found for found in map(_parsed, values) if isinstance(found, dict) and found]
    made = _column("value", objects, 0) if objects else None
    return made if made is not None and made.kind == "struct" else None


def _parsed(value: bytes) -> Any:
    try:
        return json.loads(value) if value[:1] in b"{ \t\r\n" else None
    except (ValueError, RecursionError):
        return None


def _column(name: str, values: Sequence[Any], depth: int) -> Column:
    kinds = Counter(_kind(value) for value in values if value is not None)
    if kinds["double"]:
        kinds["double"] += kinds.pop("long", 0)
    kind, count = max(kinds.items(), key=lambda one: one[1], default=("json", 0))
    if kind == "json" or count < MOST * kinds.total() or depth > DEPTH_MAX:
        return Column(name, "json")
    if kind == "struct":
        return _struct(name, [value for value in values if isinstance(value, dict)], depth)
    if kind == "list":
        elements = [one for value in values if isinstance(value, list) for one in value]
        return Column(name, "list", (_column("element", elements, depth + 1),))
    return Column(name, kind)


def _struct(name: str, values: Sequence[dict[str, Any]], depth: int) -> Column:
    members: dict[str, list[Any]] = {}
    for value in values:
        for member, held in value.items():
            members.setdefault(member, []).append(held)
    if not members or len(members) > MEMBERS_MAX or (depth and not _distinct(members)) or not _whole(members):
        return Column(name, "json")
    return Column(name, "struct", tuple(_column(member, held, depth + 1) for member, held in members.items()))


def _distinct(members: Iterable[str]) -> bool:
    """As names within a STRUCT, where none can be renamed."""
    names = [member.lower() for member in members]
    return len(set(names)) == len(names) and "" not in names


def _whole(members: Iterable[str]) -> bool:
    """A name is text for C: whole letters, and no zero."""
    return not any("\0" in member or any("\ud800" <= c <= "\udfff" for c in member) for member in members)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if LONG_MIN <= value <= LONG_MAX else "json"
    return {float: "double", str: "string", list: "list", dict: "struct"}[type(value)]


# --- values that are not as the sample said --------------------------------------------------------------------------


def fitted(value: bytes, root: Column) -> bytes | None:
    """The value with null in place of what does not fit its column, or None if it is not an object."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    kept = {child.name: _fit(found[child.name], child) for child in root.children if child.name in found}
    try:
        return json.dumps(kept, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None


def _fit(value: Any, column: Column) -> Any:
    if value is None or column.kind == "json":
        return value
    kind = _kind(value)
    if kind != column.kind and (kind, column.kind) != ("long", "double"):
        return None
    if kind == "struct":
        return {child.name: _fit(value[child.name], child) for child in column.children if child.name in value}
    if kind == "list":
        return [_fit(one, column.children[0]) for one in value]
    return value
