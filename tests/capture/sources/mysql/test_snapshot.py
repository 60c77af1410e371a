"""Snapshots on a real MariaDB: one position for all rows, ranges that cover a table, the same texts as the stream."""

from __future__ import annotations

import datetime
import threading
from contextlib import closing
from decimal import Decimal
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.sources.mysql.mariadb_server import MariaDbServer
from capture.sources.mysql.reading import Database, fold, key_of, read_all, snapshot_rows
from proving import proves
from tidelog.capture.change import SourceTable, Values
from tidelog.capture.sources.mysql.snapshot import READERS
from tries import tries

pytestmark = pytest.mark.external

TYPES = {
    "i8": ("tinyint", st.integers(-128, 127)),
    "u8": ("tinyint unsigned", st.integers(0, 255)),
    "i16": ("smallint", st.integers(-(2**15), 2**15 - 1)),
    "u24": ("mediumint unsigned", st.integers(0, 2**24 - 1)),
    "i24": ("mediumint", st.integers(-(2**23), 2**23 - 1)),
    "i32": ("int", st.integers(-(2**31), 2**31 - 1)),
    "u64": ("bigint unsigned", st.integers(0, 2**64 - 1)),
    "i64": ("bigint", st.integers(-(2**63), 2**63 - 1)),
    "zf": ("int(8) zerofill", st.integers(0, 1000)),
    "dec": ("decimal(30,10)", st.decimals(-(10**19), 10**19, places=10)),
    "small": ("decimal(5,4)", st.decimals(-9, 9, places=4)),
    "f": ("float", st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)),
    "d": ("double", st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)),
    "b1": ("bit(1)", st.integers(0, 1)),
    "b12": ("bit(12)", st.integers(0, 4095)),
    "y": ("year", st.sampled_from([0, 1901, 2024, 2155])),
    "da": ("date", st.one_of(st.just("0000-00-00"), st.just("2024-00-10"), st.dates(datetime.date(1000, 1, 1)))),
    "dn": ("date not null", st.one_of(st.just("0000-00-00"), st.dates(datetime.date(1000, 1, 1)))),
    "t0": ("time", st.sampled_from(["-838:59:59", "-00:00:01", "00:00:00", "838:59:59"])),
    "t2": ("time(2)", st.sampled_from(["-838:59:59.99", "-00:00:00.01", "00:00:00.50", "12:00:01.10"])),
    "t6": ("time(6)", st.sampled_from(["-838:59:59.999999", "-00:00:00.000001", "00:00:00.500000"])),
    "dt": ("datetime", st.datetimes(datetime.datetime(1000, 1, 1)).map(lambda at: at.replace(microsecond=0))),
    "dt6": ("datetime(6)", st.datetimes(datetime.datetime(1000, 1, 1))),
    "ts3": (
        "timestamp(3) null",
        st.sampled_from(["0000-00-00 00:00:00", "1970-01-01 00:00:01.100", "2038-01-19 03:14:07"]),
    ),
    "tsn": (
        "timestamp(6) not null default current_timestamp(6)",
        st.sampled_from(["0000-00-00 00:00:00", "2024-01-01 01:02:03.4"]),
    ),
    "e": ("enum('a','b''c','ö')", st.sampled_from(["a", "b'c", "ö", ""])),
    "s": ("set('x','y','z')", st.sampled_from(["", "x", "z,x", "x,y,z"])),
    "l1": ("varchar(20) charset latin1", st.text('aé€\x81ÿ\\"\n', max_size=20)),
    "u2": ("char(10) charset ucs2", st.text("aéж", max_size=10)),
    "sj": ("varchar(10) charset sjis", st.text("aあ漢", max_size=10)),
    "long": ("varchar(300)", st.text(st.characters(exclude_categories=["Cs"]), max_size=300)),
    "tx": ("mediumtext", st.text(st.characters(exclude_categories=["Cs"]), max_size=300)),
    "bi": ("binary(5)", st.binary(max_size=5)),
    "vb": ("varbinary(300)", st.binary(max_size=300)),
    "bl": ("longblob", st.binary(max_size=300)),
    "cmp": ("blob compressed", st.sampled_from([b"", b"x", b"z" * 500])),
    "six": (
        "inet6",
        st.sampled_from(
            ["::", "::1", "2001:db8::ff00:42:8329", "::ffff:1.2.3.4", "::1.2.3.4", "::2", "::1:0", "::1.2.0.0"]
        ),
    ),
    "four": ("inet4", st.sampled_from(["0.0.0.0", "255.1.2.3"])),
    "id16": ("uuid", st.uuids().map(str)),
}
names = count(1)


