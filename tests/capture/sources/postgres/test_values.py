"""Values from PostgreSQL's texts to JSON and back, without a server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.capture.sources.postgres import times, values
from tidelog.capture.sources.postgres.arrays import json_array, json_hstore
from tidelog.capture.sources.postgres.catalog import pattern_of
from tidelog.capture.sources.postgres.columns import SIMPLE, Type, connect_of, default_of, kind_of
from tidelog.capture.sources.postgres.reading import values_of
from tidelog.capture.sources.postgres.values import base64_text, signed_bytes

NUMERIC = {1700: Type(1700, "numeric", "b")}


@proves("cdc.15")
@pytest.mark.parametrize(
    ("text", "cents"),
    [("$1,234.56", 123456), ("-$0.01", -1), ("1.234,56 €", 123456), ("¥1,234", 123400), ("($5.00)", -500), ("$7", 700)],
)
def test_money_is_read_in_the_ways_that_places_write_it(text: str, cents: int) -> None:
    assert values.json_money(text.encode()) == base64_text(signed_bytes(cents))


@proves("cdc.15")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('"a"=>"1", "b c"=>NULL', '{"a":"1","b c":null}'),
        ("", "{}"),
        (r'"q\"q"=>"b\\s, =>"', '{"q\\"q":"b\\\\s, =>"}'),
    ],
)
def test_an_hstore_is_an_object_in_a_text(text: str, told: str) -> None:
    assert json.loads(json_hstore(text.encode())) == told


@proves("cdc.15")
@pytest.mark.parametrize(
    ("text", "dimensions", "told"),
    [
        ("{1,NULL,3}", 1, [1, None, 3]),
        ("{}", 1, []),
        ("{{1,2},{3,4}}", 2, [[1, 2], [3, 4]]),
        ("{{1,2},{3,4}}", 1, [1, 2, 3, 4]),
        ("{1,2}", 2, [[1, 2]]),
        ("[0:1]={5,6}", 1, [5, 6]),
        ("[1:1][-2:-1]={{5,6}}", 2, [[5, 6]]),
    ],
)
def test_an_array_has_the_dimensions_of_its_column(text: str, dimensions: int, told: list[object]) -> None:
    assert json.loads(json_array(values.json_verbatim, dimensions)(text.encode())) == told


@proves("cdc.15")
@pytest.mark.parametrize("text", ["{", "}", "{1}}", "{{1}", "1", '{"a}', "{a\\", ""])
def test_an_array_that_is_malformed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="array"):
        json_array(values.json_verbatim)(text.encode())


@proves("cdc.15")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0044-03-15 12:00:00+00 BC", "-0043-03-15T12:00:00.000000Z"),
        ("0001-01-01 00:00:00+00 BC", "0000-01-01T00:00:00.000000Z"),
        ("12024-01-01 00:00:00.5+00", "+12024-01-01T00:00:00.500000Z"),
        ("-infinity", "-infinity"),
    ],
)
def test_a_zoned_time_outside_of_four_digits_comes_back(text: str, told: str) -> None:
    assert times.zoned(text, 6) == told
    again = times.zoned_text(told)
    assert times.zoned(again.replace(".000000", ""), 6) == told


@proves("cdc.15")
def test_infinity_and_the_end_of_a_day_are_told() -> None:
    assert values.json_date(b"infinity") == "2147483647"
    assert values.json_date(b"-infinity") == "-2147483648"
    assert values.json_timestamp_ms(b"infinity") == values.json_timestamp_us(b"infinity") == "9223372036825200000"
    assert values.json_time_us(b"24:00:00") == "86400000000"
    assert values.json_zoned_time(b"24:00:00+00") == '"24:00:00Z"'
    assert [values.json_variable_decimal(each) for each in values.NOT_A_NUMBER] == ["null"] * 3


@proves("cdc.15")
@given(st.integers(-2_000_000, 200_000_000))
def test_a_date_comes_back_as_it_was(number: int) -> None:
    assert times.days(times.date_text(number)) == number


@proves("cdc.15")
@given(st.integers(-(2**57), 2**60))
def test_a_timestamp_comes_back_as_it_was(number: int) -> None:
    assert times.microseconds(times.timestamp_text(number)) == number


@proves("cdc.15")
@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**20), max_value=10**20))
def test_a_numeric_comes_back_as_it_was(number: object) -> None:
    text = f"{number:f}"
    for modifier in (-1, (38 << 16 | 3) + 4):
        kind = kind_of(1700, modifier, 0, NUMERIC)
        assert kind.plain is not None
        assert kind.plain(kind.read(text.encode())) == text.replace("-0.000", "0.000")


@proves("cdc.15")
def test_a_numeric_with_a_negative_scale_is_whole() -> None:
    kind = kind_of(1700, (5 << 16 | (-2 & 0x7FF)) + 4, 0, NUMERIC)
    assert kind.connect["parameters"] == {"scale": "-2", "connect.decimal.precision": "5"}
    assert kind.read(b"12300") == base64_text(signed_bytes(123))
    assert kind.plain is not None
    assert kind.plain(kind.read(b"-12300")) == "-12300"


@proves("cdc.15")
@pytest.mark.parametrize(
    ("name", "expression", "told"),
    [
        ("int4", "42", "42"),
        ("int4", "'-1'::integer", "-1"),
        ("int4", "(-5)", "-5"),
        ("int4", "nextval('a_seq'::regclass)", "0"),
        ("text", "'x''y'::character varying", '"x\'y"'),
        ("text", "upper('a'::text)", None),
        ("int4", "NULL::integer", None),
        ("date", "'2020-01-02'::date", "18263"),
        ("bool", "true", "true"),
    ],
)
def test_a_default_is_told_where_it_is_a_constant(name: str, expression: str, told: str | None) -> None:
    assert default_of(expression, SIMPLE.get(name, kind_of(0, -1, 0, {}))) == told


@proves("cdc.10")
def test_the_marker_of_every_type_is_of_its_schema() -> None:
    types = {1: Type(1, "int4", "b"), 2: Type(2, "_int4", "b", 1), 3: Type(3, "bool", "b"), 4: Type(4, "_bool", "b", 3)}
    types |= {
        5: Type(5, "_text", "b", 6),
        6: Type(6, "text", "b"),
        7: Type(7, "bytea", "b"),
        8: Type(8, "_bytea", "b", 7),
    }
    marker = {number: json.loads(kind_of(number, -1, 1, types).unavailable) for number in (2, 4, 5, 7, 8)}
    assert all(type(each) is int for each in marker[2])
    assert all(type(each) is bool for each in marker[4])
    assert (marker[5], marker[8]) == (["__debezium_unavailable_value"], [marker[7]])


@proves("cdc.15")
def test_a_line_of_copy_is_unescaped() -> None:
    readers = [(values.json_text, "")] * 4
    line = rb"a\tb\\n" + b"\t" + rb"\N" + b"\t" + b"\t" + rb"\b\f\n\r\v" + b"\n"
    assert values_of(line, readers) == ('"a\\tb\\\\n"', "null", '""', '"\\b\\f\\n\\r\\u000b"')


@proves("cdc.17")
@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("public.*", ["public.a", "public.b.c"]),
        ("*", ["public.a", "public.b.c", "shop.a"]),
        ("a", ["public.a"]),
        ("*.a", ["public.a", "shop.a"]),
        ("shop.a", ["shop.a"]),
    ],
)
def test_a_pattern_names_tables(pattern: str, names: list[str]) -> None:
    every = ["public.a", "public.b.c", "shop.a"]
    assert [name for name in every if pattern_of(pattern).fullmatch(name)] == names


@proves("cdc.15")
def test_an_array_of_two_dimensions_has_a_schema_of_two() -> None:
    types = {1: Type(1, "int4", "b"), 2: Type(2, "_int4", "b", 1)}
    connect = connect_of(kind_of(2, -1, 2, types), optional=True, default=None)
    inner = {"type": "array", "items": {"type": "int32", "optional": True}, "optional": True}
    assert connect == {"type": "array", "items": inner, "optional": True}
