"""What captures keep of themselves, and of the tables that they capture: one compacted topic.

    __tidelog.captures    key    {"v":1,"capture":"shop"}
                          value  how far it is: {"position":{...},"open":{"id":"751","rows":12},"snapshot":...,...}
                          key    {"v":1,"capture":"shop","table":"public.kv"}
                          value  what its topic has: {"topic":"shop.public.kv","connector":"postgresql","columns":[...],
                                 "key":["id"],"envelope":"debezium","schemas":false,"format":"json"}
                          key    {"v":1,"app":"shop","table":"customers"}
                          value  the columns by which an app reads one: {"topic":...,"columns":[[NAME,{...}],...],
                                 "key":["id"],"envelope":"debezium"}

Rules (docs/formats/captures.md has every field):
- Both are written in the transaction of the rows that they tell of: a table before its first row of that shape, the
  progress last. So a reader of committed records knows the shape of every row that it sees.
- Only the owner of the transactional id `tidelog.capture.NAME` writes records of that capture. Those of an app are
  written by its run, once.
- A value with a higher `v` in its key is passed over by readers, and stops the capture itself.
- null means that it was removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.control.reading import read, span
from tidelog.errors import MalformedMark, UsageError
from tidelog.record.columns import Row

VERSION = 1
CAPTURES = TopicPartition("__tidelog.captures", 0)
OWNER_PREFIX = "tidelog.capture."
NAME_LENGTH_MAX = 200
LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
DEBEZIUM, ROW = ENVELOPES = ("debezium", "row")
UNREAD, REPLACED = "unread", "replaced"
JSON, AVRO, JSON_SCHEMA = FORMATS = ("json", "avro", "json-schema")  # the last two with a registry's frame


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """What the topic of a table has, from this record on."""

    capture: str
    table: str  # "public.kv"
    topic: str
    connector: str
    columns: tuple[Mapping[str, Any], ...]  # {"name":..., "connect":{...}, "declared":...}
    key: tuple[str, ...]
    envelope: str
    schemas: bool
    format: str = JSON
    registry: str = ""  # the address to which schemas went, for people to read
    # The source's own id of the table that was read under this name. UNREAD: changes came, and no rows of before yet.
    # REPLACED: what was told is of another table, or by another key. "": the source has none, or this is an old record.
    id: str = ""


@dataclass(frozen=True, slots=True)
class Captured:
    """A capture as its records tell it."""

    name: str
    progress: Mapping[str, Any] | None
    tables: Mapping[str, CapturedTable]


@dataclass(frozen=True, slots=True)
class CapturedColumns:
    """What an app reads of a captured topic."""

    topic: str
    columns: tuple[tuple[str, Mapping[str, Any]], ...]  # names, and Connect's schemas
    key: tuple[str, ...]
    envelope: str


def transactional_id_of(capture: str) -> str:
    return OWNER_PREFIX + check_name(capture)


def sink_of(capture: str) -> str:
    """The name under which its marks are (`control/marks.py`)."""
    return f"capture.{check_name(capture)}"


def check_name(capture: str) -> str:
    if 0 < len(capture) <= NAME_LENGTH_MAX and LEGAL.issuperset(capture):
        return capture
    raise UsageError(
        f"{capture!r} is not a capture's name; use 1 to {NAME_LENGTH_MAX} letters, digits, '.', '_' and '-'"
    )


# Bytes ----------------------------------------------------------------------------------------------------------------


def encode_progress(capture: str, progress: Mapping[str, Any]) -> tuple[bytes, bytes]:
    return _json({"v": VERSION, "capture": capture}), _json(progress)


def encode_table(one: CapturedTable) -> tuple[bytes, bytes]:
    content = {
        "topic": one.topic,
        "connector": one.connector,
        "columns": [dict(column) for column in one.columns],
        "key": list(one.key),
        "envelope": one.envelope,
        "schemas": one.schemas,
    }
    if one.format != JSON:
        content |= {"format": one.format, "registry": one.registry}
    if one.id:
        content["id"] = one.id
    return table_key(one.capture, one.table), _json(content)


def progress_key(capture: str) -> bytes:
    return _json({"v": VERSION, "capture": capture})


def table_key(capture: str, table: str) -> bytes:
    return _json({"v": VERSION, "capture": capture, "table": table})


def decode(rows: Iterable[Row]) -> dict[str, Captured]:
    """By name; of a capture that was removed nothing is left."""
    progress: dict[str, Mapping[str, Any]] = {}
    tables: dict[str, dict[str, CapturedTable]] = {}
    for row in rows:
        key = _fields(row.key)
        if key is None or not isinstance(name := key.get("capture"), str):
            continue
        if key.get("v") != VERSION:
            raise MalformedMark(
                f"a record of capture {name!r} has format version {key.get('v')}, and this Tidelog knows version"
                f" {VERSION}; use the newer one"
            )
        value, table = _fields(row.value), key.get("table")
        if isinstance(table, str):
            found = None if value is None else _table(name, table, value)
            if found is None:
                tables.setdefault(name, {}).pop(table, None)
            else:
                tables.setdefault(name, {})[table] = found
        elif value is None:
            progress.pop(name, None)
        else:
            progress[name] = value
    names = [*progress, *(name for name in tables if tables[name] and name not in progress)]
    return {name: Captured(name, progress.get(name), tables.get(name, {})) for name in names}


def _table(capture: str, table: str, content: Mapping[str, Any]) -> CapturedTable | None:
    try:
        return CapturedTable(
            capture,
            table,
            str(content["topic"]),
            str(content["connector"]),
            tuple(content["columns"]),
            tuple(content["key"]),
            str(content["envelope"]),
            bool(content["schemas"]),
            str(content.get("format", JSON)),
            str(content.get("registry", "")),
            str(content.get("id", "")),
        )
    except (KeyError, TypeError):
        return None


def _fields(text: bytes | None) -> dict[str, Any] | None:
    try:
        found = None if text is None else json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


# The topic ------------------------------------------------------------------------------------------------------------


def ensure_topic(cluster: Cluster) -> None:
    topics.ensure(cluster, CAPTURES.topic, partitions=1, configs={"cleanup.policy": "compact"})


def read_captures(cluster: Cluster) -> dict[str, Captured]:
    """Every capture that has written something, by what is committed now."""
    there = span(cluster, CAPTURES, committed=True)
    if there is None:
        return {}
    return decode(row for _, row in read(cluster, {CAPTURES: there.start}, {CAPTURES: there.end}))


# What apps read -------------------------------------------------------------------------------------------------------


def read_columns(cluster: Cluster, app: str, table: str) -> CapturedColumns | None:
    there = span(cluster, CAPTURES, committed=True)
    found: CapturedColumns | None = None
    wanted = _columns_key(app, table)
    for _, row in read(cluster, {CAPTURES: there.start}, {CAPTURES: there.end}) if there is not None else ():
        content = _fields(row.value) if row.key == wanted else None
        if content is not None:
            columns = tuple((str(name), schema) for name, schema in content["columns"])
            found = CapturedColumns(str(content["topic"]), columns, tuple(content["key"]), str(content["envelope"]))
    return found


def write_columns(cluster: Cluster, app: str, table: str, one: CapturedColumns) -> None:
    ensure_topic(cluster)
    content = {"topic": one.topic, "columns": [list(each) for each in one.columns], "key": list(one.key)}
    with Producer(cluster) as producer:
        producer.send(
            CAPTURES.topic, _json({**content, "envelope": one.envelope}), key=_columns_key(app, table), partition=0
        )


def _columns_key(app: str, table: str) -> bytes:
    return _json({"v": VERSION, "app": app, "table": table})