def row_values() -> st.SearchStrategy[tuple[Any, ...]]:
    nullable = [
        values if "not null" in declared else st.one_of(st.none(), values, values, values)
        for declared, values in TYPES.values()
    ]
    return st.tuples(*nullable)


@proves("D1", "D3", "cdc.26")
@tries(15)  # each is a table of its own on a server
@given(rows=st.lists(row_values(), min_size=1, max_size=4))
def test_a_snapshot_and_the_stream_have_the_same_text_for_every_value(server: MariaDbServer, rows: list[Any]) -> None:
    with closing(Database(server, f"values{next(names)}")) as db:
        _compare_texts(db, rows)


def _compare_texts(db: Database, rows: list[Any]) -> None:
    declared = ", ".join(f"`{name}` {words}" for name, (words, _) in TYPES.items())
    db.run(f"CREATE TABLE t (k int AUTO_INCREMENT PRIMARY KEY, {declared})")
    start = db.here()
    connection = db.server.connect(db.name)
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00'")
        places = ", ".join(["%s"] * len(TYPES))
        for row in rows:
            given_ = [str(value) if isinstance(value, Decimal) else value for value in row]
            cursor.execute(f"INSERT INTO t ({', '.join(f'`{name}`' for name in TYPES)}) VALUES ({places})", given_)
    connection.close()
    source = db.source("t")
    streamed = read_all(source.stream(start))
    folded, read = fold(streamed), snapshot_rows(source, "t")
    assert folded.keys() == read.keys()
    columns = ["k", *TYPES]
    pairs = [(zip(columns, folded[key], read[key], strict=True)) for key in read]
    assert [(name, ours, text) for pair in pairs for name, ours, text in pair if ours != text] == []


@proves("D3", "cdc.8")
@pytest.mark.parametrize("rights", ["ALL PRIVILEGES", "SELECT, REPLICATION SLAVE, BINLOG MONITOR"])
def test_a_snapshot_under_writers_and_the_stream_behind_it_are_the_table(db: Database, rights: str) -> None:
    user = f"u{next(names)}"
    db.run(
        "CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, v int)", f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'p'"
    )
    db.run(f"GRANT {rights} ON *.* TO {user}@'127.0.0.1'", "INSERT INTO t (v) SELECT seq FROM seq_1_to_300")
    ended = threading.Event()

    def write(number: int) -> None:
        connection = db.server.connect(db.name)
        with connection.cursor() as cursor:
            while not ended.is_set():
                cursor.execute("INSERT INTO t (v) VALUES (0)")
                cursor.execute("UPDATE t SET v = v + 1 WHERE id %% 7 = %s", (number,))
                cursor.execute("DELETE FROM t WHERE id %% 50 = %s", (number,))
        connection.close()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for writer in writers:
        writer.start()
    try:
        source = db.source("t", user=user, password="p")
        snapshot = source.snapshot()
        assert len(snapshot._connections) == (READERS if rights == "ALL PRIVILEGES" else 1)
        table = snapshot.tables()[0]
        rows = [
            row
            for after, to in snapshot.split(table, 3)
            for part in snapshot.rows(table, after, to, 50)
            for row in part
        ]
        snapshot.close()
    finally:
        ended.set()
        for writer in writers:
            writer.join()
    stream = source.stream(snapshot.position)
    begun = {key_of(table, row): row for row in rows}
    assert len(begun) == len(rows)
    folded = fold(read_all(stream), begun)
    stream.close()
    assert folded == snapshot_rows(source, "t")


