"""The stream on a real MariaDB: histories, restarts at any point, and what it must refuse."""

from __future__ import annotations

import contextlib
import time
from contextlib import closing
from itertools import count
from typing import Any

import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.sources.mysql.mariadb_server import MariaDbServer
from capture.sources.mysql.reading import (
    Database,
    fold,
    named,
    read_all,
    rows_of,
    snapshot_rows,
    transactions,
)
from proving import proves
from tidelog.capture.change import Begin, Commit, Event, Idle, Message, RowChange, SchemaChange
from tidelog.capture.sources.mysql import binlog
from tidelog.errors import Disconnected, SourceLost
from tries import tries

pytestmark = pytest.mark.external

KEYS = st.integers(0, 5)
STEPS = st.one_of(
    st.tuples(st.just("INSERT INTO t VALUES ({key}, '{word}')"), KEYS, KEYS),
    st.tuples(st.just("UPDATE t SET v = '{word}' WHERE id = {key}"), KEYS, KEYS),
    st.tuples(st.just("UPDATE t SET id = {other} WHERE id = {key}"), KEYS, KEYS),
    st.tuples(st.just("DELETE FROM t WHERE id = {key}"), KEYS, KEYS),
    st.tuples(st.just("REPLACE INTO t VALUES ({key}, '{word}')"), KEYS, KEYS),
    st.tuples(
        st.sampled_from(["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s", "TRUNCATE t"]), KEYS, KEYS
    ),
)
HISTORIES = st.lists(st.tuples(st.integers(0, 1), STEPS), min_size=5, max_size=30)
names = count(1)


def play(db: Database, history: list[tuple[int, tuple[str, int, int]]]) -> None:
    """By two writers, each with its own keys, so that none waits for the other. What fails had no effect."""
    writers = [db.server.connect(db.name) for _ in range(2)]
    for writer in writers:
        writer.cursor().execute("SET SESSION tx_isolation = 'READ-COMMITTED', innodb_lock_wait_timeout = 1")
    for number, (writer_number, (statement, key, other)) in enumerate(history):
        if statement.startswith("TRUNCATE"):  # it waits for all who use the table
            for writer in writers:
                writer.cursor().execute("COMMIT")
        base = 100 * writer_number
        words = {"key": base + key, "other": base + other, "word": f"w{number}"}
        with contextlib.suppress(pymysql.err.Error):
            writers[writer_number].cursor().execute(statement.format(**words))
    for writer in writers:
        writer.cursor().execute("COMMIT")
        writer.close()


def read_with_kills(db: Database, start: Any, limits: list[int]) -> list[Event]:
    """As the core does: a piece is read, the stream is killed, and the next begins behind the last transaction."""
    source, position, whole = db.source("t"), start, []
    for limit in limits:
        stream = source.stream(position)
        piece = [event for event in stream.read(limit, 0.05) if isinstance(event, Begin | RowChange | Commit)]
        stream.close()
        ends = [place for place, event in enumerate(piece) if isinstance(event, Commit)]
        if ends:
            whole += piece[: ends[-1] + 1]
            position = piece[ends[-1]].position  # type: ignore[union-attr]
    stream = source.stream(position)
    whole += read_all(stream)
    stream.close()
    return whole


@proves("D1", "cdc.23")
@pytest.mark.story
@tries(8)  # each is a table of its own on a server
@given(history=HISTORIES, limits=st.lists(st.integers(1, 12), max_size=4))
def test_events_fold_to_the_table_wherever_the_stream_was_killed(
    server: MariaDbServer, history: list[Any], limits: list[int]
) -> None:
    with closing(Database(server, f"history{next(names)}")) as db:
        db.run("CREATE TABLE t (id int PRIMARY KEY, v varchar(20))")
        start = db.here()
        play(db, history)
        events = read_with_kills(db, start, limits)
        assert fold(events) == snapshot_rows(db.source("t"), "t")
    numbers = [int(begin.id.rsplit("-", 1)[1]) for begin in events if isinstance(begin, Begin)]
    assert numbers == sorted(set(numbers))
    assert len(transactions(events)) == len(numbers)


