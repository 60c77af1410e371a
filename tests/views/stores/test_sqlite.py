"""What is SQLite's own: others read the file, names that it would confuse, values that it would change."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.client.metadata import TopicPartition
from tidelog.control.urls import redacted
from tidelog.errors import StorageError, UsageError
from tidelog.schema.declaration import declare
from tidelog.views.changes import Change, Stretch
from tidelog.views.stores import sqlite
from tidelog.views.stores.opening import name_of, open_store
from tidelog.views.stores.sqlite import SqliteStore
from tidelog.views.stores.sqlite_values import order_of, plain

DECLARED = declare({"k": "long", "v": "string"}, ("k",))
AT = TopicPartition("numbers.v1", 0)
decimals = st.decimals(
    allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30
) | st.integers().map(Decimal)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "some" / "views.db"


def applied(store: SqliteStore, rows: dict[int, str], *, generation: int = 1, end: int = 1) -> None:
    store.prepare(generation, DECLARED)
    changes = [Change((k,), {"k": k, "v": v}, None, AT, k, 0) for k, v in rows.items()]
    store.apply(generation, Stretch(changes, {AT: end}, None), before={}, show=True)


@proves("eo.24", "D7")
def test_the_views_name_is_a_view_that_any_program_reads_and_it_moves_with_the_switch(file: Path) -> None:
    store = SqliteStore(file, "numbers")
    applied(store, {1: "a"})
    other = sqlite3.connect(file)
    assert other.execute("SELECT v FROM numbers").fetchall() == [("a",)]
    applied(store, {1: "b", 2: "c"}, generation=2)
    assert other.execute("SELECT v FROM numbers ORDER BY k").fetchall() == [("b",), ("c",)]
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


@proves("eo.21")
def test_a_reader_with_a_snapshot_keeps_it_while_the_applier_goes_on(file: Path) -> None:
    store = SqliteStore(file, "numbers")
    applied(store, {1: "a"})
    reader = sqlite3.connect(file, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM numbers").fetchone() == (1,)
    applied(store, {1: "b", 2: "c"}, generation=2)
    assert reader.execute("SELECT v FROM numbers").fetchall() == [("a",)]
    reader.execute("ROLLBACK")
    assert reader.execute("SELECT count(*) FROM numbers").fetchone() == (2,)
    store.close()


@proves("eo.24")
def test_names_that_sqlite_would_confuse_are_refused(file: Path) -> None:
    SqliteStore(file, "numbers").prepare(1, DECLARED)
    with pytest.raises(UsageError, match="the same name here; use another file"):
        SqliteStore(file, "Numbers").prepare(1, DECLARED)
    sqlite3.connect(file).execute("CREATE TABLE orders (id)")
    with pytest.raises(UsageError, match="has a table that is called orders"):
        SqliteStore(file, "orders").prepare(1, DECLARED)
    sqlite3.connect(file).execute("CREATE VIEW mine AS SELECT 1 AS one")
    with pytest.raises(UsageError, match="has a view that is called mine"):
        SqliteStore(file, "mine").prepare(1, DECLARED)
    assert sqlite3.connect(file).execute("SELECT one FROM mine").fetchall() == [(1,)]
    with pytest.raises(UsageError, match="names that begin with sqlite_"):
        SqliteStore(file, "SQLite_sums").prepare(1, DECLARED)


@proves("eo.24")
def test_a_file_of_a_newer_version_or_of_another_kind_is_refused(file: Path) -> None:
    SqliteStore(file, "numbers").prepare(1, DECLARED)
    sqlite3.connect(file, isolation_level=None).execute("UPDATE _tidelog_format SET version = 2")
    with pytest.raises(UsageError, match="format 2, and this Tidelog knows 1; use the newer one"):
        SqliteStore(file, "numbers").shown()
    text = file.parent / "notes.txt"
    text.write_text("no database" * 100)
    with pytest.raises(UsageError, match="is not a SQLite file"):
        SqliteStore(text, "numbers").shown()
    with pytest.raises(UsageError, match=r"no file; write sqlite:///relative.db"):
        open_store("sqlite://", "numbers")


@proves("eo.24")
def test_a_database_of_somebody_elses_is_read_as_empty_and_left_as_it_is(file: Path) -> None:
    file.parent.mkdir()
    mine = sqlite3.connect(file, isolation_level=None)
    mine.execute("CREATE TABLE mine (id)")
    before = file.read_bytes()
    store = SqliteStore(file, "numbers")
    assert (store.shown(), store.place(1), store.generations()) == (None, None, {})
    store.close()
    assert file.read_bytes() == before


@proves("F3")
def test_a_file_that_somebody_has_locked_is_a_fault_that_passes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(file, "numbers")
    applied(store, {1: "a"})
    store.close()
    monkeypatch.setattr(sqlite, "BUSY_S", 0.01)
    somebody = sqlite3.connect(file, isolation_level=None)
    somebody.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="database is locked"):
        store.apply(1, Stretch([], {AT: 2}, None), before={AT: 1})
    somebody.execute("ROLLBACK")
    store.apply(1, Stretch([], {AT: 2}, None), before={AT: 1})
    store.close()


MAKERS = """
import os, sys
from pathlib import Path
from tidelog.schema.declaration import declare
from tidelog.views.stores.sqlite import SqliteStore

