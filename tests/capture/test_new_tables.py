"""Tables that a capture has not had before: made while it ran or was stopped, or named later. Rows and changes come."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import tidelog
from capture.crashing import Killed, killing
from capture.databases import COLUMNS, PostgresShop, Shop
from capture.histories import Writers
from capture.replaying import replayed, told, transactions
from postgres_server import PostgresServer
from proving import proves
from tidelog.capture import chunking, newcomers
from tidelog.client.cluster import Cluster
from tidelog.control.captures import read_captures

LONG_S = 60.0
KV = "CREATE TABLE kv (id INTEGER PRIMARY KEY, n INTEGER)"
METHODS = pytest.mark.parametrize("method", [None, pytest.param("triggers", marks=pytest.mark.full)])


def table(shop: Shop, bootstrap: str) -> Any:
    with Cluster(bootstrap) as cluster:
        if f"{shop.schema}.kv" not in read_captures(cluster)["shop"].tables:
            return {}
    return replayed(told(bootstrap, shop.topic("kv")), ("id", "n"))


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LONG_S
    while not true():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


@proves("D1", "D3", "cdc.17")
@METHODS
def test_a_table_that_was_made_while_the_capture_was_stopped_has_its_rows_and_its_changes(
    tidelog_broker: tidelog.Broker, shop: Shop, method: str | None
) -> None:
    bootstrap, writer = tidelog_broker.bootstrap, shop.writer()
    shop.capture(bootstrap, method=method).catch_up()
    writer.run(KV, "INSERT INTO kv VALUES (1, 1), (2, 2), (3, 3)", "UPDATE kv SET n = 20 WHERE id = 2")
    shop.capture(bootstrap, method=method).catch_up()
    assert table(shop, bootstrap) == {(1,): (1, 1), (2,): (2, 20), (3,): (3, 3)}
    writer.run("UPDATE kv SET n = 10 WHERE id = 1", "DELETE FROM kv WHERE id = 3")
    shop.capture(bootstrap, method=method).catch_up()
    assert table(shop, bootstrap) == {(1,): (1, 10), (2,): (2, 20)}
    count = len(told(bootstrap, shop.topic("kv")))
    shop.capture(bootstrap, method=method).catch_up()
    assert len(told(bootstrap, shop.topic("kv"))) == count, "it is read once"


@proves("D1", "D3", "cdc.17")
@METHODS
def test_a_table_that_is_named_later_has_its_rows_while_others_write(
    tidelog_broker: tidelog.Broker, shop: Shop, monkeypatch: pytest.MonkeyPatch, method: str | None
) -> None:
    monkeypatch.setattr(chunking, "CHUNK_ROWS", 3)
    bootstrap, writer = tidelog_broker.bootstrap, shop.writer()
    monkeypatch.setattr(shop, "truncate", "UPDATE orders SET price = 0 WHERE id = 3")  # so that rows are left
    with writer.transaction():
        for number in range(20):
            writer.run(f"INSERT INTO orders VALUES ({number}, 'tea', 1, NULL)")
    shop.capture(bootstrap, method=method, tables=f"{shop.schema}.debit").catch_up()
    writer.run("UPDATE orders SET price = 2 WHERE id > 5")
    names = [f"{shop.schema}.debit", f"{shop.schema}.orders"]
    with Writers(shop, 3, count=2), shop.capture(bootstrap, method=method, tables=names):
        until(lambda: _is_read(bootstrap, f"{shop.schema}.orders"))
    shop.capture(bootstrap, method=method, tables=names).catch_up()
    assert replayed(told(bootstrap, shop.topic()), COLUMNS) == shop.rows()


def _is_read(bootstrap: str, name: str) -> bool:
    with Cluster(bootstrap) as cluster:
        found = read_captures(cluster).get("shop")
    return (
        found is not None
        and name in found.tables
        and found.progress is not None
        and found.progress["position"] is not None
        and found.progress["incremental"] is None
    )


@proves("D1", "D3", "cdc.17")
@METHODS
def test_a_table_that_is_made_while_the_capture_runs_is_captured(
    tidelog_broker: tidelog.Broker, shop: Shop, monkeypatch: pytest.MonkeyPatch, method: str | None
) -> None:
    monkeypatch.setattr(newcomers, "EVERY_S", 0.1)
    bootstrap, writer = tidelog_broker.bootstrap, shop.writer()
    with shop.capture(bootstrap, method=method):
        until(lambda: _is_read(bootstrap, f"{shop.schema}.debit"))
        writer.run(KV, "INSERT INTO kv VALUES (1, 1), (2, 2)")
        until(lambda: table(shop, bootstrap) == {(1,): (1, 1), (2,): (2, 2)})
        writer.run("UPDATE kv SET n = 10 WHERE id = 1")
        until(lambda: table(shop, bootstrap) == {(1,): (1, 10), (2,): (2, 2)})


@proves("D1", "D3", "cdc.17")
def test_rows_of_a_transaction_that_was_open_when_its_table_was_published_are_read(
    tidelog_broker: tidelog.Broker, logical_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not tell them: the log has them from before the table was in the publication."""
    monkeypatch.setattr(newcomers, "EVERY_S", 0.1)
    monkeypatch.setattr(chunking, "AGAIN_S", 0.1)
    shop, bootstrap = PostgresShop(logical_server), tidelog_broker.bootstrap
    writer, long = shop.writer(), shop.writer()
    shop.make(writer)
    shop.capture(bootstrap, tables="public.debit").catch_up()
    writer.run("INSERT INTO credit VALUES (1, 1)")
    with long.transaction():
        long.run("INSERT INTO credit VALUES (2, 2)")
        with shop.capture(bootstrap, tables=["public.debit", "public.credit"]):
            until(lambda: _published(shop) == {"debit", "credit"})
            writer.run("UPDATE credit SET n = 10 WHERE id = 1", "INSERT INTO credit VALUES (3, 3)")
            until(lambda: len(told(bootstrap, shop.topic("credit"))) == 2)
            long.run("COMMIT", "BEGIN")
            until(lambda: _is_read(bootstrap, "public.credit"))
    assert replayed(told(bootstrap, shop.topic("credit")), ("id", "n")) == shop.rows("credit", ("id", "n"))
    assert len(shop.rows("credit", ("id", "n"))) == 3
    shop.close()