@proves("D1")
def test_a_large_transaction_comes_in_pieces_and_the_same_way_again(db: Database) -> None:
    db.run("CREATE TABLE t (id int PRIMARY KEY, v varchar(100))")
    start = db.here()
    db.run("INSERT INTO t SELECT seq, REPEAT('x', 50) FROM seq_1_to_5000")
    stream = db.source("t").stream(start)
    largest, events = 0, []
    while not (events and isinstance(events[-1], Commit)):
        events += stream.read(50, 1.0)
        largest = max(largest, len(stream._out))
    assert largest < 500  # rows of one event of the binlog
    assert [row.after[0] for row in rows_of(events) if row.after] == [str(number) for number in range(1, 5001)]
    stream.close()
    again = db.source("t").stream(start)
    assert [row[1:] for row in rows_of(read_all(again))] == [row[1:] for row in rows_of(events)]


@proves("D1", "cdc.16")
def test_what_was_rolled_back_does_not_come(db: Database) -> None:
    db.run("CREATE TABLE t (id int PRIMARY KEY)")
    start = db.here()
    db.run("BEGIN", "INSERT INTO t VALUES (1)", "ROLLBACK")
    db.run("BEGIN", "INSERT INTO t VALUES (2)", "SAVEPOINT s", "INSERT INTO t VALUES (3)", "ROLLBACK TO s", "COMMIT")
    events = read_all(db.source("t").stream(start))
    assert [row.after for row in rows_of(events)] == [("2",)]


@proves("D1", "cdc.23", "cdc.24")
def test_a_killed_server_goes_on_where_it_was_and_table_ids_begin_anew(own_db: Database) -> None:
    own_db.run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (v varchar(9), id int PRIMARY KEY)")
    start = own_db.here()
    source = own_db.source("*")
    stream = source.stream(start)
    own_db.run("INSERT INTO a VALUES (1)", "INSERT INTO b VALUES ('x', 1)")
    before = read_all(stream)
    own_db.server.kill()
    with pytest.raises(Disconnected):
        for _ in range(100):
            stream.read(10, 0.1)
    own_db.server.start()
    own_db.run("INSERT INTO b VALUES ('y', 2)", "INSERT INTO a VALUES (2)")
    anew = own_db.source("*")
    after = read_all(anew.stream(before[-1].position))  # type: ignore[union-attr]
    told = [(row.table.name, named(row.table, row.after)) for row in rows_of([*before, *after])]
    assert told == [("a", {"id": 1}), ("b", {"v": "x", "id": 1}), ("b", {"v": "y", "id": 2}), ("a", {"id": 2})]


@proves("D1", "cdc.23", "cdc.24", "cdc.25")
def test_compressed_rows_are_read_and_nameless_or_purged_ones_are_lost(own_db: Database) -> None:
    own_db.run("CREATE TABLE t (id int PRIMARY KEY, v varchar(2000))")
    start = own_db.here()
    own_db.run("SET GLOBAL log_bin_compress = ON")
    own_db.run("INSERT INTO t VALUES (1, REPEAT('z', 2000))", "UPDATE t SET v = REPEAT('y', 1500)")
    own_db.run("ALTER TABLE t COMMENT 'so long that a query event of it is compressed, too: " + "x" * 500 + "'")
    with closing(own_db.source("t").stream(start)) as stream:
        events = read_all(stream)
    assert [row.after[1] for row in rows_of(events) if row.after] == [f'"{"z" * 2000}"', f'"{"y" * 1500}"']
    assert any(isinstance(event, SchemaChange) for event in events)

    nameless = own_db.here()
    own_db.run("SET GLOBAL binlog_row_metadata = 'NO_LOG'")
    own_db.run("DELETE FROM t")
    with closing(own_db.source("t").stream(nameless)) as stream, pytest.raises(SourceLost, match="metadata = 'FULL'"):
        read_all(stream)

    own_db.run("FLUSH BINARY LOGS")
    ((last, *_),) = own_db.run("SHOW MASTER STATUS")
    own_db.run("FLUSH BINARY LOGS")
    deadline = time.monotonic() + 30
    while own_db.run("SHOW BINARY LOGS")[0][0] != last:  # a file that a reader just left may still count as read
        assert time.monotonic() < deadline
        own_db.run(f"PURGE BINARY LOGS TO '{last}'")
    stream = own_db.source("t").stream(start)
    with closing(stream), pytest.raises(SourceLost, match=r"take a new snapshot.*binlog_expire_logs_seconds"):
        read_all(stream)


