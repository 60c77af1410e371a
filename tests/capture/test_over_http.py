"""Captures over HTTP, of every kind of database: a table's changes followed, and a view that waits for a position."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest

import tidelog
from capture.captured import envelopes
from capture.databases import Shop, SqliteShop
from capture.test_waiting import own_position, pipes
from gateway.serving import Client, GatewayProcess
from gateway.views.shop import Event, Follower, wait_for
from gateway.views.shop import shop as view_of
from proving import proves
from tidelog.capture import chunking
from tidelog.client.cluster import Cluster
from tidelog.control.captures import read_captures
from tidelog.parts import running


@pytest.fixture(scope="module")
def broker() -> Iterator[tidelog.Broker]:
    with tidelog.Broker() as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: tidelog.Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    running = GatewayProcess(broker.bootstrap, tmp_path_factory.mktemp("gateway") / "log")
    yield running.client
    assert running.stop() == 0, running.said()


def captured(shop: Shop, broker: tidelog.Broker, prefix: str) -> None:
    tidelog.capture(shop.url, prefix=prefix, bootstrap=broker.bootstrap).catch_up()


def rows_of(events: list[Event]) -> dict[int, tuple[str, int]]:
    rows: dict[int, tuple[str, int]] = {}
    for event in events:
        if event.event == "truncated":
            rows.clear()
        elif event.event in ("enter", "change"):
            rows[event.data["row"]["id"]] = (event.data["row"]["item"], event.data["row"]["price"])
        else:
            rows.pop(event.data["key"]["id"], None)
    return rows


@proves("D7", "D1")
def test_a_table_of_any_database_is_followed_and_so_is_its_truncate(
    broker: tidelog.Broker, client: Client, shop: Shop
) -> None:
    prefix, writer = f"followed_{shop.kind}", shop.writer()
    writer.run("INSERT INTO orders VALUES (1, 'tea', 2, NULL), (2, 'jam', 1, NULL)")
    captured(shop, broker, prefix)
    (said,) = [one for one in client("GET", "/tables").json if one["name"] == f"{prefix}.{shop.schema}.orders"]
    assert (said["key"], said["columns"]["price"]) == (["id"], "long")
    with Follower(client, said["name"], room="tables", cursor="start") as follower:
        events = follower.take(2)
        assert rows_of(events) == {1: ("tea", 2), 2: ("jam", 1)}
        with writer.transaction():
            writer.run("UPDATE orders SET price = 5 WHERE id = 1", "UPDATE orders SET id = 7 WHERE id = 2")
            writer.run("INSERT INTO orders VALUES (3, 'rum', 9, NULL)", "DELETE FROM orders WHERE id = 1")
        captured(shop, broker, prefix)
        place = len(events)
        while rows_of(events) != {7: ("jam", 1), 3: ("rum", 9)}:
            events += follower.take(1)
        assert {event.event for event in events[place:]} <= {"enter", "change", "leave"}
        writer.run(shop.truncate, "INSERT INTO orders VALUES (8, 'new', 1, NULL)")
        captured(shop, broker, prefix)
        while rows_of(events) != {8: ("new", 1)}:
            events += follower.take(1)
    with Follower(client, said["name"], events[1].id, room="tables") as again:
        later = events[:2]
        while rows_of(later) != {8: ("new", 1)}:
            later += again.take(1)


@proves("D8", "eo.22")
def test_a_query_over_http_waits_for_its_own_write_by_the_databases_position(
    broker: tidelog.Broker, client: Client, shop: Shop, tmp_path: Path
) -> None:
    writer, name = shop.writer(), f"waits_{shop.kind}"
    shop.capture(broker.bootstrap, name=f"shop_{shop.kind}").catch_up()
    with view_of(broker.bootstrap, tmp_path, name, inputs=(shop.topic(),)) as made:
        with shop.capture(broker.bootstrap, name=f"shop_{shop.kind}"):
            writer.run("INSERT INTO orders VALUES (1, 'tea', 2, NULL)")
            position = quote(own_position(shop, f"shop_{shop.kind}"))
            path = f"/views/{name}?key=tea&after=shop_{shop.kind}@{position}"
            early = client("GET", f"{path}&timeout=0.2")
            assert early.status == 504, early
            writes = Thread(target=pipes, args=(broker.bootstrap, made.view.generations[0], shop, f"shop_{shop.kind}"))
            writes.start()
            got = client("GET", f"{path}&timeout=25")
            writes.join()
        assert (got.status, got.json["row"]["revenue"]) == (200, 2)
    for wrong, said in (
        ("nobody@1", "no capture is called 'nobody'"),
        (f"shop_{shop.kind}@yesterday", "is not a position of a database"),
    ):
        refused = client("GET", f"/views/{name}?key=tea&after={wrong}&timeout=0.2")
        assert refused.status in (400, 404) and said in refused.message, refused


@proves("D3", "D7", "cdc.20")
def test_an_incremental_snapshot_is_asked_for_paused_and_resumed_over_http(
    broker: tidelog.Broker, client: Client, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunking, "CHUNK_ROWS", 1)
    monkeypatch.setattr(running, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(running, "COMMANDS_EVERY_S", 0.02)
    shop = SqliteShop(path)
    writer = shop.writer()
    shop.make(writer)
    for number in range(30):
        writer.run(f"INSERT INTO orders VALUES ({number}, 'tea', {number}, NULL)")
    asked = "/captures/again/snapshot"
    assert client("POST", asked, {"tables": ["main.orders"]}).status == 404
    tidelog.capture(shop.url, prefix="again", bootstrap=broker.bootstrap, snapshot="no_data").catch_up()

    def read() -> set[int]:
        told = envelopes(broker.bootstrap, "again.main.orders")
        return {one["after"]["id"] for one in told if one["op"] == "r"}

    def incremental() -> Any:
        with Cluster(broker.bootstrap) as cluster:
            progress = read_captures(cluster)["again"].progress
        return progress and progress["incremental"]

    with tidelog.capture(shop.url, prefix="again", bootstrap=broker.bootstrap, snapshot="no_data"):
        assert client("POST", asked, {"tables": ["main.orders"]}).json["what"] == "execute"
        wait_for(lambda: bool(read()))
        assert client("POST", asked, {"what": "pause"}).status == 200
        wait_for(lambda: incremental() is None or incremental()["paused"])
        if (rest := incremental()) is not None:
            writer.run("UPDATE orders SET price = -1 WHERE id = 0")
            wait_for(lambda: any(one["op"] == "u" for one in envelopes(broker.bootstrap, "again.main.orders")))
            assert incremental()["after"] == rest["after"], "what is paused does not go on while changes do"
        assert client("POST", asked, {"what": "resume"}).status == 200
        wait_for(lambda: read() == set(range(30)))
    for body, said in (
        ({"tables": ["main.nothing"]}, "main.nothing is not captured by again"),
        ({}, "no tables are named"),
        ({"what": "begin"}, "nothing that a snapshot can be told"),
        ({"tables": "main.orders"}, "not a list of names"),
        ([], "the body is not a snapshot"),
    ):
        refused = client("POST", asked, body)
        assert (refused.status, said in refused.message) == (400, True), refused
    shop.close()
