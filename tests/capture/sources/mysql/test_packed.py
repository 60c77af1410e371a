"""Values as MariaDB 10.11 packed them: bytes of real events, and the edges of each type."""

from __future__ import annotations

from base64 import b64decode

import pytest

from proving import proves
from tidelog.capture.sources.mysql import binlog, packed
from tidelog.capture.sources.mysql.kinds import MysqlKind
from tidelog.capture.sources.mysql.packed import reader
from tidelog.capture.sources.mysql.stream import image
from tidelog.capture.sources.mysql.table_map import decode, names_of
from tidelog.errors import PeerError, UsageError

# id int, b binary(16), u uuid, i6 inet6, i4 inet4, vb varbinary(16), ch char(10) latin1, chl char(100) utf8mb4,
# g geometry, p point, y year, v and s generated ints, inv invisible int, js json, e enum('a','é') latin1,
# l varchar(10) latin1, comp varchar(200) compressed, compb blob compressed, mt timestamp, sst set('q','r').
TABLE_MAP = b64decode(
    "mz/9ahMBAAAAwgAAANEFAAAAABIAAAAAAAEAAWQAAXQAFQP+/v7+D/7+//8NAwMD/P4PjYwR/hv+"
    "EP4Q/hD+BBAA/grukAQEBPcBCgDJAAIA+AH+/x8BAUACCz8FCAYtCS4KCAsIBwIAAQQ+AmlkAWIB"
    "dQJpNgJpNAJ2YgJjaANjaGwBZwFwAXkBdgFzA2ludgJqcwFlAWwEY29tcAVjb21wYgJtdANzc3QK"
    "AQgFBQIBcQFyBgUCAWEB6QgBAMpF7aA="
)
ROWS = b64decode(
    "mz/9ahcBAAAAxAAAAJUGAAAAABIAAAAAAAEAFf//HwAA4AEAAAADYWJjEKDuvJmcC074u21rub04"
    "ChEQIAENuAAAAAAAAAAAAAAAAQQBAgMEAXgBeQEAehkAAAAAAAAAAQEAAAAAAAAAAADwPwAAAAAA"
    "AABAGQAAAAAAAAABAQAAAAAAAAAAAAhAAAAAAAAAEEAAAgAAAAMAAAADAAAAAgAAAHt9AgHpCImW"
    "y84ejAAACACJyKuqGh4AAGWSAIADHcIXjA=="
)
CHARSETS = {8: "latin1", 45: "utf8mb4", 46: "utf8mb4"}


@proves("D1", "cdc.24", "cdc.26")
def test_a_table_map_tells_names_types_words_and_the_key() -> None:
    event = binlog.split(TABLE_MAP, True)
    assert names_of(event.body) == (18, "d", "t")
    of = decode(event.body, CHARSETS, True)
    kinds = {column.name: column.kind for column in of.columns}
    assert of.key == ("id",) and of.named
    assert kinds["id"] == MysqlKind("int32", nullable=False)
    assert kinds["u"] == kinds["b"] == MysqlKind("binary", size=16)
    assert kinds["p"].name == "point" and kinds["g"].name == "geometry"
    assert kinds["e"].allowed == ("a", "é") and kinds["sst"].allowed == ("q", "r")
    assert kinds["chl"] == kinds["comp"] == MysqlKind("text") and kinds["compb"] == MysqlKind("bytes")
    assert not kinds["v"].unsigned  # YEAR has a sign bit of its own, which is not v's


@proves("D1", "cdc.26")
def test_a_row_event_is_read_by_its_table_map() -> None:
    of = decode(binlog.split(TABLE_MAP, True).body, CHARSETS, True)
    readers = tuple(reader(column.code, column.meta, column.kind, column.decode) for column in of.columns)
    rows = binlog.rows(binlog.split(ROWS, True))
    assert rows.full and rows.table_id == 18
    values, end = image(readers, rows.data, 0)
    assert end == len(rows.data)
    told = dict(zip((column.name for column in of.columns), values, strict=True))
    assert told["b"] == '"YWJjAAAAAAAAAAAAAAAAAA=="'  # the padding that the binlog leaves out
    assert told["e"] == told["l"] == '"é"' and told["sst"] == '"q,r"' and told["y"] == "0"
    assert told["comp"] == f'"{"k" * 150}"' and told["mt"] == '"2024-01-01T00:00:00Z"'


