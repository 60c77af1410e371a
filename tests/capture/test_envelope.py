"""The envelope against what Debezium's own connectors wrote (data/debezium.jsonl), byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from proving import proves
from tidelog.capture import envelope, notices
from tidelog.capture.change import CREATE, DELETE, TRUNCATE, UPDATE, SourceColumn, SourceTable, Values
from tidelog.capture.envelope import EnvelopeOptions, EnvelopeShape, Record, Times, compact
from tidelog.errors import UsageError

VECTORS = Path(__file__).parent / "data" / "debezium.jsonl"
INT, STRING = {"type": "int32", "optional": False}, {"type": "string", "optional": True}
COLUMNS = {
    "kv": (SourceColumn("id", INT), SourceColumn("v", STRING)),
    "kv_full": (SourceColumn("id", INT), SourceColumn("v", STRING)),
    "pk2": (
        SourceColumn("a", INT),
        SourceColumn("b", {**STRING, "optional": False}),
        SourceColumn("v", {**INT, "optional": True}),
    ),
    "nokey": (SourceColumn("a", {**INT, "optional": True}), SourceColumn("b", STRING)),
    "trunc_a": (SourceColumn("id", INT),),
    "trunc_b": (SourceColumn("id", INT), SourceColumn("a", {**INT, "optional": True})),
}
KEYS = {"kv": ("id",), "kv_full": ("id",), "pk2": ("b", "a"), "nokey": (), "trunc_a": ("id",), "trunc_b": ("id",)}
CASES = ("default", "txmeta")


@cache
def vectors() -> list[dict[str, Any]]:
    return [json.loads(line) for line in VECTORS.read_text().splitlines()]


def payload(vector: dict[str, Any]) -> Any:
    value = vector["value"]
    return value if value is None or not vector["schemas"] else value["payload"]


def chosen(database: str, kind: str, *, schemas: bool) -> list[dict[str, Any]]:
    return [
        one
        for one in vectors()
        if (one["database"], one["set"], one["schemas"]) == (database, kind, schemas)
        and one["topic"].rpartition(".")[2] in COLUMNS
    ]


def texts(row: dict[str, Any] | None) -> Values | None:
    return None if row is None else tuple(compact(value) for value in row.values())


def groups(found: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The records of one change each: an event with its tombstone; a changed key with both of its events."""
    group: list[dict[str, Any]] = []
    for one in found:
        told = payload(one)
        moved = told is not None and told["op"] == CREATE and "__debezium.oldkey" in dict(one["headers"])
        if group and told is not None and not moved:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def written(group: list[dict[str, Any]], *, tombstones: bool = True) -> list[Record]:
    """What we write for the change that this group tells of."""
    first, last = payload(group[0]), payload(group[-1]) or payload(group[0])
    schema, name = group[0]["topic"].split(".")[-2:]
    op, before, after = first["op"], texts(first["before"]), texts(last["after"])
    if op == DELETE and last["op"] == CREATE:
        op = UPDATE
    table = SourceTable(schema, name, COLUMNS[name], KEYS[name])
    options = EnvelopeOptions(group[0]["topic"].rsplit(".", 2)[0], schemas=group[0]["schemas"], tombstones=tombstones)
    source_schema = {}
    if options.schemas:
        (source_schema,) = [one for one in group[0]["value"]["schema"]["fields"] if one["field"] == "source"]
        source_schema = {key: value for key, value in source_schema.items() if key != "field"}
    blocks = iter([compact(payload(one)["transaction"]) for one in group if payload(one) is not None])
    times = "".join(f'"{unit}":{first[unit]},' for unit in ("ts_ms", "ts_us", "ts_ns"))[:-1] + "}"
    shape = EnvelopeShape(table, options, source_schema)
    return list(envelope.records(shape, op, before, after, compact(first["source"]), lambda: next(blocks), times))


def expected(group: list[dict[str, Any]]) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]:
    """With the times of the first record: we write one change at one time."""
    first, found = payload(group[0]), []
    for one in group:
        value = one["value"]
        if value is not None:
            told = {**payload(one), **{unit: first[unit] for unit in ("ts_ms", "ts_us", "ts_ns")}}
            value = {**value, "payload": told} if one["schemas"] else told
        key = None if one["key"] is None else compact(one["key"]).encode()
        headers = [(name, text.encode()) for name, text in one["headers"]]
        found.append((key, None if value is None else compact(value).encode(), headers))
    return found


@proves("D1", "cdc.9", "cdc.11", "cdc.12", "cdc.13")
@pytest.mark.parametrize("schemas", [False, True], ids=["plain", "schemas"])
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_records_are_byte_for_byte_what_debezium_writes(database: str, kind: str, schemas: bool) -> None:
    found = list(groups(chosen(database, kind, schemas=schemas)))
    assert len(found) > 5
    for group in found:
        ours = [(key, value, list(headers)) for key, value, headers in written(group)]
        assert ours == expected(group), group[0]["case"]


