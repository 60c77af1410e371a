"""Requests in which one list repeats as often as fits: for every API, version and list that the broker takes.

They are made from the tables of `wire` alone. What stands in a field is found by its name (`KNOWN`), so that the broker
has something to do: topics, groups and settings that a test's broker has. Of every list there are two requests: one
that names the same thing again and again, and one in which each entry is another one (`different`), as far as it has a
field to tell them apart by.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tidelog.broker.dispatch import APIS
from tidelog.record.columns import encode
from tidelog.wire.api import request_class
from tidelog.wire.codec import encode as encode_message
from tidelog.wire.field import Field, span
from tidelog.wire.message import StructType, struct_named

REQUEST_BYTES = 100_000
TOPIC, GROUP, USER = "wide", "group", "somebody"

NAMES = ("name", "topic", "topic_name", "topics", "topic_names", "subscribed_topic_names", "resource_name")
GROUPS = ("group_id", "groups", "group_ids", "groups_names", "coordinator_keys", "key")
NUMBERED = (*NAMES, *GROUPS, "transactional_id", "transactional_ids", "member_id", "principal", "entity_name", "match")
KNOWN: dict[str, Any] = {
    **dict.fromkeys(NAMES, TOPIC),
    **dict.fromkeys(GROUPS, GROUP),
    "acks": -1,
    "timeout_ms": 1000,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "max_wait_ms": 0,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "num_partitions": 1,
    "replication_factor": -1,
    "generation_id_or_member_epoch": -1,
    "member_epoch": -1,
    "current_leader_epoch": -1,
    "response_partition_limit": 2000,
    "resource_type": 2,
    "resource_types": 2,
    "pattern_type_filter": 3,
    "resource_type_filter": 2,
    "resource_pattern_type": 3,
    "resource_name_filter": TOPIC,
    "operation": 3,
    "permission_type": 3,
    "principal": "User:somebody",
    "host": "*",
    "entity_type": "user",
    "entity_name": USER,
    "transaction_timeout_ms": 60_000,
    "producer_id": 1,
    "include_synonyms": True,
    "include_documentation": True,
    "protocol_type": "consumer",
    "timestamp": -2,
    "configuration_keys": "retention.ms",
    "mechanism": 1,
    "iterations": 4096,
    "salt": b"0123456789abcdef",
    "salted_password": b"0" * 32,
    "count": 3,
    "committed_offset": 7,
    "states_filter": "Empty",
}


# What else a field may say, where the answer takes another way: settings of a broker and of groups, offsets by time.
OTHERWISE: dict[int, tuple[dict[str, Any], ...]] = {
    2: ({"timestamp": -1}, {"timestamp": -3}, {"timestamp": 0}, {"isolation_level": 1}),
    10: ({"key_type": 1},),
    24: ({"verify_only": True},),
    32: ({"resource_type": 4, "resource_name": "1"}, {"resource_type": 32, "resource_name": GROUP}),
    44: ({"resource_type": 32, "resource_name": GROUP},),
}
PARTITIONS = ("partition_index", "partition", "index", "partitions", "partition_indexes")


class Shape(NamedTuple):
    """How a request is made. `path` is the list that repeats, by the names of the fields that lead to it."""

    api_key: int
    version: int
    path: tuple[str, ...]
    different: bool = False  # each entry is another one
    bare: bool = False  # the other lists are null or empty, which asks for all
    otherwise: int = -1  # of OTHERWISE

    def __str__(self) -> str:
        kind = ("different" if self.different else "same") + (" bare" if self.bare else "")
        more = "" if self.otherwise < 0 else f" {OTHERWISE[self.api_key][self.otherwise]}"
        return f"{APIS[self.api_key].name} v{self.version} {'.'.join(self.path)} {kind}{more}"


def lists(cls: StructType, version: int, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all lists that a message of this version has, in a list of lists the inner ones too."""
    for field in cls.SCHEMA.fields:
        if version not in span(field.versions):
            continue
        path = (*before, field.name)
        if field.kind == "array":
            yield path
        if field.element[:1].isupper():
            yield from lists(struct_named(cls, field.element), version, path)


