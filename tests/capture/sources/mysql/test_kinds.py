"""Declared types, defaults, and values of the text protocol."""

from __future__ import annotations

import pytest

from proving import proves
from tidelog.capture.sources.mysql.charsets import decoder
from tidelog.capture.sources.mysql.keys import between, value
from tidelog.capture.sources.mysql.kinds import MysqlKind, connect_schema, default_text, float_text, from_text, parse
from tidelog.capture.sources.mysql.positions import MariaDbGtids, MySqlGtids
from tidelog.capture.sources.mysql.session import settings
from tidelog.capture.sources.mysql.shapes import Shapes
from tidelog.capture.sources.mysql.snapshot import cuts
from tidelog.capture.sources.mysql.source import bytes_between
from tidelog.errors import ConfigError, UsageError


@proves("D1", "cdc.26")
@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("int(10) unsigned", MysqlKind("int32", unsigned=True)),
        ("tinyint(1)", MysqlKind("int8")),
        ("bigint(20) unsigned zerofill", MysqlKind("int64", unsigned=True)),
        ("decimal(10,2)", MysqlKind("decimal", size=10, scale=2)),
        ("decimal(20,0)", MysqlKind("decimal", size=20)),
        ("timestamp(6)", MysqlKind("timestamp", scale=6)),
        ("enum('a','b''c','d,e')", MysqlKind("enum", allowed=("a", "b'c", "d,e"))),
        ("set('(x)','y')", MysqlKind("set", allowed=("(x)", "y"))),
        ("varchar(200) /*M!100301 COMPRESSED*/", MysqlKind("text")),
        ("binary(4)", MysqlKind("binary", size=4)),
        ("inet6", MysqlKind("inet6")),
        ("multipolygon", MysqlKind("geometry")),
    ],
)
def test_a_declared_type_is_parsed(declared: str, kind: MysqlKind) -> None:
    assert parse(declared, True) == kind


@proves("D1")
def test_a_type_that_is_not_known_is_named() -> None:
    with pytest.raises(UsageError, match=r"vector\(3\)"):
        parse("vector(3)", True)


@proves("D1")
@pytest.mark.parametrize(
    ("declared", "nullable", "told", "text"),
    [
        ("int(11)", False, "7", "7"),
        ("decimal(5,1)", False, "2.5", '"GQ=="'),
        ("varchar(9)", True, "'it''s'", '"it\'s"'),
        ("varchar(9)", True, "NULL", None),
        ("varchar(9)", True, "'NULL'", '"NULL"'),
        ("timestamp", False, "current_timestamp()", '"1970-01-01T00:00:00Z"'),
        ("timestamp", True, "current_timestamp()", None),
        ("bit(3)", True, "b'101'", '"BQ=="'),
        ("bit(1)", True, "b'1'", "true"),
        ("uuid", True, "uuid()", None),
        ("binary(2)", True, "'a'", '"YQA="'),
        ("date", True, "'0000-00-00'", None),
    ],
)
def test_a_default_of_mariadb_has_its_json_text(declared: str, nullable: bool, told: str, text: str | None) -> None:
    assert default_text(parse(declared, nullable), told, True, False) == text


@proves("D1")
def test_a_default_of_mysql_is_bare_and_an_expression_has_none() -> None:
    assert default_text(MysqlKind("text"), "it's", False, False) == '"it\'s"'
    assert default_text(MysqlKind("text"), "uuid()", False, True) is None
    assert connect_schema(MysqlKind("int32", nullable=False), "7") == {"type": "int32", "optional": False, "default": 7}


@proves("D1", "cdc.26")
@pytest.mark.parametrize("number", [1.1, 16777216.0, 3.4028234663852886e38, 1.401298464324817e-45, -0.1, 123456.79])
def test_a_float_is_the_shortest_number_that_it_is(number: float) -> None:
    import struct

    single = struct.unpack("<f", struct.pack("<f", number))[0]
    text = float_text(single)
    assert struct.unpack("<f", struct.pack("<f", float(text)))[0] == single
    assert from_text(MysqlKind("float"))(repr(single)) == text
    assert len(text) <= len(repr(single))


@proves("D1", "cdc.26")
def test_character_sets_are_mysqls() -> None:
    latin1 = decoder(8, {8: "latin1"})
    assert latin1 is not None and latin1(b"\x80\x81\xe9") == "€\x81é"
    assert decoder(63, {}) is None
    with pytest.raises(UsageError, match="utf8mb4"):
        decoder(32, {32: "armscii8"})


