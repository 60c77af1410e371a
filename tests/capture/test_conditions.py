"""Incremental snapshots of some rows: `additional-conditions` of a signal, in Debezium's form."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tidelog
from capture.captured import envelopes
from capture.databases import Shop
from proving import proves
from tidelog.capture import chunking, incremental
from tidelog.capture.change import SourceColumn, SourceTable
from tidelog.capture.conditions import keeps
from tidelog.capture.incremental import Incremental, from_fields, to_fields, told
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.errors import UsageError

TABLES = ("main.kv", "main.other")


def signal(filter: object, *tables: str, **more: Any) -> dict[str, Any]:
    names = list(tables) or ["main.kv"]
    condition = {"data-collection": names[0], "filter": filter}
    data = {"data-collections": names, "type": "incremental", "additional-conditions": [condition], **more}
    return {"type": "execute-snapshot", "data": data, "id": "s"}


def column(name: str, kind: str, named: str = "", **parameters: str) -> SourceColumn:
    return SourceColumn(name, {"type": kind, "optional": True, "name": named, "parameters": parameters})


TABLE = SourceTable(
    "main",
    "kv",
    (
        *(column("id", "int64"), column("item", "string"), column("secret", "string"), column("sold", "boolean")),
        column("price", "bytes", "org.apache.kafka.connect.data.Decimal", scale="2"),
        column("day", "int32", "io.debezium.time.Date"),
        column("at", "int64", "io.debezium.time.MicroTimestamp"),
    ),
    ("id",),
)
ROW = ("7", '"tea"', '"s"', "true", '"AeI="', "19723", "1704067200000000")  # 4.82 on 2024-01-01


@proves("D3", "cdc.20")
@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("id = 7 and item in ('tea', 'rum')", True),
        ("item <> 'tea' or not sold", False),
        ("price > 4.81 and price < 4.83", True),
        ("day = '2024-01-01' and at >= '2024-01-01T00:00:00Z'", True),
        ("day > '2024-01-01'", False),
        ("item like 'te%' and id is not null", True),
    ],
)
def test_a_condition_is_asked_of_values_as_a_view_has_them(text: str, is_told: bool) -> None:
    assert keeps(TABLE, text, ())(ROW) is is_told
    assert keeps(TABLE, text, ())(("null",) * len(ROW)) is False, "what nobody knows is not true"


@proves("D3")
def test_what_is_no_condition_is_refused_and_so_is_a_column_that_nobody_is_to_see() -> None:
    for text in ("item = 'tea'; DROP TABLE kv", "pg_sleep(10) is null", "nothing = 1", "secret = 's'", ""):
        with pytest.raises(UsageError, match=r"the condition for main\.kv is not one"):
            keeps(TABLE, text, {"main.kv.secret"})
    for wrong in (
        signal(7),
        signal("id = 1", **{"additional-conditions": [{"data-collection": "main.other", "filter": "id = 1"}]}),
        signal("id = 1", **{"additional-conditions": ["id = 1"]}),
        signal("id = 1", **{"additional-condition": "id = 1"}),
        signal("id = 1", **{"surrogate-key": "item"}),
    ):
        with pytest.raises(ValueError, match=r"is not a condition|is not taken"):
            told(None, wrong, TABLES)


@proves("D3", "cdc.20")
def test_a_condition_is_kept_until_its_table_is_read_and_does_not_narrow_another_wish() -> None:
    state = told(None, signal("id = 1", "main.kv", "main.other"), TABLES)
    assert state is not None and dict(state.conditions) == {"main.kv": "id = 1"}
    assert from_fields(to_fields(state)) == state
    assert told(state, signal("id = 1"), TABLES) == state, "the same again is nothing new"
    for other in (signal("id = 2"), signal("id = 1", **{"additional-conditions": []})):
        with pytest.raises(ValueError, match=r"main\.kv is being read whole, or by another condition"):
            told(state, other, TABLES)
    begun = Incremental("s", TABLES, ("5",), ("9",), conditions={"main.kv": "id = 1"})
    whole = incremental.with_tables(begun, ["main.kv"], "new tables")
    assert (whole.conditions, whole.after, whole.to) == ({}, None, None), "a table that is made anew is read whole"


@proves("D3", "cdc.18", "cdc.20")
def test_a_signal_has_rows_read_for_which_its_condition_is_true(
    shop: Shop, tidelog_broker: tidelog.Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(chunking, "CHUNK_ROWS", 2)
    shop.capture(tidelog_broker.bootstrap, snapshot="no_data").catch_up()
    for number in range(9):
        shop.writer().run(f"INSERT INTO orders VALUES ({number}, '{'tea' if number % 3 else 'rum'}', {number}, NULL)")
    table = f"{shop.schema}.orders"
    with Cluster(tidelog_broker.bootstrap) as cluster, Producer(cluster) as producer:
        for text in ("price > (SELECT 1)", "item = 'tea' and price >= 4"):
            producer.send("shop.signals", json.dumps(signal(text, table)).encode(), key=b"shop", partition=0)
    shop.capture(tidelog_broker.bootstrap, snapshot="no_data").catch_up()
    read = [one["after"]["id"] for one in envelopes(tidelog_broker.bootstrap, shop.topic()) if one["op"] == "r"]
    assert read == [4, 5, 7, 8]
    assert f"the condition for {table} is not one" in caplog.text


@proves("D3", "cdc.20")
@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_a_table_whose_condition_names_what_is_hidden_by_now_is_left_out_and_the_next_is_read(
    shop: Shop, tidelog_broker: tidelog.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    shop.capture(tidelog_broker.bootstrap, snapshot="no_data").catch_up()
    shop.writer().run("INSERT INTO orders VALUES (1, 'tea', 1, 'x')", "INSERT INTO debit VALUES (7, 7)")
    orders, debit = f"{shop.schema}.orders", f"{shop.schema}.debit"

    def tell(*signals: dict[str, Any]) -> None:
        with Cluster(tidelog_broker.bootstrap) as cluster, Producer(cluster) as producer:
            for one in signals:
                producer.send("shop.signals", json.dumps(one).encode(), key=b"shop", partition=0)

    tell(signal("note = 'x'", orders, debit), {"type": "pause-snapshot"})
    shop.capture(tidelog_broker.bootstrap, snapshot="no_data").catch_up()
    tell({"type": "resume-snapshot"})
    shop.capture(tidelog_broker.bootstrap, snapshot="no_data", exclude=f"{orders}.note").catch_up()
    told = {table: envelopes(tidelog_broker.bootstrap, shop.topic(table)) for table in ("orders", "debit")}
    assert [(name, one["after"]["id"]) for name in told for one in told[name] if one["op"] == "r"] == [("debit", 7)]
    assert f"the condition for {orders} is not one" in caplog.text