@proves("D3", "cdc.19")
@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        (
            "a int, b varchar(5), c int, PRIMARY KEY (b, a)",
            ["(1,'x',0)", "(2,'x',0)", "(1,'Y',0)", "(3,'a',0)", "(0,'z',0)"],
        ),
        ("a enum('z','a','m'), c int, PRIMARY KEY (a)", ["('a',0)", "('m',0)", "('z',0)"]),
        ("a decimal(6,2), c int, PRIMARY KEY (a)", ["(-1.5,0)", "(0,0)", "(3.25,0)", "(100.01,0)"]),
        (
            "a datetime(3), b time(1), c int, PRIMARY KEY (a, b)",
            ["('2024-01-01 00:00:00.123','-1:00:00.5',0)", "('2024-01-01 00:00:00.123','1:00',0)"],
        ),
        (
            "a timestamp(6), b date, c int, PRIMARY KEY (a, b)",
            ["('2024-01-01 00:00:00.123456','2024-01-01',0)", "('2024-01-01 00:00:00.123457','2023-01-01',0)"],
        ),
        ("a varbinary(4), c int, PRIMARY KEY (a)", ["(x'00',0)", "(x'0001',0)", "(x'ff',0)"]),
        ("a uuid, c int, PRIMARY KEY (a)", [f"('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1{n}',0)" for n in range(3)]),
        ("a bigint unsigned, c int, PRIMARY KEY (a)", ["(0,0)", "(5,0)", "(18446744073709551615,0)"]),
        ("a bit(9), c set('p','q'), PRIMARY KEY (a, c)", ["(1,'p')", "(1,'q')", "(511,'p,q')", "(256,'')"]),
    ],
)
def test_chunks_and_ranges_cover_a_table_by_any_key(db: Database, columns: str, keys: list[str]) -> None:
    db.run(f"CREATE TABLE t ({columns})", "INSERT INTO t VALUES " + ", ".join(keys))
    source = db.source("t")
    snapshot = source.snapshot()
    table = snapshot.tables()[0]
    whole = [row for part in snapshot.rows(table, None, None, 2) for row in part]
    assert len(whole) == len(keys)
    for parts in (2, 3, 10):
        ranges = snapshot.split(table, parts)
        assert [row for after, to in ranges for part in snapshot.rows(table, after, to, 2) for row in part] == whole
    snapshot.close()
    assert _by_chunks(source, table) == whole
    assert _by_chunks(db.source("t"), table) == whole  # a table that another source told
    assert source.last_key(table) == key_of(table, whole[-1])


def _by_chunks(source: Any, table: SourceTable) -> list[Values]:
    rows: list[Values] = []
    after, last = None, source.last_key(table)
    while chunk := source.chunk(table, after, last, 2):
        rows += chunk
        after = key_of(table, chunk[-1])
    return rows


@proves("D3")
def test_a_table_is_one_object_for_snapshot_and_stream(db: Database) -> None:
    db.run("CREATE TABLE t (id int PRIMARY KEY, u uuid DEFAULT uuid(), d decimal(5,1) DEFAULT 2.5)")
    source = db.source("t")
    snapshot = source.snapshot()
    db.run("INSERT INTO t (id) VALUES (1)", "ALTER TABLE t COMMENT 'x'", "INSERT INTO t (id) VALUES (2)")
    events = read_all(source.stream(snapshot.position))
    assert {row.table for row in events if hasattr(row, "op")} == set(snapshot.tables())
    snapshot.close()