@proves("D1")
@pytest.mark.parametrize("schemas", [False, True])
def test_transactions_and_heartbeats_are_byte_for_byte_what_debezium_writes(schemas: bool) -> None:
    seen = 0
    for one in vectors():
        if one["schemas"] is not schemas or one["topic"].rpartition(".")[2] in (*COLUMNS, "message"):
            continue
        told = payload(one)
        if one["topic"].endswith(".transaction"):
            counts = {each["data_collection"]: each["event_count"] for each in told["data_collections"] or ()}
            begins = told["status"] == "BEGIN"
            made = (
                notices.begin(told["id"], told["ts_ms"], schemas=schemas)
                if begins
                else notices.end(told["id"], counts, told["ts_ms"], schemas=schemas)
            )
        else:
            prefix = one["topic"].removeprefix("__debezium-heartbeat.")
            made = notices.heartbeat(prefix, told["ts_ms"], schemas=schemas)
        assert made == (compact(one["key"]).encode(), compact(one["value"]).encode())
        seen += 1
    assert seen > 5


@proves("D1")
@pytest.mark.parametrize("schemas", [False, True])
def test_a_logical_message_is_byte_for_byte_what_debezium_writes(schemas: bool) -> None:
    found = [one for one in vectors() if one["schemas"] is schemas and one["topic"].endswith(".message")]
    assert found
    for one in found:
        told = payload(one)
        fields = one["value"]["schema"]["fields"] if schemas else []
        source_schema = next((dict(each) for each in fields if each["field"] == "source"), {})
        source_schema.pop("field", None)
        made = notices.message(
            "postgresql",
            source_schema,
            told["message"]["prefix"],
            b"hello",
            compact(told["source"]),
            compact(told["transaction"]),
            told["ts_ms"],
            schemas=schemas,
        )
        assert made == (compact(one["key"]).encode(), compact(one["value"]).encode())


KV = SourceTable("public", "kv", COLUMNS["kv"], ("id",))


def flat(options: EnvelopeOptions, op: str, before: Values | None, after: Values | None) -> list[Record]:
    shape = EnvelopeShape(KV, options, {})
    return list(envelope.records(shape, op, before, after, "{}", lambda: "null", Times.at(0).text))


@proves("D1", "cdc.12")
def test_a_flat_row_is_the_row_and_its_delete_a_tombstone() -> None:
    options = EnvelopeOptions("shop", envelope="row")
    assert flat(options, CREATE, None, ("1", '"a"')) == [(b'{"id":1}', b'{"id":1,"v":"a"}', ())]
    assert flat(options, DELETE, ("1", '"a"'), None) == [(b'{"id":1}', None, ())]
    assert [one[:2] for one in flat(options, UPDATE, ("1", '"a"'), ("2", '"a"'))] == [
        (b'{"id":1}', None),
        (b'{"id":2}', b'{"id":2,"v":"a"}'),
    ]
    assert flat(options, TRUNCATE, None, None) == []


@proves("cdc.12")
def test_tombstones_can_be_left_out() -> None:
    (event,) = flat(EnvelopeOptions("shop", tombstones=False), DELETE, ("1", "null"), None)
    assert event[1] is not None and b'"op":"d"' in event[1]


@proves("D1")
def test_a_column_that_is_left_out_is_nowhere_and_a_masked_one_has_one_text() -> None:
    options = EnvelopeOptions("shop", envelope="row", schemas=True, excluded=frozenset({"public.kv.v"}))
    ((_, value, _),) = flat(options, CREATE, None, ("1", '"secret"'))
    assert value is not None and b"secret" not in value and b'"v"' not in value
    masked = EnvelopeOptions("shop", envelope="row", masked=frozenset({"public.kv.v"}))
    assert flat(masked, CREATE, None, ("1", '"secret"'))[0][1] == b'{"id":1,"v":"****"}'


@proves("D1")
@pytest.mark.parametrize("way", ["excluded", "masked"])
def test_the_key_cannot_be_taken_away(way: str) -> None:
    with pytest.raises(UsageError, match=r"public\.kv\.id is part of the primary key"):
        EnvelopeShape(KV, EnvelopeOptions("shop", **{way: frozenset({"public.kv.id"})}), {})


@proves("D1")
def test_names_with_percent_signs_and_quotes_are_written_as_they_are() -> None:
    table = SourceTable("public", "odd", (SourceColumn('a%s"b', INT), SourceColumn("c%", STRING)), ('a%s"b',))
    shape = EnvelopeShape(table, EnvelopeOptions("shop", envelope="row"), {})
    ((key, value, _),) = envelope.records(shape, CREATE, None, ("1", '"%d"'), "", lambda: "null", "")
    assert (key, value) == (b'{"a%s\\"b":1}', b'{"a%s\\"b":1,"c%":"%d"}')
