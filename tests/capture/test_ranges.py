"""Snapshots by ranges of keys, and by chunks beside changes, over three kinds of databases."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import tidelog
from capture.conftest import MARIADB
from capture.databases import COLUMNS, Shop
from capture.histories import Writers
from capture.replaying import check_order, replayed, told
from proving import proves
from tidelog.capture import chunking, running, snapshotting
from tidelog.capture.change import SourceTable
from tidelog.capture.chunking import ask_for_snapshot
from tidelog.capture.snapshotting import Chunk, Range, SnapshotReading
from tidelog.capture.sources.postgres import snapshot as postgres_snapshot
from tidelog.capture.sources.sqlite import source as sqlite_source
from tidelog.client.cluster import Cluster
from tidelog.control.captures import read_captures
from tidelog.parts import running as part_running


@proves("D3", "cdc.17")
def test_a_snapshot_by_ranges_and_changes_are_the_table_while_others_write(
    tidelog_broker: tidelog.Broker, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several threads, each moment of which other connections write; its progress is shown."""
    monkeypatch.setattr(sqlite_source, "ROWS_WORTH_SPLITTING", 10)
    monkeypatch.setattr(postgres_snapshot, "SPLIT_ROWS", 10)
    monkeypatch.setattr(snapshotting, "CHUNK_ROWS", 7)
    monkeypatch.setattr(shop, "truncate", "UPDATE orders SET price = 0 WHERE id = 3")  # so that rows are left
    writer, shown, parts = shop.writer(), list[tuple[int, int]](), list[int]()
    with writer.transaction():
        for number in range(300):
            writer.run(f"INSERT INTO orders VALUES ({number}, 'tea', 1, NULL)")
    chunks = SnapshotReading._chunks

    def counted(self: SnapshotReading, table: SourceTable, ranges: Sequence[Range]) -> Iterator[Chunk]:
        parts.append(len(ranges))
        return chunks(self, table, ranges)

    monkeypatch.setattr(SnapshotReading, "_chunks", counted)
    capture = shop.capture(
        tidelog_broker.bootstrap, tables=f"{shop.schema}.orders", transactions=True, snapshot="initial_only"
    )
    capture._shown = lambda done, total: shown.append((done, total))
    with Writers(shop, 7, count=2):
        capture.run()
    shop.capture(tidelog_broker.bootstrap, tables=f"{shop.schema}.orders", transactions=True).catch_up()
    changes = told(tidelog_broker.bootstrap, shop.topic())
    assert replayed(changes, COLUMNS) == shop.rows()
    check_order(shop, tidelog_broker.bootstrap, shop.topic())
    assert parts[0] > 1, "by ranges"
    assert shown[-1][0] >= sum(change["op"] == "r" for _, change in changes) > 250 and shown[-1][1] > 0


@proves("D3", "cdc.18", "cdc.19", "cdc.21")
@pytest.mark.parametrize("method", [None, pytest.param("triggers", marks=pytest.mark.full)])
@pytest.mark.parametrize("size", [1, 10])
def test_an_incremental_snapshot_and_changes_are_the_table_while_others_write(
    tidelog_broker: tidelog.Broker, shop: Shop, monkeypatch: pytest.MonkeyPatch, size: int, method: str | None
) -> None:
    """No row was read before, so whatever nobody changes is told by the chunks alone."""
    monkeypatch.setattr(chunking, "CHUNK_ROWS", size)
    monkeypatch.setattr(part_running, "COMMANDS_EVERY_S", 0.05)
    monkeypatch.setattr(shop, "truncate", "UPDATE orders SET price = 0 WHERE id = 3")  # so that rows are left
    bootstrap, writer, shop.method = tidelog_broker.bootstrap, shop.writer(), method
    with writer.transaction():
        for number in range(20):
            writer.run(f"INSERT INTO orders VALUES ({number}, 'tea', 1, NULL)")
    shop.capture(bootstrap, snapshot="no_data", transactions=True).catch_up()
    with Cluster(bootstrap) as cluster:

        def left() -> object:
            progress = read_captures(cluster)["shop"].progress
            return progress and progress["incremental"]

        with Writers(shop, 11, count=2), shop.capture(bootstrap, snapshot="no_data", transactions=True):
            ask_for_snapshot(cluster, "shop", [f"{shop.schema}.orders"])
            deadline = time.monotonic() + 60
            while left() is not None or not any(one["op"] == "r" for _, one in told(bootstrap, shop.topic())):
                assert time.monotonic() < deadline, left()
                time.sleep(0.5)
    shop.capture(bootstrap, snapshot="no_data", transactions=True).catch_up()
    assert replayed(told(bootstrap, shop.topic()), COLUMNS) == shop.rows()


@proves("D3", "cdc.14", "cdc.18")
@pytest.mark.parametrize("shop", ["postgres", MARIADB], indirect=True)
def test_a_row_that_is_read_while_its_table_changes_never_hides_a_newer_one(
    tidelog_broker: tidelog.Broker, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column in front of the key is dropped when a chunk has been read, and a row is changed."""
    monkeypatch.setattr(part_running, "COMMANDS_EVERY_S", 0.05)
    bootstrap, writer, name = tidelog_broker.bootstrap, shop.writer(), f"{shop.schema}.kv"
    writer.run("CREATE TABLE kv (a INTEGER, id INTEGER PRIMARY KEY, n INTEGER)")
    writer.run("INSERT INTO kv VALUES (7, 1, 11), (7, 2, 12), (7, 3, 13)")
    capture = shop.capture(bootstrap, tables=name, snapshot="no_data")
    capture.catch_up()
    opened = running.open_source

    def opening(*arguments: Any) -> Any:
        source = opened(*arguments)
        chunk = source.chunk

        def chunked(*of: Any) -> Any:
            rows = chunk(*of)
            monkeypatch.setattr(source, "chunk", chunk)
            writer.run("ALTER TABLE kv DROP COLUMN a", "UPDATE kv SET n = 22 WHERE id = 2")
            return rows

        monkeypatch.setattr(source, "chunk", chunked)
        return source

    monkeypatch.setattr(running, "open_source", opening)
    with Cluster(bootstrap) as cluster:
        ask_for_snapshot(cluster, "shop", [name])
    shop.capture(bootstrap, tables=name, snapshot="no_data").catch_up()
    assert [row[0] for row in writer.run("SELECT n FROM kv ORDER BY id")] == [11, 22, 13]
    assert replayed(told(bootstrap, shop.topic("kv")), ("id", "n")) == shop.rows("kv", ("id", "n"))