@proves("D3", "cdc.19")
def test_a_composite_key_is_compared_column_by_column() -> None:
    key = [("a", MysqlKind("int32")), ("b", MysqlKind("text"))]
    assert between(key, ("1", '"x"'), None) == ("((`a` > %s) OR (`a` = %s AND `b` > %s))", [1, 1, "x"])
    assert between(key, None, ("2", '"y"')) == ("((`a` < %s) OR (`a` = %s AND `b` <= %s))", [2, 2, "y"])
    assert between(key, None, None) == ("TRUE", [])


@proves("D3")
@pytest.mark.parametrize(
    ("declared", "text", "told"),
    [
        ("decimal(6,2)", '"/2o="', "-1.50"),
        ("date", "19782", "2024-02-29"),
        ("datetime(6)", "-1", "1969-12-31 23:59:59.999999"),
        ("time(6)", "-45296000001", "-12:34:56.000001"),
        ("timestamp(3)", '"2024-01-01T00:00:00.100Z"', "2024-01-01 00:00:00.100"),
        ("enum('z','a')", '"a"', 2),
        ("set('p','q')", '"p,q"', 3),
        ("varbinary(9)", '"AAE="', b"\0\1"),
    ],
)
def test_a_key_is_given_back_to_the_server(declared: str, text: str, told: object) -> None:
    assert value(parse(declared, False), text) == told


@proves("D3")
@pytest.mark.parametrize(("low", "high", "parts"), [(1, 100, 3), (5, 5, 4), (-3, 3, 10), (0, 2**64 - 1, 7)])
def test_a_range_of_numbers_is_cut_below_its_end(low: int, high: int, parts: int) -> None:
    found = cuts(low, high, parts)
    assert found == sorted(set(found)) and all(low <= cut < high for cut in found)
    assert len(found) == min(parts, high - low + 1) - 1


@proves("D1", "cdc.23")
def test_positions_of_mariadb_have_the_last_of_each_domain() -> None:
    gtids = MariaDbGtids("0-1-42")
    gtids.add("1-2-7")
    gtids.add("0-3-43")
    assert gtids.text() == "0-3-43,1-2-7"
    assert gtids.covers("0-1-42") and gtids.covers("") and not gtids.covers("1-2-8") and not gtids.covers("2-1-1")
    with pytest.raises(UsageError, match="0-1-42"):
        MariaDbGtids("3E11FA47:1-5")


@proves("D1", "cdc.23")
def test_positions_of_mysql_are_sets() -> None:
    uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    gtids = MySqlGtids(f"{uuid}:1-5")
    gtids.add(f"{uuid}:6")
    assert gtids.text() == f"{uuid}:1-6"
    assert gtids.covers(f"{uuid}:2-4") and not gtids.covers(f"{uuid}:7")


@proves("D1")
def test_tables_are_named_by_patterns() -> None:
    shapes = Shapes(["orders", "shop.*", "log.a*"], "main", True)
    assert shapes.wants("main", "orders") and shapes.wants("shop", "x") and shapes.wants("log", "abc")
    assert not shapes.wants("main", "order") and not shapes.wants("log", "b") and not shapes.wants("mysql", "user")
    with pytest.raises(ConfigError, match="write database"):
        Shapes(["a.b.c"], "main", True)


@proves("D1")
def test_a_url_is_taken_apart_and_an_unknown_option_is_named() -> None:
    told = settings("mariadb://a%40b:p%3Aw@host:3307/shop?accept_cascades=true")
    assert (told.user, told.password, told.host, told.port, told.database) == ("a@b", "p:w", "host", 3307, "shop")
    assert told.accept_cascades and "p:w" not in told.shown
    for wrong in ("mysql://host", "postgres://h/d", "mysql://h/d?x=1", "mysql://h/d?ssl=maybe"):
        with pytest.raises(ConfigError):
            settings(wrong)


@proves("D1")
def test_bytes_behind_are_counted_over_files() -> None:
    sizes = {"b.000009": 100, "b.000010": 200, "b.000011": 50}
    assert bytes_between(sizes, ("b.000009", 40), ("b.000011", 30)) == 60 + 200 + 30
    assert bytes_between(sizes, ("b.000008", 40), ("b.000011", 30)) is None
