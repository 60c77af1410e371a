"""Snapshots of a real PostgreSQL: one instant for all readers, ranges that cover, and one that was broken off."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from capture.sources.postgres.following import Base, Folded, key_of, told
from proving import proves
from tidelog.capture.change import Values
from tidelog.capture.sources.postgres.slots import ReplicationSlot
from tidelog.capture.sources.postgres.snapshot import CREATE, KEEP, RECREATE, PostgresSnapshot, bounds, way_of
from tidelog.errors import Disconnected, UsageError

KV = "CREATE TABLE kv (id int PRIMARY KEY, v text)"


def whole(snapshot: PostgresSnapshot, size: int = 100) -> Folded:
    folded = Folded()
    for table in snapshot.tables():
        for rows in snapshot.rows(table, None, None, size):
            folded.read(table, rows)
    return folded


@proves("cdc.8")
def test_rows_of_a_snapshot_and_the_stream_after_it_are_the_table(base: Base) -> None:
    base.run(KV, "INSERT INTO kv SELECT i, 'old' FROM generate_series(1, 50) i")
    source = base.source()
    source.prepare()
    snapshot = source.snapshot()
    base.run(
        "UPDATE kv SET v = 'new' WHERE id <= 10", "DELETE FROM kv WHERE id > 40", "INSERT INTO kv VALUES (99, 'n')"
    )
    folded = whole(snapshot, 7)
    assert folded.rows("kv") == [[n, "old"] for n in range(1, 51)]  # as of the slot, whatever came since
    snapshot.close()
    folded.apply(base.drain(base.stream(source, snapshot.position)))
    assert folded.rows("kv") == [list(row) for row in base.ask("SELECT id, v FROM kv ORDER BY id")]


@proves("cdc.8", "cdc.19")
def test_all_readers_see_one_instant_and_ranges_cover_the_table(base: Base) -> None:
    base.run("CREATE TABLE t (a text, b numeric(6,1), v int, PRIMARY KEY (b, a))")
    base.run(
        "INSERT INTO t SELECT 'é' || i % 97, (i / 97)::numeric / 2, i FROM generate_series(1, 12000) i", "ANALYZE t"
    )
    source = base.source()
    source.prepare()
    snapshot = source.snapshot()
    (table,) = snapshot.tables()
    assert table.key == ("b", "a")
    ranges = snapshot.split(table, 4)
    assert len(ranges) == 4
    base.run("DELETE FROM t WHERE v % 2 = 0")
    read: list[list[Sequence[Values]]] = [[] for _ in ranges]

    def reader(at: int, after: Values | None, to: Values | None) -> None:
        read[at] = list(snapshot.rows(table, after, to, 500))

    threads = [threading.Thread(target=reader, args=(at, *ends)) for at, ends in enumerate(ranges)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    snapshot.close()
    rows = [row for part in read for chunk in part for row in chunk]
    assert sorted(int(row[2]) for row in rows) == list(range(1, 12001))
    assert all(read)


@proves("cdc.8")
def test_a_snapshot_that_was_broken_off_leaves_no_row_that_is_not_there(base: Base) -> None:
    base.run(KV, "INSERT INTO kv SELECT i, 'a' FROM generate_series(1, 20) i")
    source = base.source()
    source.prepare()
    first = source.snapshot()
    (table,) = first.tables()
    folded = Folded()
    folded.read(table, next(iter(first.rows(table, None, None, 10))))  # ten rows are out, and then a crash
    first.close()
    base.run("DELETE FROM kv WHERE id <= 5", "UPDATE kv SET v = 'b' WHERE id = 6", "INSERT INTO kv VALUES (30, 'c')")
    base.run("DELETE FROM kv WHERE id = 7", "INSERT INTO kv VALUES (7, 'again')")
    second = source.snapshot()
    assert second.position == first.position
    for rows in second.rows(table, None, None, 100):
        folded.read(table, rows)
    second.close()
    base.run("UPDATE kv SET v = 'last' WHERE id = 30")
    folded.apply(base.drain(base.stream(source, second.position)))
    assert folded.rows("kv") == [list(row) for row in base.ask("SELECT id, v FROM kv ORDER BY id")]


@proves("cdc.8")
def test_a_snapshot_waits_for_a_transaction_that_is_open_and_sees_what_it_wrote(base: Base) -> None:
    base.run(KV)
    source = base.source()
    source.prepare()
    writer = base.connection()
    writer.execute("BEGIN")
    writer.execute("INSERT INTO kv VALUES (1, 'late')")
    found: list[PostgresSnapshot] = []
    thread = threading.Thread(target=lambda: found.append(source.snapshot()))
    thread.start()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender' AND wait_event_type = 'Lock'"
    while base.ask(waiting) == [(0,)]:
        assert thread.is_alive()
    writer.execute("COMMIT")
    thread.join()
    assert whole(found[0]).rows("kv") == [[1, "late"]]
    found[0].close()


@proves("cdc.8")
def test_how_a_snapshot_begins_depends_on_the_slot() -> None:
    slot = ReplicationSlot("s", "pgoutput", "shop", None, "reserved", 90, 100)
    assert [way_of(None), way_of(slot), way_of(slot._replace(wal_status="lost"))] == [CREATE, KEEP, RECREATE]


@proves("cdc.8")
def test_a_reader_without_the_exporting_connection_is_told_so(base: Base) -> None:
    base.run(KV, "INSERT INTO kv VALUES (1, 'a')")
    source = base.source()
    source.prepare()
    snapshot = source.snapshot()
    base.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND backend_type = 'walsender'"
    )
    base.run("SELECT pg_sleep(0.1)")
    with pytest.raises(Disconnected, match="snapshot"):
        whole(snapshot)
    snapshot.close()


@proves("cdc.19")
@pytest.mark.parametrize(
    ("declared", "values"),
    [
        ("text", "'a' || chr(i % 26 + 97) || repeat('É', i % 3) || i || '\\'"),
        ("numeric", "(i * 37 % 101)::numeric / 8 - 5"),
        ("timestamptz", "'2024-01-01'::timestamptz + i * '7 hours 1 microsecond'::interval"),
        ("uuid", "md5(i::text)::uuid"),
        ("bytea", "decode(md5(i::text), 'hex')"),
        ("date", "'0001-01-05 BC'::date + i"),
        ("float8", "i / 7.0 - 3"),
        ("bool", "i % 2 = 0"),
        ("timestamp(3)", "'1969-12-31 23:59:59'::timestamp + i * '41 ms'::interval"),
    ],
)
def test_chunks_by_any_kind_of_key_leave_no_row_out(base: Base, declared: str, values: str) -> None:
    base.run(f"CREATE TABLE t (n int, k {declared}, PRIMARY KEY (k, n))")
    base.run(f"INSERT INTO t SELECT i, {values} FROM generate_series(1, 60) i")
    source = base.source()
    source.prepare()
    snapshot = source.snapshot()
    (table,) = snapshot.tables()
    snapshot.close()
    last = source.last_key(table)
    base.run("INSERT INTO t SELECT 100, k FROM t ORDER BY k DESC LIMIT 1")  # beyond the last key
    seen: list[str] = []
    after: Values | None = None
    while rows := source.chunk(table, after, last, 7):
        seen += [row[0] for row in rows]
        after = key_of(table, rows[-1])
    assert seen == [str(row[0]) for row in base.ask("SELECT n FROM t WHERE n <= 60 ORDER BY k, n")]


@proves("cdc.22")
def test_heartbeats_beside_a_chunk_do_not_mix_with_it(base: Base) -> None:
    base.run(KV, "INSERT INTO kv SELECT i, repeat('x', 500) FROM generate_series(1, 2000) i")
    source = base.source()
    source.prepare()
    (table,) = source.tables()
    done = threading.Event()

    def beat() -> None:
        while not done.is_set():
            source.heartbeat()

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        read = [source.chunk(table, None, None, 2000) for _ in range(5)]
    finally:
        done.set()
        beating.join()
    assert [len(rows) for rows in read] == [2000] * 5


@proves("cdc.19")
def test_a_table_without_a_key_has_no_chunks(base: Base) -> None:
    base.run("CREATE TABLE t (a int)", "CREATE TABLE i (k interval PRIMARY KEY)")
    source = base.source()
    source.prepare()
    snapshot = source.snapshot()
    for table in snapshot.tables():
        assert snapshot.split(table, 8) == [(None, None)]
        with pytest.raises(UsageError, match="no key by which"):
            source.chunk(table, None, None, 10)
    snapshot.close()


@proves("cdc.17")
def test_lists_of_columns_and_filters_of_rows_hold_for_the_snapshot_too(base: Base) -> None:
    base.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text, secret text)", "INSERT INTO t VALUES (1, 'a', 's'), (2, 'b', 's')"
    )
    source = base.source()
    source.prepare()
    base.run("ALTER PUBLICATION tidelog_t SET TABLE t (id, v) WHERE (id > 1)")
    source.prepare()
    snapshot = source.snapshot()
    assert whole(snapshot).rows("t") == [[2, "b"]]
    snapshot.close()
    stream = base.stream(source, snapshot.position)
    base.run("INSERT INTO t VALUES (3, 'c', 's'), (0, 'd', 's')")
    assert told(base.drain(stream)) == [("t", "c", None, {"id": 3, "v": "c"})]


@proves("cdc.8")
def test_rows_of_children_are_told_by_the_children(base: Base) -> None:
    base.run("CREATE TABLE parent (id int PRIMARY KEY)", "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)")
    base.run("INSERT INTO parent VALUES (1)", "INSERT INTO child VALUES (2)")
    source = base.source()
    source.prepare()
    snapshot = source.snapshot()
    folded = whole(snapshot)
    snapshot.close()
    assert (folded.rows("parent"), folded.rows("child")) == ([[1]], [[2]])


@proves("cdc.8")
def test_bounds_are_in_order_and_differ() -> None:
    keys: list[Values] = [(str(n),) for n in range(10)]
    assert bounds(keys, 4) == [("2",), ("5",), ("7",)]
    assert bounds([("1",)] * 10, 4) == [("1",)]
    assert bounds([], 4) == []
