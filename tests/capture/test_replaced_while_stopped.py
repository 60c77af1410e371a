"""Tables whose name changes hands while their capture is stopped: at its next start the topic becomes equal to the one
that has the name, whatever was there before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tidelog
from capture.databases import Shop
from capture.replaying import replayed, told
from proving import proves
from tidelog.capture import chunking
from tidelog.capture.sources.postgres.source import PostgresSource
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer

COLUMNS = ("id", "n")
NEW = "CREATE TABLE {} (id INTEGER PRIMARY KEY, n INTEGER)"
Rows = dict[tuple[int], tuple[int, int]]


@pytest.fixture(params=[None, pytest.param("triggers", marks=pytest.mark.full)])
def caught_up(
    request: pytest.FixtureRequest, shop: Shop, tidelog_broker: tidelog.Broker, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """A capture that has told two rows of `credit` and one of `debit`, and is stopped; and runs it again."""
    monkeypatch.setattr(chunking, "AGAIN_S", 0.1)
    shop.writer().run("INSERT INTO credit VALUES (1, 1), (2, 2)", "INSERT INTO debit VALUES (7, 7)")

    def run() -> None:
        shop.capture(tidelog_broker.bootstrap, method=request.param).catch_up()

    run()
    shop.writer().run("UPDATE credit SET n = 10 WHERE id = 1")  # is told when it runs again, of a table that is gone
    return run


def renamed(shop: Shop, old: str, new: str) -> str:
    return f"RENAME TABLE {old} TO {new}" if shop.kind == "mariadb" else f"ALTER TABLE {old} RENAME TO {new}"


WAYS: dict[str, Callable[[Shop], Sequence[str]]] = {
    "dropped and made": lambda _: [
        "DROP TABLE credit",
        NEW.format("credit"),
        "INSERT INTO credit VALUES (2, 20), (5, 50)",
    ],
    "dropped and made, empty": lambda _: ["DROP TABLE credit", NEW.format("credit")],
    "made twice": lambda _: [
        *("DROP TABLE credit", NEW.format("credit"), "INSERT INTO credit VALUES (3, 3)"),
        *("DROP TABLE credit", NEW.format("credit"), "INSERT INTO credit VALUES (4, 4)", "DELETE FROM credit"),
        "INSERT INTO credit VALUES (6, 6)",
    ],
    "renamed away": lambda shop: [
        renamed(shop, "credit", "credit_old"),
        *("DELETE FROM credit_old WHERE id = 1", NEW.format("credit"), "INSERT INTO credit VALUES (5, 50)"),
    ],
    "exchanged": lambda shop: [
        *(renamed(shop, "credit", "third"), renamed(shop, "debit", "credit"), renamed(shop, "third", "debit")),
        *("INSERT INTO credit VALUES (8, 8)", "INSERT INTO debit VALUES (9, 9)"),
    ],
    "filled before it has the name": lambda shop: [
        *(NEW.format("credit_new"), "INSERT INTO credit_new VALUES (5, 50)", "DROP TABLE credit"),
        renamed(shop, "credit_new", "credit"),
    ],
    "another key": lambda _: [
        "DROP TABLE credit",
        "CREATE TABLE credit (id INTEGER, n INTEGER PRIMARY KEY)",
        "INSERT INTO credit VALUES (5, 50)",
    ],
}


@proves("D1", "D2", "cdc.14", "cdc.17")
@pytest.mark.parametrize("way", list(WAYS))
def test_a_table_that_took_a_name_while_the_capture_was_stopped_is_told_in_place_of_the_one_before(
    way: str, shop: Shop, tidelog_broker: tidelog.Broker, caught_up: Any
) -> None:
    shop.writer().run(*WAYS[way](shop))
    caught_up()

    def shown(name: str) -> list[tuple[int, int]]:
        key = ("n",) if (way, name) == ("another key", "credit") else ("id",)
        return sorted(replayed(told(tidelog_broker.bootstrap, shop.topic(name)), COLUMNS, key).values())

    for name in ("credit", "debit"):
        assert shown(name) == sorted(shop.rows(name, COLUMNS).values()), name
    shop.writer().run("INSERT INTO credit VALUES (20, 20)", "DELETE FROM credit WHERE id <> 20")
    caught_up()
    assert shown("credit") == [(20, 20)]


def signal(bootstrap: str, kind: str, **data: Any) -> None:
    with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        text = json.dumps({"type": f"{kind}-snapshot", "data": data})
        producer.send("shop.signals", text.encode(), key=b"shop", partition=0)


@proves("D1", "D3", "cdc.14", "cdc.17")
def test_a_table_that_is_made_anew_in_the_middle_of_its_incremental_snapshot_has_no_old_rows(
    shop: Shop, tidelog_broker: tidelog.Broker, caught_up: Any
) -> None:
    made_anew_while_it_is_read(shop, tidelog_broker.bootstrap, caught_up)


@proves("D1", "D3", "cdc.17")
@pytest.mark.parametrize("shop", ["postgres"], indirect=True)
def test_it_has_none_either_where_others_write_just_when_it_is_seen(
    shop: Shop, tidelog_broker: tidelog.Broker, caught_up: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is not at the end of the log then, and --once has to wait for it."""
    written = PostgresSource._written

    def behind_others(source: PostgresSource) -> Any:
        source.heartbeat()
        return written(source)

    monkeypatch.setattr(PostgresSource, "_written", behind_others)
    made_anew_while_it_is_read(shop, tidelog_broker.bootstrap, caught_up)


def made_anew_while_it_is_read(shop: Shop, bootstrap: str, caught_up: Any) -> None:
    signal(bootstrap, "execute", **{"data-collections": [f"{shop.schema}.credit"]})
    signal(bootstrap, "pause")
    caught_up()
    shop.writer().run("UPDATE credit SET n = 11 WHERE id = 1", *WAYS["dropped and made"](shop))
    signal(bootstrap, "resume")
    caught_up()
    found = replayed(told(bootstrap, shop.topic("credit")), COLUMNS, ("id",))
    assert found == shop.rows("credit", COLUMNS) == {(2,): (2, 20), (5,): (5, 50)}
