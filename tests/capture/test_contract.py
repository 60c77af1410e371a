"""One contract over three kinds of databases: what a consumer of committed records sees, also after crashes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import tidelog
from capture.crashing import STEPS, Killed, killing
from capture.databases import COLUMNS, Shop
from capture.replaying import check_order, replayed, told, transactions
from proving import proves
from tidelog.capture import running, snapshotting
from tidelog.client.cluster import Cluster
from tidelog.control.captures import read_captures

PAIR = ("debit", "credit")


@proves("D1", "D2", "D3", "cdc.28")
def test_snapshot_and_changes_together_are_the_table(tidelog_broker: tidelog.Broker, shop: Shop) -> None:
    bootstrap, writer = tidelog_broker.bootstrap, shop.writer()
    writer.run("INSERT INTO orders VALUES (1, 'tea', 2, NULL), (2, 'milk', 1, ''), (3, 'jam', 3, 'x')")
    shop.capture(bootstrap, tables=f"{shop.schema}.orders").catch_up()
    read = [change for _, change in told(bootstrap, shop.topic())]
    assert [(one["op"], one["source"]["snapshot"]) for one in read] == [("r", "first"), ("r", "true"), ("r", "last")]
    writer.run(
        "UPDATE orders SET price = 4 WHERE id = 1",
        "UPDATE orders SET id = 20 WHERE id = 2",
        "DELETE FROM orders WHERE id = 3",
    )
    shop.capture(bootstrap, tables=f"{shop.schema}.orders").catch_up()
    changes = told(bootstrap, shop.topic())
    assert [change["op"] for _, change in changes[3:]] == ["u", "d", "c", "d"]
    assert replayed(changes, COLUMNS) == shop.rows()
    with Cluster(bootstrap) as cluster:
        settings = {one.name: one.value for one in tidelog.client.configs.describe(cluster, 2, shop.topic())}
        captured = read_captures(cluster)["shop"].tables[f"{shop.schema}.orders"]
    assert (settings["retention.ms"], settings["cleanup.policy"]) == ("-1", "delete")
    assert captured.topic == shop.topic() and captured.key == ("id",)


def pay(shop: Shop, amount: int, *, end: str = "COMMIT") -> None:
    """From one table to the other, in one transaction of two tables."""
    writer = shop.writer()
    with writer.transaction(end):
        writer.run(
            f"UPDATE debit SET n = n + {amount} WHERE id = 1", f"UPDATE credit SET n = n - {amount} WHERE id = 1"
        )
    writer.close()


@proves("D1", "cdc.1", "cdc.31")
def test_whole_transactions_are_restored_across_topics(tidelog_broker: tidelog.Broker, shop: Shop) -> None:
    bootstrap, writer = tidelog_broker.bootstrap, shop.writer()
    writer.run("INSERT INTO debit VALUES (1, 0)", "INSERT INTO credit VALUES (1, 0)")
    shop.capture(bootstrap, transactions=True).catch_up()
    for amount in range(1, 6):
        pay(shop, amount, end="ROLLBACK" if amount == 3 else "COMMIT")
    with writer.transaction():
        writer.run("UPDATE debit SET n = 1000", "SAVEPOINT s", "DELETE FROM credit", "ROLLBACK TO SAVEPOINT s")
        writer.run("UPDATE credit SET n = -1000")
    shop.capture(bootstrap, transactions=True).catch_up()
    balance, seen = {"debit": 0, "credit": 0}, 0
    for changes in transactions(bootstrap, [shop.topic(name) for name in PAIR]):
        for one in changes:
            balance[one["source"]["table"]] = one["after"]["n"]
        assert balance["debit"] == -balance["credit"], "what is whole is balanced"
        seen += 1
    assert balance["debit"] == 1000 and seen >= (1 if shop.kind == "sqlite" else 5)


def many_writes(shop: Shop) -> None:
    """One transaction that is many of the log; of rows that a snapshot may have told, too."""
    writer = shop.writer()
    with writer.transaction():
        for number in range(10):
            writer.run(f"UPDATE orders SET price = price + 1 WHERE id = {number % 9}")
            writer.run(shop.upsert(number % 3 + 7, "new", number, ""))
        writer.run("DELETE FROM orders WHERE id = 0", "INSERT INTO debit VALUES (1, 1)")
    writer.close()


def few_writes(shop: Shop) -> None:
    """What is one transaction of the log, and touches little of what was written before."""
    writer = shop.writer()
    writer.run("UPDATE orders SET price = 100 WHERE id = 5")
    writer.close()


def turns_of(step: str) -> list[Any]:
    """One turn of each step at every change, the others where all tests are run."""
    first, *others = (1, 3, 4) if "confirm" in step else (4, 2, 6, 9, 10)
    return [pytest.param(step, first), *(pytest.param(step, turn, marks=pytest.mark.full) for turn in others)]


@proves("D1", "D2", "D3", "cdc.33")
@pytest.mark.parametrize(("step", "turn"), [place for step in STEPS for place in turns_of(step)])
def test_killed_at_any_step_each_change_is_seen_once(
    tidelog_broker: tidelog.Broker, shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str, turn: int
) -> None:
    bootstrap = tidelog_broker.bootstrap
    monkeypatch.setattr(snapshotting, "CHUNK_ROWS", 3)
    monkeypatch.setattr(running, "READ_EVENTS", 4)
    monkeypatch.setattr(running, "ROWS", 6)
    writer = shop.writer()
    with writer.transaction():
        for number in range(8):
            writer.run(f"INSERT INTO orders VALUES ({number}, 'tea', 1, NULL)")
    with killing(monkeypatch, shop.stream, step, turn) as seen:
        for write in (many_writes, few_writes, None):
            with suppress(Killed):
                shop.capture(bootstrap, transactions=True).catch_up()
            if write is not None:
                write(shop)
        assert seen() >= turn, "it was killed"
    shop.capture(bootstrap, transactions=True).catch_up()
    changes = told(bootstrap, shop.topic())
    count = check_order(shop, bootstrap, shop.topic()) + check_order(shop, bootstrap, shop.topic("debit"))
    read = [change["after"]["id"] for _, change in changes if change["op"] == "r"]
    assert len(read) == len(set(read)), "no row of the snapshot twice"
    assert replayed(changes, COLUMNS) == shop.rows()
    whole = transactions(bootstrap, [shop.topic(), shop.topic("debit")])
    assert sum(map(len, whole)) == count
