"""Captured tables followed over HTTP: what was captured, from the start or from a place, with expressions."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog
from gateway.serving import Client
from gateway.views.shop import Event, Follower
from proving import proves
from tidelog.capture.running import Capture


class Captured:
    """A table in a SQLite file, and its capture."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.database = sqlite3.connect(folder / "shop.db", isolation_level=None)
        self.database.execute("CREATE TABLE stock (product TEXT PRIMARY KEY, count INTEGER)")
        self.prefix = f"p{time.monotonic_ns()}"
        self.name = f"{self.prefix}.main.stock"
        self._bootstrap, self._url = bootstrap, f"sqlite:///{folder}/shop.db"

    def write(self, *statements: str) -> None:
        """In one transaction, which is captured."""
        self.database.execute("BEGIN")
        for statement in statements:
            self.database.execute(statement)
        self.database.execute("COMMIT")
        self.capture()

    def capture(self, **settings: Any) -> None:
        made: Capture = tidelog.capture(self._url, prefix=self.prefix, bootstrap=self._bootstrap, **settings)
        made.catch_up()

    def rows(self) -> dict[str, int]:
        return dict(self.database.execute("SELECT product, count FROM stock").fetchall())


@pytest.fixture
def stock(broker: tidelog.Broker, tmp_path: Path) -> Iterator[Captured]:
    made = Captured(broker.bootstrap, tmp_path)
    yield made
    made.database.close()


def fold(rows: dict[str, int], events: list[Event]) -> dict[str, int]:
    for event in events:
        if event.event in ("enter", "change"):
            rows[event.data["row"]["product"]] = event.data["row"]["count"]
        elif event.event == "truncated":
            rows.clear()
        else:
            rows.pop(event.data["key"]["product"], None)
    return rows


@proves("D7", "D1")
def test_a_captured_table_is_followed_from_its_start_and_from_a_place(client: Client, stock: Captured) -> None:
    stock.write("INSERT INTO stock VALUES ('tea', 7), ('milk', 1)")
    with Follower(client, stock.name, room="tables", cursor="start") as follower:
        first = follower.take(2)
        assert {event.event for event in first} == {"enter"}
        stock.write("UPDATE stock SET count = 6 WHERE product = 'tea'", "DELETE FROM stock WHERE product = 'milk'")
        stock.write("UPDATE stock SET product = 'green tea'")
        events = follower.take(4)
    assert [event.event for event in events] == ["change", "leave", "leave", "enter"]
    assert fold({}, [*first, *events]) == stock.rows() == {"green tea": 6}
    with Follower(client, stock.name, first[-1].id, room="tables") as again:
        assert fold(fold({}, first), again.take(4)) == stock.rows(), "who comes back misses nothing"


@proves("D7")
def test_rows_of_a_captured_table_that_match_an_expression_are_followed(client: Client, stock: Captured) -> None:
    stock.write("INSERT INTO stock VALUES ('tea', 7), ('milk', 1)")
    with Follower(client, stock.name, room="tables", cursor="start", where="count > 5") as follower:
        stock.write("UPDATE stock SET count = 3 WHERE product = 'tea'")
        stock.write("UPDATE stock SET count = 9 WHERE product = 'milk'")
        events = follower.take(3)
    told = [(event.event, event.data["key"]["product"]) for event in events]
    assert told == [("enter", "tea"), ("leave", "tea"), ("enter", "milk")]


@proves("D7")
def test_a_table_that_was_made_anew_is_told_as_truncated(client: Client, stock: Captured) -> None:
    stock.write("INSERT INTO stock VALUES ('tea', 7)")
    stock.write(
        "CREATE TABLE n (product TEXT PRIMARY KEY, count INTEGER)",
        "DROP TABLE stock",
        "ALTER TABLE n RENAME TO stock",
        "INSERT INTO stock VALUES ('jam', 2)",
    )
    with Follower(client, stock.name, room="tables", cursor="start") as follower:
        rows = fold({}, follower.take(1))
        while rows != stock.rows():
            rows = fold(rows, follower.take(1))
    assert rows == {"jam": 2}


@proves("D7")
def test_what_is_not_a_captured_table_or_its_cursor_is_refused(client: Client, stock: Captured) -> None:
    stock.write("INSERT INTO stock VALUES ('tea', 7)")
    assert stock.name in [one["name"] for one in client("GET", "/tables").json]
    (one,) = [one for one in client("GET", "/tables").json if one["name"] == stock.name]
    assert (one["columns"], one["key"]) == ({"product": "string", "count": "long"}, ["product"])
    gone = client("GET", "/tables/shop.main.other/changes")
    assert gone.status == 404 and "no capture writes a table to topic 'shop.main.other'" in gone.body.decode()
    assert client("GET", f"/tables/{stock.name}/changes?where=nothing+%3D+1").status == 400
    assert client("GET", f"/tables/{stock.name}/changes?cursor=abc").status == 400