@proves("D1", "cdc.25")
@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ("binlog_format = 'STATEMENT'", "binlog_format = 'ROW'"),
        ("binlog_row_image = 'MINIMAL'", "binlog_row_image = 'FULL'"),
    ],
)
def test_changes_without_whole_rows_end_the_stream(db: Database, setting: str, remedy: str) -> None:
    db.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    start = db.here()
    db.run(f"SET SESSION {setting}", "UPDATE t SET v = 2")
    with pytest.raises(SourceLost, match=remedy):
        read_all(db.source("t").stream(start))


@proves("D1", "cdc.25")
def test_a_statement_of_another_database_does_not_matter(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    other = Database(db.server, f"other{next(names)}")
    other.run("CREATE TABLE u (id int PRIMARY KEY)")
    db.run("CREATE TABLE t (id int PRIMARY KEY)")
    start = db.here()
    other.run("SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO u VALUES (7)")
    db.run("INSERT INTO t VALUES (1)")
    assert [row.after for row in rows_of(read_all(db.source("t").stream(start)))] == [("1",)]
    assert "as a statement" in caplog.text
    other.close()


@proves("D1")
def test_a_prepared_xa_transaction_ends_the_stream(db: Database) -> None:
    db.run("CREATE TABLE t (id int PRIMARY KEY)")
    start = db.here()
    db.run("XA START 'x'", "INSERT INTO t VALUES (1)", "XA END 'x'", "XA PREPARE 'x'")
    try:
        with pytest.raises(SourceLost, match="XA"):
            read_all(db.source("t").stream(start))
    finally:
        db.run("XA COMMIT 'x'")


@proves("D1")
def test_rows_that_were_rolled_back_behind_those_of_myisam_never_count(db: Database) -> None:
    db.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE m (id int PRIMARY KEY) ENGINE = MyISAM")
    start = db.here()
    db.run("BEGIN", "INSERT INTO t VALUES (1)", "INSERT INTO m VALUES (1)", "ROLLBACK")
    try:
        told = [(row.table.name, row.after) for row in rows_of(read_all(db.source("*").stream(start)))]
    except SourceLost as lost:
        assert "rolled back" in str(lost)
    else:
        assert told == [("m", ("1",))]


@proves("D1", "cdc.24")
def test_tables_are_told_as_they_were_however_often_they_changed_since(db: Database) -> None:
    db.run("CREATE TABLE t (id int PRIMARY KEY, a int, u uuid)")
    start = db.here()
    db.run("INSERT INTO t VALUES (1, 10, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')")
    db.run("ALTER TABLE t ADD b varchar(5) DEFAULT 'x' AFTER id", "INSERT INTO t VALUES (2, 'b', 20, NULL)")
    db.run("ALTER TABLE t DROP a, CHANGE b a varchar(9)", "INSERT INTO t VALUES (3, 'c', NULL)")
    db.run("RENAME TABLE t TO s", "INSERT INTO s VALUES (4, 'd', NULL)", "ALTER TABLE s RENAME TO t", "DROP TABLE t")
    events = read_all(db.source("t", "s").stream(start))
    assert [(row.table.name, named(row.table, row.after)) for row in rows_of(events)] == [
        # Its column is gone, so nothing tells that it was more than sixteen bytes.
        ("t", {"id": 1, "a": 10, "u": "oO68mZwLTvi7bWu5vTgKEQ=="}),
        ("t", {"id": 2, "b": "b", "a": 20, "u": None}),
        ("t", {"id": 3, "a": "c", "u": None}),
        ("s", {"id": 4, "a": "d", "u": None}),
    ]
    changes = [event for event in events if isinstance(event, SchemaChange)]
    words = [(change.ddl or "").split()[0] for change in changes]
    assert words == ["ALTER", "ALTER", "RENAME", "RENAME", "ALTER", "ALTER", "DROP"]


@proves("D1")
def test_a_truncate_is_a_row_of_its_own_and_a_table_of_a_select_has_its_rows(db: Database) -> None:
    db.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    start = db.here()
    db.run("TRUNCATE t", "INSERT INTO t VALUES (3)", "CREATE TABLE s (PRIMARY KEY (id)) SELECT * FROM t")
    db.run("CREATE TEMPORARY TABLE tmp (id int)", "INSERT INTO tmp VALUES (1)", "DROP TEMPORARY TABLE tmp")
    events = read_all(db.source("*").stream(start))
    assert [(row.op, row.table.name, row.after) for row in rows_of(events)] == [
        ("t", "t", None),
        ("c", "t", ("3",)),
        ("c", "s", ("3",)),
    ]
    assert len([event for event in events if isinstance(event, SchemaChange)]) == 1


@proves("D3", "cdc.18", "cdc.22")
def test_a_change_between_two_watermarks_comes_between_them(db: Database) -> None:
    db.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 1)")
    start = db.here()
    source = db.source("t")
    stream = source.stream(start)
    db.run("UPDATE t SET v = 2 WHERE id = 1")
    source.watermark("low")
    (table,) = source.tables()
    assert source.chunk(table, None, None, 10) == [("1", "2"), ("2", "1")]
    db.run("UPDATE t SET v = 3 WHERE id = 2")
    source.watermark("high")
    db.run("UPDATE t SET v = 4 WHERE id = 2")
    told = [event for event in read_all(stream) if isinstance(event, Message | RowChange)]
    assert [event.content if isinstance(event, Message) else event.after for event in told] == [
        ("1", "2"),
        b"low",
        ("2", "3"),
        b"high",
        ("2", "4"),
    ]
    assert source.lag()[:2] == (0, 0.0)


