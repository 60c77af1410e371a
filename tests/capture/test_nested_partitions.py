"""Partitions of partitions that come and go with their rows under several writers: the topic becomes the table."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Thread

import psycopg
import pytest

import tidelog
from capture.databases import PostgresShop, Writer
from capture.replaying import replayed, told
from postgres_server import PostgresServer
from proving import proves
from tidelog.capture import chunking, newcomers
from tidelog.capture.sources.postgres.triggers import changelog

LONG_S = 60.0
STEPS, WRITERS = 6, 3
TREE = (
    "CREATE TABLE parts (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (20)",
    "CREATE TABLE high PARTITION OF parts FOR VALUES FROM (20) TO (60) PARTITION BY RANGE (id)",
    "CREATE TABLE high_a PARTITION OF high FOR VALUES FROM (20) TO (40)",
    "CREATE TABLE high_b PARTITION OF high FOR VALUES FROM (40) TO (60)",
    "INSERT INTO parts SELECT g, 0 FROM generate_series(0, 59, 2) g",
)
AWAY = {"high": "parts", "high_a": "high", "high_b": "high", "low": "parts"}
BOUNDS = {"low": (0, 20), "high": (20, 60), "high_a": (20, 40), "high_b": (40, 60)}


@pytest.fixture(params=[pytest.param(None, marks=pytest.mark.slow), pytest.param("triggers", marks=pytest.mark.full)])
def shop(
    logical_server: PostgresServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PostgresShop]:
    monkeypatch.setattr(newcomers, "EVERY_S", 0.1)
    monkeypatch.setattr(chunking, "AGAIN_S", 0.1)
    monkeypatch.setattr(chunking, "CHUNK_ROWS", 3)
    monkeypatch.setattr(changelog, "IN_STEP_EVERY_S", 0.1)
    made = PostgresShop(logical_server)
    made.method = request.param
    made.writer().run(*TREE)
    yield made
    made.close()


def write(shop: PostgresShop, seed: int, over: Event) -> None:
    drawn, writer = random.Random(seed), shop.writer()
    while not over.is_set():
        at = drawn.randrange(60)
        statement = drawn.choice(
            [
                f"INSERT INTO parts VALUES ({at}, 1) ON CONFLICT (id) DO UPDATE SET n = parts.n + 1",
                f"UPDATE parts SET n = n + 1 WHERE id BETWEEN {at} AND {at + 5}",
                f"UPDATE parts SET id = {drawn.randrange(60)} WHERE id = {at}",
                f"DELETE FROM parts WHERE id = {at}",
            ]
        )
        with suppress(psycopg.Error):  # no partition for it now, a key that is there, a deadlock
            writer.run(statement)


def surely(writer: Writer, *statements: str) -> None:
    """A change of the tree may lose a deadlock to the writers."""
    for statement in statements:
        deadline = time.monotonic() + LONG_S
        while True:
            try:
                writer.run(statement)
                break
            except (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
                assert time.monotonic() < deadline


def rearrange(writer: Writer, drawn: random.Random) -> None:
    """Takes a part of the tree out, changes its rows where nobody sees it, and puts it back."""
    name = drawn.choice(sorted(AWAY))
    low, high = BOUNDS[name]
    surely(writer, f"ALTER TABLE {AWAY[name]} DETACH PARTITION {name}")
    surely(
        writer, f"DELETE FROM {name} WHERE id % 3 = {drawn.randrange(3)}", f"UPDATE {name} SET n = -1 WHERE id % 2 = 0"
    )
    surely(writer, f"ALTER TABLE {AWAY[name]} ATTACH PARTITION {name} FOR VALUES FROM ({low}) TO ({high})")


@proves("D1", "cdc.14", "cdc.17", "cdc.18")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full)])
def test_nested_partitions_come_and_go_under_concurrent_writers(
    seed: int, shop: PostgresShop, tidelog_broker: tidelog.Broker
) -> None:
    drawn, over, bootstrap = random.Random(seed), Event(), tidelog_broker.bootstrap
    shop.capture(bootstrap, tables="public.parts").catch_up()
    writers = [Thread(target=write, args=(shop, seed * 10 + number, over)) for number in range(WRITERS)]
    with shop.capture(bootstrap, tables="public.parts"):
        for writer in writers:
            writer.start()
        for _ in range(STEPS):
            rearrange(shop.writer(), drawn)
        over.set()
        for writer in writers:
            writer.join()
        expected, deadline, found = shop.rows("parts", ("id", "n")), time.monotonic() + LONG_S, None
        while found != expected:
            assert time.monotonic() < deadline, (found, expected)
            time.sleep(0.1)
            found = replayed(told(bootstrap, "shop.public.parts"), ("id", "n"))
    shop.capture(bootstrap, tables="public.parts").catch_up()
    assert replayed(told(bootstrap, "shop.public.parts"), ("id", "n")) == expected