@proves("D1")
def test_an_event_that_was_changed_on_its_way_is_refused() -> None:
    with pytest.raises(PeerError, match="checksum"):
        binlog.split(ROWS[:40] + b"\xff" + ROWS[41:], True)
    with pytest.raises(PeerError, match="bytes"):
        binlog.split(ROWS[:-1], True)


@proves("D1", "cdc.26")
@pytest.mark.parametrize(
    ("code", "kind", "data", "text"),
    [
        (packed.LONGLONG, MysqlKind("int64", unsigned=True), b"\xff" * 8, "18446744073709551615"),
        (packed.LONGLONG, MysqlKind("int64"), b"\xff" * 8, "-1"),
        (packed.INT24, MysqlKind("int24"), b"\x00\x00\x80", "-8388608"),
        (packed.FLOAT, MysqlKind("float"), b"\xcd\xcc\x8c\x3f", "1.1"),
        (packed.NEWDECIMAL, MysqlKind("decimal", size=10, scale=2), b"\x80\x00\x30\x39\x43", '"EtaH"'),
        (packed.NEWDECIMAL, MysqlKind("decimal", size=10, scale=2), b"\x7f\xff\xcf\xc6\xbc", '"7Sl5"'),
        (packed.BIT, MysqlKind("bit", size=1), b"\x01", "true"),
        (packed.BIT, MysqlKind("bit", size=12), b"\x01\x02", '"AgE="'),
        (packed.DATE, MysqlKind("date"), b"\x5d\xd0\x0f", "19782"),
        (packed.DATE, MysqlKind("date"), b"\x00\x00\x00", "null"),
        (packed.DATE, MysqlKind("date", nullable=False), b"\x00\x00\x00", "0"),
        (packed.TIME2, MysqlKind("time"), b"\x7f\x37\x48", "-45296000000"),
        (packed.TIME2, MysqlKind("time", scale=2), b"\x7f\xff\xff\xff", "-10000"),
        (packed.TIME2, MysqlKind("time", scale=6), b"\x80\x00\x00\x07\xa1\x20", "500000"),
        (packed.DATETIME2, MysqlKind("datetime"), b"\x99\xb2\xba\xc8\xb8", "1709210096000"),
        (packed.DATETIME2, MysqlKind("datetime"), b"\x80\x00\x00\x00\x00", "null"),
        (
            packed.TIMESTAMP2,
            MysqlKind("timestamp", scale=6),
            b"\x65\xe0\x7b\x70\x01\xe2\x40",
            '"2024-02-29T12:41:20.123456Z"',
        ),
        (packed.TIMESTAMP2, MysqlKind("timestamp", nullable=False), b"\x00" * 4, '"1970-01-01T00:00:00Z"'),
        (
            packed.TIMESTAMP,
            MysqlKind("timestamp"),
            b"\x80\x00\x92\x65",
            '"2024-01-01T00:00:00Z"',
        ),
        (packed.DATETIME, MysqlKind("datetime"), (20240229123456).to_bytes(8, "little"), "1709210096000"),
        (packed.TIME, MysqlKind("time"), (-123456).to_bytes(3, "little", signed=True), "-45296000000"),
        (packed.YEAR, MysqlKind("year"), b"\x7c", "2024"),
        (packed.ENUM, MysqlKind("enum", allowed=("a",)), b"\x00", '""'),
        (packed.SET, MysqlKind("set", allowed=("x", "y", "z")), b"\x05", '"x,z"'),
        (packed.SET, MysqlKind("set", allowed=("x",)), b"\x00", '""'),
        (
            packed.JSON,
            MysqlKind("json"),
            b"\x0d\0\0\0" + bytes.fromhex("0001000c000b000100050200") + b"a",
            '"{\\"a\\":2}"',
        ),
    ],
)
def test_a_packed_value_has_its_json_text(code: int, kind: MysqlKind, data: bytes, text: str) -> None:
    meta = {packed.ENUM: 1, packed.SET: 1, packed.JSON: 4}.get(code, 0)
    assert reader(code, meta, kind, None)(data, 0) == (text, len(data))


@proves("D1")
def test_a_type_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="242"):
        reader(242, 0, MysqlKind("vector"), None)