declared = declare({"k": "long", "v": "string"}, ("k",))
for attempt in range(100):
    start, go = os.pipe()
    children = []
    for number in range(3):
        children.append(os.fork())
        if children[-1] == 0:
            os.close(go)
            os.read(start, 1)  # until all are there
            SqliteStore(Path(sys.argv[1]) / f"{attempt}.db", f"view{number}").prepare(1, declared)
            os._exit(0)
    os.close(start)
    os.close(go)
    if any(os.waitpid(child, 0)[1] for child in children):
        sys.exit(f"attempt {attempt}")
"""


@proves("P3", "eo.17")
@pytest.mark.slow
def test_many_processes_may_make_the_file_at_once(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", MAKERS, str(tmp_path)], check=True, timeout=100)


@proves("D7")
@given(decimals, decimals)
def test_decimals_are_in_the_order_of_numbers(one: Decimal, other: Decimal) -> None:
    a, b = order_of(one), order_of(other)
    assert a is not None and b is not None
    assert (a < b, a == b) == (one < other, one == other)
    assert (plain(one) == plain(other)) == (one == other) and Decimal(plain(one)) == one


@proves("eo.20")
def test_a_store_has_a_short_name_without_secrets() -> None:
    assert name_of("sqlite:///tidelog-views/shop.db").startswith("sqlite-shop-")
    assert name_of("sqlite:///a/shop.db") != name_of("sqlite:///b/shop.db")
    assert redacted("postgresql://me:secret@db/shop") == "postgresql://me:***@db/shop"
    assert redacted("postgresql://me:${PASSWORD}@db/shop") == "postgresql://me:${PASSWORD}@db/shop"
    assert redacted("postgresql://db:5432/shop?user=me@corp") == "postgresql://db:5432/shop?user=me@corp"
    assert redacted("postgresql://me:5432@db/shop") == "postgresql://me:***@db/shop"
    assert "secret" not in json.dumps([name_of("postgresql://me:secret@db/shop")])
    for written, shown in (
        ("postgresql://me:se@cret@db/shop", "postgresql://me:***@db/shop"),
        ("postgresql://me:se/cret@db/shop", "postgresql://me:***@db/shop"),
        ("redis://db/0?password=secret&prefix=a", "redis://db/0?password=***&prefix=a"),
        (
            "postgresql://db/shop?sslmode=require&sslpassword=secret",
            "postgresql://db/shop?sslmode=require&sslpassword=***",
        ),
        ("redis://db/0?password=${SECRET}", "redis://db/0?password=${SECRET}"),
        ("redis://db/0?PASSWORD=secret", "redis://db/0?PASSWORD=***"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
        ("parquet:///tokens?day=at", "parquet:///tokens?day=at"),
    ):
        assert redacted(written) == shown
