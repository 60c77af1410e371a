"""SQLite's triggers: what every kind of write is told as, and that all of them together tell the table."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.captured import applied
from proving import proves
from tidelog.capture.change import Commit, Event, Message, RowChange, SchemaChange
from tidelog.capture.sources.sqlite.source import SQLiteSource, connect
from tidelog.capture.sources.sqlite.values import texts

KV = "CREATE TABLE kv (id INTEGER PRIMARY KEY, u TEXT UNIQUE, v)"


def source_of(path: Path, *tables: str) -> SQLiteSource:
    source = connect(f"sqlite:///{path}", "shop", tables or ("*",))
    source.prepare()
    return source


def told(source: SQLiteSource, *, position: int = 0) -> list[tuple[str, object, object]]:
    """Every row after a position."""
    log = source._log()
    stream = source.stream({"log": log, "id": position})
    return [(one.op, one.before, one.after) for one in stream.read(10_000, 0) if isinstance(one, RowChange)]


@proves("D2", "cdc.29")
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT INTO kv VALUES (3, 'c', 1)", [("c", None, ("3", '"c"', "1"))]),
        ("INSERT OR REPLACE INTO kv VALUES (1, 'a', 9)", [("u", ("1", '"a"', "10"), ("1", '"a"', "9"))]),
        (
            "INSERT OR REPLACE INTO kv VALUES (3, 'a', 9)",
            [("d", ("1", '"a"', "10"), None), ("c", None, ("3", '"a"', "9"))],
        ),
        (
            "REPLACE INTO kv VALUES (2, 'a', 9)",
            [("d", ("1", '"a"', "10"), None), ("u", ("2", '"b"', "20"), ("2", '"a"', "9"))],
        ),
        ("INSERT OR IGNORE INTO kv VALUES (1, 'z', 9)", []),
        (
            "INSERT INTO kv VALUES (3, 'b', 9) ON CONFLICT (u) DO UPDATE SET v = 21",
            [("u", ("2", '"b"', "20"), ("2", '"b"', "21"))],
        ),
        ("INSERT INTO kv VALUES (3, 'b', 9) ON CONFLICT DO NOTHING", []),
        (
            "UPDATE OR REPLACE kv SET u = 'b' WHERE id = 1",
            [("d", ("2", '"b"', "20"), None), ("u", ("1", '"a"', "10"), ("1", '"b"', "10"))],
        ),
        ("UPDATE OR IGNORE kv SET u = 'b' WHERE id = 1", []),
        ("UPDATE kv SET id = 30 WHERE id = 1", [("u", ("1", '"a"', "10"), ("30", '"a"', "10"))]),
        ("DELETE FROM kv", [("d", ("1", '"a"', "10"), None), ("d", ("2", '"b"', "20"), None)]),
        ("UPDATE kv SET v = 1 WHERE id = 99", []),
    ],
)
@pytest.mark.parametrize("recursive", [False, True])
def test_each_kind_of_write_is_told_as_what_it_did(
    database: sqlite3.Connection, path: Path, statement: str, expected: list[object], recursive: bool
) -> None:
    database.execute(KV)
    database.execute("INSERT INTO kv VALUES (1, 'a', 10), (2, 'b', 20)")
    source = source_of(path)
    database.execute(f"PRAGMA recursive_triggers = {int(recursive)}")
    database.execute(statement)
    found = told(source)
    if recursive and "REPLACE" in statement and "UPDATE" not in statement:  # delete triggers tell it then
        assert [one[0] for one in found][-1] == "c" and {one[0] for one in found[:-1]} == {"d"}
    else:
        assert found == expected
    source.close()


@proves("D2", "cdc.29")
def test_a_write_that_fails_or_is_rolled_back_is_not_told(database: sqlite3.Connection, path: Path) -> None:
    database.execute(KV)
    database.execute("INSERT INTO kv VALUES (1, 'a', 10)")
    source = source_of(path)
    with pytest.raises(sqlite3.IntegrityError):
        database.execute("INSERT INTO kv VALUES (2, 'a', 1)")
    database.execute("BEGIN")
    database.execute("INSERT INTO kv VALUES (3, 'c', 1)")
    database.execute("ROLLBACK")
    database.execute("INSERT INTO kv VALUES (4, 'd', 1)")
    assert told(source) == [("c", None, ("4", '"d"', "1"))]
    source.close()


@proves("D2", "cdc.29")
def test_a_trigger_of_the_users_own_that_writes_to_the_same_table_hides_nothing(
    database: sqlite3.Connection, path: Path
) -> None:
    database.execute(KV)
    database.execute(
        "CREATE TRIGGER users AFTER INSERT ON kv WHEN NEW.id < 100 BEGIN"
        " INSERT INTO kv VALUES (NEW.id + 100, 'copy' || NEW.id, NEW.v); END"
    )
    database.execute("INSERT INTO kv VALUES (1, 'a', 10)")
    source = source_of(path)
    state = {"kv": {(str(row[0]),): texts(row) for row in database.execute("SELECT * FROM kv")}}
    database.execute("REPLACE INTO kv VALUES (2, 'a', 11)")
    applied(state, source.stream({"log": source._log(), "id": 0}).read(1000, 0))
    assert state["kv"] == {(str(row[0]),): texts(row) for row in database.execute("SELECT * FROM kv")}
    source.close()


@proves("D2", "cdc.30")
def test_cascades_of_foreign_keys_are_told(database: sqlite3.Connection, path: Path) -> None:
    database.executescript(
        "CREATE TABLE parent (id INTEGER PRIMARY KEY);"
        "CREATE TABLE child (id INTEGER PRIMARY KEY, p REFERENCES parent ON DELETE CASCADE);"
        "INSERT INTO parent VALUES (1); INSERT INTO child VALUES (7, 1);"
    )
    source = source_of(path)
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("DELETE FROM parent")
    assert sorted(told(source)) == [("d", ("1",), None), ("d", ("7", "1"), None)]
    source.close()


@proves("D2", "cdc.30")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (5e-324, "5e-324"),
        (float("inf"), '"Infinity"'),
        (2**63 - 1, "9223372036854775807"),
        (-(2**63), "-9223372036854775808"),
        (b"\x00\xff", '"AP8="'),
        (b"", '""'),
        ('a\x00b\n"\\é😀', '"a\\u0000b\\n\\"\\\\é😀"'),
        (None, "null"),
    ],
)
def test_values_survive_to_the_bit(database: sqlite3.Connection, path: Path, value: object, text: str) -> None:
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    source = source_of(path)
    database.execute("INSERT INTO t VALUES (1, ?)", (value,))
    assert told(source) == [("c", None, ("1", text))]
    snapshot = source.snapshot()
    assert list(snapshot.rows(snapshot.tables()[0], None, None, 10)) == [[("1", text)]]
    snapshot.close()
    source.close()


@proves("D2", "cdc.30")
def test_a_table_without_rowid_is_told_as_any_other(database: sqlite3.Connection, path: Path) -> None:
    database.execute("CREATE TABLE w (a TEXT, b INT, v, PRIMARY KEY (b, a)) WITHOUT ROWID")
    source = source_of(path)
    for statement in (
        "INSERT INTO w VALUES ('x', 1, 1)",
        "REPLACE INTO w VALUES ('x', 1, 2)",
        "INSERT OR IGNORE INTO w VALUES ('x', 1, 3)",
        "UPDATE w SET a = 'y'",
        "DELETE FROM w",
    ):
        database.execute(statement)
    assert told(source) == [
        ("c", None, ('"x"', "1", "1")),
        ("u", ('"x"', "1", "1"), ('"x"', "1", "2")),
        ("u", ('"x"', "1", "2"), ('"y"', "1", "2")),
        ("d", ('"y"', "1", "2"), None),
    ]
    assert source.tables()[0].key == ("b", "a")
    source.close()


@proves("D2", "cdc.30")
def test_a_column_that_is_added_comes_with_its_values(database: sqlite3.Connection, path: Path) -> None:
    """Also those that were written before the triggers knew the column."""
    database.execute(KV)
    database.execute("INSERT INTO kv VALUES (1, 'a', 10), (2, 'b', 20)")
    source = source_of(path)
    stream = source.stream({"log": source._log(), "id": 0})
    assert stream.read(100, 0) == []
    database.execute("ALTER TABLE kv ADD COLUMN more TEXT DEFAULT 'd'")
    database.execute("UPDATE kv SET more = 'new' WHERE id = 2")
    events = [one for one in stream.read(100, 1) if isinstance(one, RowChange | SchemaChange)]
    change, last = events[-2:]
    assert isinstance(change, SchemaChange) and change.table is not None and isinstance(last, RowChange)
    assert [column.name for column in change.table.columns] == ["id", "u", "v", "more"]
    assert last.table is change.table and last.after == ("2", '"b"', "20", '"new"')
    database.execute("INSERT INTO kv VALUES (3, 'c', 30, 'm')")
    (row,) = [one for one in stream.read(100, 1) if isinstance(one, RowChange)]
    assert row.after == ("3", '"c"', "30", '"m"')
    source.close()


@proves("D2", "cdc.30")
def test_a_table_that_was_made_anew_is_told_from_its_beginning(database: sqlite3.Connection, path: Path) -> None:
    database.execute(KV)
    database.execute("INSERT INTO kv VALUES (1, 'a', 10), (2, 'b', 20)")
    source = source_of(path)
    stream = source.stream({"log": source._log(), "id": 0})
    database.executescript(
        "BEGIN; CREATE TABLE new (id INTEGER PRIMARY KEY, v TEXT); INSERT INTO new SELECT id, u FROM kv WHERE id > 1;"
        "DROP TABLE kv; ALTER TABLE new RENAME TO kv; COMMIT;"
    )
    rows = [one for one in stream.read(100, 1) if isinstance(one, RowChange)]
    assert [(one.op, one.after) for one in rows] == [("t", None), ("c", ("2", '"b"'))]
    source.close()


@proves("D2", "cdc.17")
def test_a_table_that_comes_later_is_told_with_the_rows_that_it_has(database: sqlite3.Connection, path: Path) -> None:
    database.execute(KV)
    source = source_of(path, "main.*")
    stream = source.stream({"log": source._log(), "id": 0})
    database.executescript("CREATE TABLE later (id INTEGER PRIMARY KEY); INSERT INTO later VALUES (1), (2);")
    rows = [one for one in stream.read(100, 1) if isinstance(one, RowChange)]
    assert [(one.table.name, one.op, one.after) for one in rows] == [("later", "c", ("1",)), ("later", "c", ("2",))]
    source.close()


@proves("D2", "cdc.31")
def test_changes_are_deleted_when_they_are_confirmed_and_not_before(database: sqlite3.Connection, path: Path) -> None:
    database.execute(KV)
    source = source_of(path)
    stream = source.stream({"log": source._log(), "id": 0})
    database.execute("INSERT INTO kv VALUES (1, 'a', 10), (2, 'b', 20)")
    first = stream.read(100, 1)
    database.execute("INSERT INTO kv VALUES (3, 'c', 30)")
    stream.prune()
    assert database.execute("SELECT count(*) FROM _tidelog_shop_changes").fetchone() == (3,)
    assert isinstance(first[-1], Commit)
    stream.confirm(first[-1].position)
    stream.prune()
    assert database.execute("SELECT id FROM _tidelog_shop_changes").fetchall() == [(3,)]
    source.close()


@proves("D2")
def test_what_was_installed_is_removed_without_a_trace(database: sqlite3.Connection, path: Path) -> None:
    database.execute(KV)
    before = database.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()
    source = source_of(path)
    assert len(database.execute("SELECT name FROM sqlite_master").fetchall()) > len(before)
    assert any("trigger" in line for line in source.remove())
    left = database.execute("SELECT name FROM sqlite_master WHERE name <> 'sqlite_sequence' ORDER BY name").fetchall()
    assert left == before
    source.close()


@proves("D2", "D3", "cdc.28")
def test_a_file_without_a_wal_is_captured_too(database: sqlite3.Connection, path: Path) -> None:
    database.execute("PRAGMA journal_mode = DELETE")
    database.execute(KV)
    database.execute("INSERT INTO kv VALUES (1, 'a', 10)")
    source = source_of(path)
    assert any("journal_mode" in one.what and one.severity == "warning" for one in source.check())
    snapshot = source.snapshot()
    (table,) = snapshot.tables()
    assert list(snapshot.rows(table, None, None, 10)) == [[("1", '"a"', "10")]]
    snapshot.close()
    database.execute("DELETE FROM kv")
    stream = source.stream(snapshot.position)
    assert [one.op for one in stream.read(100, 1) if isinstance(one, RowChange)] == ["d"]
    source.close()


@proves("D3", "cdc.28")
@pytest.mark.parametrize("size", [1, 2, 3, 10, 100])
@pytest.mark.parametrize("parts", [1, 4])
def test_a_snapshot_has_every_row_once_whatever_its_ranges_and_chunks(
    database: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch, size: int, parts: int
) -> None:
    monkeypatch.setattr("tidelog.capture.sources.sqlite.source.ROWS_WORTH_SPLITTING", 1)
    database.execute(KV)
    database.executemany("INSERT INTO kv (id) VALUES (?)", [(number,) for number in range(-3, 7)])
    source = source_of(path)
    snapshot = source.snapshot()
    (table,) = snapshot.tables()
    ranges = snapshot.split(table, parts)
    database.execute("DELETE FROM kv")  # later than the snapshot
    found = [row[0] for after, to in ranges for part in snapshot.rows(table, after, to, size) for row in part]
    assert len(ranges) == parts and found == [str(number) for number in range(-3, 7)]
    snapshot.close()
    source.close()


@proves("D2")
def test_captures_of_one_file_leave_each_other_alone(database: sqlite3.Connection, path: Path) -> None:
    """Also where the name of one begins with that of the other."""
    database.execute(KV)
    one, other = (connect(f"sqlite:///{path}", name, ["*"]) for name in ("shop", "shop_1"))
    for source in (one, other):
        source.prepare()
    database.execute("ALTER TABLE kv ADD COLUMN more")
    one.prepare()
    one.remove()
    database.execute("INSERT INTO kv VALUES (1, 'a', 10, NULL)")
    assert [one[0] for one in told(other)] == ["c"]
    for source in (one, other):
        source.close()


@proves("D2", "cdc.28")
def test_a_watermark_comes_back_in_its_place(database: sqlite3.Connection, path: Path) -> None:
    database.execute(KV)
    source = source_of(path)
    stream = source.stream({"log": source._log(), "id": 0})
    database.execute("INSERT INTO kv VALUES (1, 'a', 10)")
    source.watermark("low")
    database.execute("INSERT INTO kv VALUES (2, 'b', 10)")
    events = [one for one in stream.read(100, 1) if isinstance(one, RowChange | Message)]
    assert [getattr(one, "content", None) for one in events] == [None, b"low", None]
    source.close()


# Histories ------------------------------------------------------------------------------------------------------------

IDS, NAMES = st.integers(1, 4), st.sampled_from(["'a'", "'b'", "NULL"])
WRITES = st.one_of(
    st.builds(
        "INSERT OR {} INTO kv VALUES ({}, {}, {})".format,
        st.sampled_from(["REPLACE", "IGNORE", "ABORT", "FAIL", "ROLLBACK"]),
        IDS,
        NAMES,
        st.integers(),
    ),
    st.builds("INSERT INTO kv VALUES ({}, {}, 0) ON CONFLICT DO UPDATE SET v = v + 1".format, IDS, NAMES),
    st.builds("UPDATE OR REPLACE kv SET id = {}, u = {} WHERE id = {}".format, IDS, NAMES, IDS),
    st.builds("UPDATE OR IGNORE kv SET u = {} WHERE id < {}".format, NAMES, IDS),
    st.builds("DELETE FROM kv WHERE id = {}".format, IDS),
    st.sampled_from(["BEGIN", "COMMIT", "ROLLBACK", "PRAGMA recursive_triggers = 1", "PRAGMA recursive_triggers = 0"]),
)
TABLES = st.sampled_from(
    [
        KV.replace("v)", "v INT)"),
        "CREATE TABLE kv (id INT PRIMARY KEY, u TEXT UNIQUE, v INT) WITHOUT ROWID",
        "CREATE TABLE kv (id TEXT PRIMARY KEY, u TEXT COLLATE NOCASE UNIQUE, v INT)",
    ]
)


@proves("D2", "cdc.28", "cdc.29")
@given(table=TABLES, writes=st.lists(WRITES, max_size=30), limit=st.integers(1, 5))
def test_all_changes_together_are_the_table(
    tmp_path_factory: pytest.TempPathFactory, table: str, writes: list[str], limit: int
) -> None:
    path = tmp_path_factory.mktemp("history") / "shop.db"
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; {table};")
    source = source_of(path)
    stream = source.stream({"log": source._log(), "id": 0})
    state: dict[str, dict[object, object]] = {"kv": {}}
    looking = sqlite3.connect(path)
    for write in writes:
        with suppress(sqlite3.IntegrityError, sqlite3.OperationalError):  # as a user's program has them
            database.execute(write)
        events: list[Event] = []
        while part := stream.read(limit, 0):
            events += part
        applied(state, events)
        seen = {(texts(row)[0],): texts(row) for row in looking.execute("SELECT * FROM kv")}
        assert state["kv"] == seen, write
    for connection in (database, looking):
        connection.close()
    source.close()
