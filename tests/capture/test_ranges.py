"""Snapshots by ranges of keys, in several threads, over three kinds of databases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

import tidelog
from capture.databases import COLUMNS, Shop
from capture.histories import Writers
from capture.replaying import check_order, replayed, told
from proving import proves
from tidelog.capture import snapshotting
from tidelog.capture.change import SourceTable
from tidelog.capture.snapshotting import Chunk, Range, SnapshotReading
from tidelog.capture.sources.postgres import snapshot as postgres_snapshot
from tidelog.capture.sources.sqlite import source as sqlite_source


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