def shapes(api_key: int) -> Iterator[Shape]:
    """Every list of every version of an API that the broker takes."""
    for version in range(APIS[api_key].min_version, APIS[api_key].max_version + 1):
        paths = list(lists(request_class(api_key), version))
        for path in paths:
            for different in (False, True):
                for otherwise in range(-1, len(OTHERWISE.get(api_key, ()))):
                    yield Shape(api_key, version, path, different, False, otherwise)
                    if len(paths) > 1:
                        yield Shape(api_key, version, path, different, True, otherwise)


class Writer:
    """Makes requests for a broker whose topic TOPIC has this id."""

    def __init__(self, topic_id: bytes) -> None:
        self._topic_id = topic_id

    def request(self, shape: Shape, size: int = REQUEST_BYTES) -> Any:
        """With as many entries in the list as make it about `size` bytes."""
        made = _Made(shape, self._topic_id)
        few, more = (_size(made.message(count), shape.version) for count in (1000, 2000))
        return made.message(max(2, 1000 + (size - few) * 1000 // max(1, more - few)))


def _size(message: Any, version: int) -> int:
    return sum(len(chunk) for chunk in encode_message(message, version))


class _Made:
    def __init__(self, shape: Shape, topic_id: bytes) -> None:
        self._shape = shape
        self._topic_id = topic_id
        otherwise = OTHERWISE[shape.api_key][shape.otherwise] if shape.otherwise >= 0 else {}
        self._known = {**KNOWN, **otherwise}
        self._count = 0

    def message(self, count: int) -> Any:
        self._count = count
        return self._struct(request_class(self._shape.api_key), self._shape.path, None)

    def _struct(self, cls: StructType, path: tuple[str, ...], number: int | None) -> Any:
        """One entry in every list but the one that `path` leads to. `number` makes it another one."""
        values = {}
        for field in cls.SCHEMA.fields:
            if self._shape.version in span(field.versions):
                on_path = path[:1] == (field.name,)
                values[field.name] = self._field(cls, field, path[1:] if on_path else (), on_path, number)
        return cls(**values)

    def _field(self, cls: StructType, field: Field, path: tuple[str, ...], on_path: bool, number: int | None) -> Any:
        if field.kind == "array":
            return self._list(cls, field, path, on_path, number)
        if field.kind == "struct":
            if field.tag >= 0 and not on_path:
                return None
            return self._struct(struct_named(cls, field.element), path, number)
        return self._value(field, field.kind, number)

    def _list(self, cls: StructType, field: Field, path: tuple[str, ...], on_path: bool, number: int | None) -> Any:
        if self._shape.bare and not on_path:
            return None if self._shape.version in span(field.nullable) else []
        times = self._count if on_path and not path else 1
        struct = struct_named(cls, field.element) if field.element[:1].isupper() else None
        if times == 1 or not self._shape.different:
            one = self._value(field, field.element, number) if struct is None else self._struct(struct, path, number)
            return [one] * times
        if struct is None:
            return [self._value(field, field.element, each) for each in range(times)]
        return [self._struct(struct, path, each) for each in range(times)]

    def _value(self, field: Field, kind: str, number: int | None) -> Any:
        if kind == "records":
            return bytes(encode([(b"key", b"value", (), 0)]))
        known = self._known.get(field.name)
        if kind == "string":
            text = known if isinstance(known, str) else field.name
            return f"{text}{number}" if number is not None and field.name in NUMBERED else text
        if kind == "bytes":
            return known if isinstance(known, bytes) else b""
        if kind == "uuid":
            return self._topic_id if number is None else number.to_bytes(16, "big")
        if kind == "float64":
            return 1000.0
        if number is not None and field.name in PARTITIONS:
            return number
        return bool(known) if kind == "bool" else known if isinstance(known, int) else 0