def _has_position(bootstrap: str) -> bool:
    with Cluster(bootstrap) as cluster:
        progress = read_captures(cluster)["shop"].progress
    return progress is not None and progress["position"] is not None


def _published(shop: Shop) -> set[str]:
    return {name for (name,) in shop.writer().run("SELECT tablename FROM pg_publication_tables")}


@proves("D1", "D3", "cdc.17")
def test_a_table_that_was_made_anew_while_its_capture_was_stopped_has_no_old_rows(
    tidelog_broker: tidelog.Broker, logical_server: PostgresServer
) -> None:
    """The log of PostgreSQL does not tell that a table was dropped, and the new one is in no publication."""
    shop, bootstrap = PostgresShop(logical_server), tidelog_broker.bootstrap
    writer = shop.writer()
    shop.make(writer)
    writer.run("INSERT INTO credit VALUES (1, 1), (2, 2)")
    shop.capture(bootstrap, transactions=True).catch_up()
    writer.run("DROP TABLE credit", "CREATE TABLE credit (id INTEGER PRIMARY KEY, n INTEGER)")
    writer.run("INSERT INTO credit VALUES (2, 20), (3, 3)", "INSERT INTO debit VALUES (1, 1)")
    shop.capture(bootstrap, transactions=True).catch_up()
    changes = told(bootstrap, shop.topic("credit"))
    assert [change["op"] for _, change in changes] == ["r", "r", "t", "r", "r"]
    assert replayed(changes, ("id", "n")) == {(2,): (2, 20), (3,): (3, 3)}
    whole = transactions(bootstrap, [shop.topic(name) for name in ("credit", "debit")])
    assert [len(one) for one in whole if one] == [1], "what the capture tells of itself is in no transaction"
    shop.close()


@proves("D1", "D3", "cdc.8", "cdc.17")
def test_a_table_that_is_made_between_two_attempts_of_a_snapshot_has_all_of_its_rows(
    tidelog_broker: tidelog.Broker, logical_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that wrote to it before it was published, and is open when rows are read again, is not told."""
    monkeypatch.setattr(chunking, "AGAIN_S", 0.1)
    shop, bootstrap = PostgresShop(logical_server), tidelog_broker.bootstrap
    writer, long = shop.writer(), shop.writer()
    shop.make(writer)
    writer.run("INSERT INTO debit VALUES (1, 1)", "INSERT INTO orders VALUES (1, 'tea', 1, NULL)")
    with killing(monkeypatch, shop.stream, "after commit", 2) as seen, suppress(Killed):
        shop.capture(bootstrap).catch_up()
    assert seen() == 2
    writer.run(KV, "INSERT INTO kv VALUES (1, 1)")
    with long.transaction():
        long.run("INSERT INTO kv VALUES (2, 2)")
        with shop.capture(bootstrap):
            until(lambda: _published(shop) == {"debit", "credit", "orders", "kv"})
            until(lambda: _has_position(bootstrap))
            long.run("COMMIT", "BEGIN")
            until(lambda: _is_read(bootstrap, "public.kv"))
        writer.run("INSERT INTO kv VALUES (3, 3)")
    shop.capture(bootstrap).catch_up()
    assert table(shop, bootstrap) == {(1,): (1, 1), (2,): (2, 2), (3,): (3, 3)}
    for name in ("debit", "orders"):
        assert [change["op"] for _, change in told(bootstrap, shop.topic(name))] == ["r"], "once"
    shop.close()
