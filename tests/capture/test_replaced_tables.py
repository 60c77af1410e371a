"""Tables whose name changes hands while they are captured: renamed, exchanged, dropped and made anew, with another key.

A topic tells the table that has its name. So what the topic has of the one before is taken away, and all rows come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest

import tidelog
from capture.databases import PostgresShop, Shop, Writer
from capture.replaying import replayed, told
from postgres_server import PostgresServer
from proving import proves
from tidelog.capture import chunking, newcomers
from tidelog.capture.sources.mysql.triggers import changelog as mariadb_triggers
from tidelog.capture.sources.postgres.triggers import changelog as postgres_triggers
from tidelog.client.cluster import Cluster
from tidelog.control.captures import read_captures

LONG_S = 60.0
COLUMNS = ("id", "n")
NEW = "CREATE TABLE {} (id INTEGER PRIMARY KEY, n INTEGER)"


@pytest.fixture(params=[None, pytest.param("triggers", marks=pytest.mark.full)])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(newcomers, "EVERY_S", 0.1)
    monkeypatch.setattr(chunking, "AGAIN_S", 0.1)
    monkeypatch.setattr(postgres_triggers, "IN_STEP_EVERY_S", 0.1)
    monkeypatch.setattr(mariadb_triggers, "IN_STEP_EVERY_S", 0.1)
    return request.param


def replay(shop: Shop, bootstrap: str, name: str, key: Sequence[str] = ("id",)) -> Any:
    with Cluster(bootstrap) as cluster:
        found = read_captures(cluster).get("shop")
    if found is None or f"{shop.schema}.{name}" not in found.tables:
        return None
    if found.progress is None or found.progress["position"] is None or found.progress["incremental"] is not None:
        return None
    return replayed(told(bootstrap, shop.topic(name)), COLUMNS, key)


def until(shop: Shop, bootstrap: str, name: str, expected: Any, key: Sequence[str] = ("id",)) -> None:
    deadline, found = time.monotonic() + LONG_S, None
    while (found := replay(shop, bootstrap, name, key)) != expected:
        assert time.monotonic() < deadline, (name, found)
        time.sleep(0.05)


def renamed(shop: Shop, old: str, new: str) -> str:
    return f"RENAME TABLE {old} TO {new}" if shop.kind == "mariadb" else f"ALTER TABLE {old} RENAME TO {new}"


@pytest.fixture
def running(tidelog_broker: tidelog.Broker, shop: Shop, method: str | None) -> Any:
    """A capture that has told two rows of `credit`; asks what the topic of a table makes."""
    shop.writer().run("INSERT INTO credit VALUES (1, 1)")
    bootstrap = tidelog_broker.bootstrap
    with shop.capture(bootstrap, method=method):
        shop.writer().run("INSERT INTO debit VALUES (1, 1)")
        until(shop, bootstrap, "debit", {(1,): (1, 1)})
        shop.writer().run("INSERT INTO credit VALUES (2, 2)")
        until(shop, bootstrap, "credit", {(1,): (1, 1), (2,): (2, 2)})

        def shows(name: str, expected: Any, key: Sequence[str] = ("id",)) -> None:
            until(shop, bootstrap, name, expected, key)

        yield shows


Shows = Callable[..., None]


@proves("D1", "D2", "cdc.14", "cdc.17")
def test_a_table_that_gets_another_name_is_whole_under_it(shop: Shop, running: Shows) -> None:
    shop.writer().run(renamed(shop, "credit", "savings"), "INSERT INTO savings VALUES (3, 3)")
    running("savings", {(1,): (1, 1), (2,): (2, 2), (3,): (3, 3)})
    shop.writer().run("UPDATE savings SET n = 10 WHERE id = 1", "DELETE FROM savings WHERE id = 2")
    running("savings", {(1,): (1, 10), (3,): (3, 3)})


@proves("D1", "D2", "cdc.14", "cdc.17")
def test_a_table_that_takes_the_name_of_another_is_told_in_its_place(shop: Shop, running: Shows) -> None:
    """As tools do that change a large table without a lock."""
    shop.writer().run(NEW.format("credit_new"), "INSERT INTO credit_new VALUES (1, 100), (3, 300)")
    running("credit_new", {(1,): (1, 100), (3,): (3, 300)})
    shop.writer().run(renamed(shop, "credit", "credit_old"), renamed(shop, "credit_new", "credit"))
    shop.writer().run("INSERT INTO credit VALUES (4, 400)")
    running("credit", {(1,): (1, 100), (3,): (3, 300), (4,): (4, 400)})
    shop.writer().run("DELETE FROM credit WHERE id = 1")
    running("credit", {(3,): (3, 300), (4,): (4, 400)})


@proves("D1", "D2", "cdc.14", "cdc.17")
def test_a_table_that_was_dropped_and_is_made_later_has_no_old_rows(shop: Shop, running: Shows) -> None:
    shop.writer().run("DROP TABLE credit", "INSERT INTO debit VALUES (2, 2)")
    running("debit", {(1,): (1, 1), (2,): (2, 2)})
    time.sleep(0.5)  # so that it is noticed, where nothing tells it
    shop.writer().run(NEW.format("credit"), "INSERT INTO credit VALUES (2, 20), (5, 50)")
    running("credit", {(2,): (2, 20), (5,): (5, 50)})
    shop.writer().run("UPDATE credit SET n = 21 WHERE id = 2")
    running("credit", {(2,): (2, 21), (5,): (5, 50)})


@proves("D1", "D2", "cdc.14", "cdc.17")
def test_a_name_that_was_given_away_and_is_taken_later_has_no_old_rows(shop: Shop, running: Shows) -> None:
    shop.writer().run(renamed(shop, "credit", "savings"))
    running("savings", {(1,): (1, 1), (2,): (2, 2)})
    time.sleep(0.5)  # so that it is noticed once more, where nothing tells it
    shop.writer().run(NEW.format("credit"), "INSERT INTO credit VALUES (2, 20), (5, 50)")
    running("credit", {(2,): (2, 20), (5,): (5, 50)})


def rekeyed(shop: Shop) -> str:
    gone = "PRIMARY KEY" if shop.kind == "mariadb" else "CONSTRAINT credit_pkey"
    return f"ALTER TABLE credit DROP {gone}, ADD PRIMARY KEY (n)"


@proves("D1", "D2", "cdc.14", "cdc.17")
@pytest.mark.parametrize("shop", ["postgres", pytest.param("mariadb", marks=pytest.mark.external)], indirect=True)
def test_a_table_that_gets_another_key_is_told_anew_while_its_capture_runs(
    shop: Shop, running: Shows, method: str | None
) -> None:
    """By triggers also where nobody writes to it then; a log tells of the key with the next row."""
    shop.writer().run("UPDATE credit SET n = n * 10", rekeyed(shop))
    if method is None:
        shop.writer().run("INSERT INTO credit VALUES (3, 30)", "DELETE FROM credit WHERE n = 30")
    running("credit", {(10,): (1, 10), (20,): (2, 20)}, ("n",))
    shop.writer().run("UPDATE credit SET n = 11 WHERE n = 10", "DELETE FROM credit WHERE n = 20")
    running("credit", {(11,): (1, 11)}, ("n",))


@proves("D1", "cdc.14")
@pytest.mark.parametrize("shop", ["postgres", pytest.param("mariadb", marks=pytest.mark.external)], indirect=True)
def test_a_table_that_gets_another_key_is_told_anew_under_it(shop: Shop, tidelog_broker: tidelog.Broker) -> None:
    bootstrap, name = tidelog_broker.bootstrap, shop.topic("credit")
    shop.writer().run("INSERT INTO credit VALUES (1, 10), (2, 20)")
    shop.capture(bootstrap).catch_up()
    shop.writer().run(rekeyed(shop), "INSERT INTO credit VALUES (3, 30)")
    shop.capture(bootstrap).catch_up()
    shop.writer().run("DELETE FROM credit WHERE n = 20")
    shop.capture(bootstrap).catch_up()
    changes = told(bootstrap, name)
    assert "t" in [change["op"] for _, change in changes]
    latest = {record.key: change["after"] for record, change in changes if record.key is not None}
    assert {key for key, row in latest.items() if row is not None} >= {b'{"n":10}', b'{"n":30}'}
    assert replayed(changes, COLUMNS, ("n",)) == {(10,): (1, 10), (30,): (3, 30)}


@proves("D1", "cdc.9", "cdc.17")
@pytest.mark.slow
def test_a_table_that_loses_its_key_while_it_is_captured_does_not_stop_its_writers(
    tidelog_broker: tidelog.Broker, logical_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL refuses updates of a table whose old rows nobody could tell, as long as they are published."""
    monkeypatch.setattr(newcomers, "EVERY_S", 0.1)
    monkeypatch.setattr(chunking, "AGAIN_S", 0.1)
    shop, bootstrap = PostgresShop(logical_server), tidelog_broker.bootstrap
    writer = shop.writer()
    shop.make(writer)
    writer.run("INSERT INTO credit VALUES (1, 1), (2, 2)")
    with shop.capture(bootstrap):
        until(shop, bootstrap, "credit", {(1,): (1, 1), (2,): (2, 2)})
        writer.run("ALTER TABLE credit DROP CONSTRAINT credit_pkey")
        deadline = time.monotonic() + LONG_S
        while not is_taken(writer, "UPDATE credit SET n = 10 WHERE id = 1"):
            assert time.monotonic() < deadline, "its writers are refused"
            time.sleep(0.05)
        writer.run("DELETE FROM credit WHERE id = 2", "INSERT INTO credit VALUES (3, 3)")
        writer.run("ALTER TABLE credit ADD PRIMARY KEY (id)")
        until(shop, bootstrap, "credit", {(1,): (1, 10), (3,): (3, 3)})
        writer.run("UPDATE credit SET n = 30 WHERE id = 3")
        until(shop, bootstrap, "credit", {(1,): (1, 10), (3,): (3, 30)})
    shop.close()


def is_taken(writer: Writer, statement: str) -> bool:
    try:
        writer.run(statement)
    except psycopg.errors.ObjectNotInPrerequisiteState:
        return False
    return True