@proves("D1", "cdc.5")
def test_transactions_of_other_tables_move_the_position_on(db: Database) -> None:
    db.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int PRIMARY KEY)")
    start = db.here()
    source = db.source("t")
    with closing(source.stream(start)) as stream:
        db.run("INSERT INTO other VALUES (1)", "INSERT INTO other VALUES (2)")
        told: list[Event] = []
        while not told:
            told = list(stream.read(10, 1.0))
    (idle,) = told
    assert isinstance(idle, Idle) and idle.at_us > 1_600_000_000_000_000
    assert idle.position["gtid"] == db.here()["gtid"] != start["gtid"]
    db.run("INSERT INTO t VALUES (1)")
    with closing(source.stream(idle.position)) as stream:
        assert [row.after for row in rows_of(read_all(stream))] == [("1",)]


@proves("D1", "cdc.25")
@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (binlog.PARTIAL_UPDATE, b"", "binlog_row_value_options"),
        (binlog.TRANSACTION_PAYLOAD, b"", "binlog_transaction_compression"),
        (binlog.INCIDENT, b"", "incident"),
        (binlog.XA_PREPARE, b"\0", "XA"),
        (99, b"", "type 99"),
    ],
)
def test_an_event_that_cannot_be_told_rightly_ends_the_stream(db: Database, kind: int, body: bytes, words: str) -> None:
    db.run("CREATE TABLE t (id int PRIMARY KEY)")
    with closing(db.source("t").stream(db.here())) as stream:
        read_all(stream)
        stream._checksum = False
        with pytest.raises(SourceLost, match=words):
            stream._take(binlog.HEADER.pack(1, kind, 1, binlog.HEADER.size + len(body), 100, 0) + body)


@proves("D1")
def test_a_lag_is_told_in_bytes_and_only_while_there_is_one(db: Database) -> None:
    db.run("CREATE TABLE t (id int PRIMARY KEY, v longtext)")
    source = db.source("t")
    stream = source.stream(db.here())
    db.run("INSERT INTO t VALUES (1, REPEAT('x', 100000))")
    behind = source.lag()
    assert behind.bytes is not None and behind.bytes > 100000
    read_all(stream)
    assert source.lag().bytes == 0
