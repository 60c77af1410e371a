"""Chunks between watermarks while writers write, as the core reads them; and another server that takes over."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from capture.sources.mysql.mariadb_server import MariaDbServer
from capture.sources.mysql.reading import Database, key_of, read_all, rows_of, snapshot_rows
from proving import proves
from tidelog.capture.change import Event, Message, RowChange, Values
from tidelog.capture.sources.mysql.source import MySqlSource
from tidelog.capture.sources.mysql.stream import BinlogStream
from tidelog.errors import SourceLost

pytestmark = pytest.mark.external

CHUNK = 7


class Topic:
    """What a reader of the topic has: the last event of a key counts."""

    def __init__(self) -> None:
        self.rows: dict[Values, Values] = {}

    def apply(self, row: RowChange) -> set[Values]:
        """The keys that it touched: both of them where the key changed."""
        touched = set()
        for values, kept in ((row.before, False), (row.after, True)):
            if values is not None:
                key = key_of(row.table, values)
                touched.add(key)
                self.rows.pop(key, None)
                if kept:
                    self.rows[key] = values
        return touched


def read_chunk(
    source: MySqlSource, stream: BinlogStream, topic: Topic, after: Values | None, last: Values
) -> Values | None:
    """Rows of a chunk count unless the log has their key between the watermarks. Gives the last key of the chunk."""
    (table,) = source.tables()
    source.watermark("low")
    chunk = source.chunk(table, after, last, CHUNK)
    source.watermark("high")
    window: set[Values] | None = None
    for event in _until_high(stream):
        if isinstance(event, Message):
            window = set() if event.content == b"low" else window
        elif isinstance(event, RowChange):
            touched = topic.apply(event)
            if window is not None:
                window |= touched
    assert window is not None
    for row in chunk:
        if key_of(table, row) not in window:
            topic.rows[key_of(table, row)] = row
    return key_of(table, chunk[-1]) if chunk else None


def _until_high(stream: BinlogStream) -> list[Event]:
    """One by one: nothing behind the high watermark is read."""
    events: list[Event] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        came = stream.read(1, 0.5)
        events += came
        if came and isinstance(came[0], Message) and came[0].content == b"high":
            return events
    raise AssertionError("the high watermark did not come")


def write(db: Database, number: int, ended: threading.Event) -> None:
    connection = db.server.connect(db.name)
    turn = 0
    with closing(connection), connection.cursor() as cursor:
        while not ended.is_set():
            turn += 1
            time.sleep(0.002)  # so that the stream keeps up on a machine that has much to do
            key = turn * 13 % 100
            cursor.execute("UPDATE t SET v = v + 1 WHERE a = %s AND b = %s", (key, number))
            cursor.execute("DELETE FROM t WHERE a = %s AND b = %s", (key + 1, number))
            cursor.execute("INSERT IGNORE INTO t VALUES (%s, %s, %s)", (key + 2, number, turn))
            cursor.execute("UPDATE IGNORE t SET a = a + 50 WHERE a = %s AND b = %s", (key + 3, number))


@proves("D3", "cdc.18", "cdc.19", "cdc.21", "cdc.22")
@pytest.mark.story
def test_chunks_under_writers_never_override_what_is_newer(db: Database) -> None:
    db.run("CREATE TABLE t (a int, b int, v int, PRIMARY KEY (b, a))")
    db.run("INSERT INTO t SELECT seq DIV 2, seq MOD 2, 0 FROM seq_0_to_199")
    source, topic, ended = db.source("t"), Topic(), threading.Event()
    writers = [threading.Thread(target=write, args=(db, number, ended)) for number in range(2)]
    with closing(source.stream(db.here())) as stream:
        for writer in writers:
            writer.start()
        try:
            last = source.last_key(source.tables()[0])
            assert last is not None
            after = read_chunk(source, stream, topic, None, last)
            while after is not None:
                after = read_chunk(source, stream, topic, after, last)
        finally:
            ended.set()
            for writer in writers:
                writer.join()
        for row in rows_of(read_all(stream)):
            topic.apply(row)
    assert topic.rows == snapshot_rows(source, "t")


@proves("D1", "cdc.23")
def test_another_server_that_has_the_gtids_goes_on_and_one_that_lacks_them_is_lost(
    own_db: Database, tmp_path: Path
) -> None:
    second = MariaDbServer(tmp_path / "second", "--server-id=2", "--log-slave-updates", "--log-bin=other").start()
    try:
        own_db.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        start = own_db.here()
        own_db.run("INSERT INTO t VALUES (2)")
        with closing(own_db.source("t").stream(start)) as stream:
            last = read_all(stream)[-1].position  # type: ignore[union-attr]
        empty = Database(second, "elsewhere")
        with closing(empty), closing(empty.source("own.t").stream(last)) as stream, pytest.raises(SourceLost):
            read_all(stream)
        second.run("RESET MASTER")  # what it did by itself would be in the way
        first = f"master_host='127.0.0.1', master_port={own_db.server.port}, master_user='root'"
        second.run(f"CHANGE MASTER TO {first}, master_use_gtid=slave_pos")
        second.run("START SLAVE")
        own_db.run("INSERT INTO t VALUES (3)")
        second.run(f"SELECT MASTER_GTID_WAIT('{own_db.here()['gtid']}', 60)")
        own_db.server.kill()
        second.run("STOP SLAVE", "INSERT INTO own.t VALUES (4)")
        other = Database.__new__(Database)
        other.server, other.name, other._sources = second, "own", []
        with closing(other.source("t").stream(last)) as stream:
            events = read_all(stream)
        assert [row.after for row in rows_of(events)] == [("3",), ("4",)]
        assert events[-1].position["file"].startswith("other.")  # type: ignore[union-attr]
    finally:
        second.kill()
