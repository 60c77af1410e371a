"""JSON into columns, beside Python's own json: what is JSON, what its values are, and the columns of a JSON Schema."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import InvalidSchema
from tidelog.schema.decoding.column import Column, arrow_type, map_of
from tidelog.schema.decoding.decoder import Decoder, Failed, json_reader, reader_of

LETTERS = st.characters(exclude_categories=("Cs",))
TEXTS = st.text(LETTERS, max_size=10)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)
ANY = Column("value", "json")


def read(column: Column, *texts: bytes | str | None) -> tuple[list[Any], list[Failed]]:
    values = [text.encode() if isinstance(text, str) else text for text in texts]
    made, failed = Decoder(json_reader(column)).decode(pa.array(values, pa.binary()))
    made.validate(full=True)
    return made.to_pylist(), failed


def written(draw: Any, value: Any) -> str:
    indent, ascii_only = draw(st.none() | st.integers(0, 3)), draw(st.booleans())
    return json.dumps(value, indent=indent, ensure_ascii=ascii_only)


@st.composite
def columns(draw: Any, name: str = "value", depth: int = 3) -> tuple[Column, st.SearchStrategy[Any]]:
    """A column, and values of it."""
    kind = draw(st.sampled_from(["plain"] * 3 + ["struct", "list", "map"] * (depth > 0)))
    if kind == "plain":
        plain, values = draw(st.sampled_from(sorted(PLAIN.items(), key=lambda one: one[0])))
        return Column(name, plain), st.none() | values
    if kind == "struct":
        fields = [draw(columns(f"f {i} é", depth - 1)) for i in range(draw(st.integers(1, 4)))]
        rows = st.fixed_dictionaries({column.name: values for column, values in fields})
        return Column(name, "struct", tuple(column for column, _ in fields)), st.none() | rows
    inner, values = draw(columns("element" if kind == "list" else "value", depth - 1))
    if kind == "list":
        return Column(name, "list", (inner,)), st.none() | st.lists(values, max_size=4)
    return map_of(name, Column("key", "string"), inner), st.none() | st.dictionaries(TEXTS, values, max_size=4)


PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "byte": st.integers(-128, 127),
    "short": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": TEXTS,
}


def as_arrow_shows(column: Column, value: Any) -> Any:
    if value is None:
        return None
    if column.kind == "struct":
        return {child.name: as_arrow_shows(child, value[child.name]) for child in column.children}
    if column.kind == "list":
        return [as_arrow_shows(column.children[0], one) for one in value]
    if column.kind == "map":
        return [(key, as_arrow_shows(column.children[0].children[1], one)) for key, one in value.items()]
    return value


@proves("P1", "typed")
@given(st.data())
def test_what_python_writes_is_read(data: st.DataObject) -> None:
    column, values = data.draw(columns())
    rows = data.draw(st.lists(values, max_size=5))
    made, failed = read(column, *(written(data.draw, row) for row in rows))
    assert failed == []
    assert made == [as_arrow_shows(column, row) for row in rows]


def is_json(text: bytes) -> bool:
    """By Python's rules, less what RFC 8259 does not have: NaN, halves of letters, and bytes that are not UTF-8."""
    try:
        value = json.loads(text.decode("utf-8"), parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> Any:
    raise ValueError(name)


@proves("P1", "typed", "hostile")
@given(st.data())
def test_json_is_what_python_takes_for_it(data: st.DataObject) -> None:
    text = bytearray(written(data.draw, data.draw(VALUES)).encode())
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from(
                [b"", b'"', b"\\", b"0", b"-", b".", b"e", b"{", b"}", b"[", b",", b":", b"\xff", b"\0", b" "]
            )
        )
    made, failed = read(ANY, bytes(text))
    assert (not failed) == is_json(bytes(text)), (bytes(text), failed)
    if not failed and made[0] is not None:
        assert json.loads(made[0]) == json.loads(bytes(text))


@proves("P1", "typed", "hostile")
@given(st.data())
def test_any_bytes_are_read_or_refused(data: st.DataObject) -> None:
    column, values = data.draw(columns())
    text = bytearray(json.dumps(data.draw(values)).encode())
    for _ in range(data.draw(st.integers(0, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    good = json.dumps(None)
    made, failed = read(column, good, bytes(text), good)
    assert len(made) == 3
    assert [one.row for one in failed] in ([], [1])


@proves("P1", "typed")
@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["", "0", "00000000000000000000001"]))
def test_a_double_is_rounded_as_python_rounds_it(number: float, more: str) -> None:
    text = repr(number)
    text = text + more if "." in text and "e" not in text else text
    made, failed = read(Column("x", "double"), text, f"{text}e0" if "e" not in text else text)
    assert failed == []
    assert made == [float(text)] * 2
    assert math.copysign(1, made[0]) == math.copysign(1, number)


@proves("P1", "typed")
@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=8, min_value=-(10**12), max_value=10**12), st.booleans()
)
def test_a_decimal_is_exact_and_rounds_half_up(number: Decimal, scientific: bool) -> None:
    text = f"{number:e}" if scientific else f"{number:f}"
    made, failed = read(Column("x", "decimal", precision=20, scale=3), text)
    assert failed == []
    assert made == [number.quantize(Decimal("0.001"), ROUND_HALF_UP)]


@proves("P1", "typed")
@given(
    st.datetimes(
        datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.sampled_from([UTC, timezone(timedelta(hours=-5.5))])
    ),
    st.sampled_from("T t"),
)
def test_times_are_read_as_python_writes_them(time: datetime, between: str) -> None:
    made, failed = read(Column("t", "timestamp"), json.dumps(time.isoformat(between)))
    assert failed == []
    assert made == [time]


@proves("P1", "typed")
def test_times_in_all_their_forms() -> None:
    forms = [
        "2026-02-28T12:30:00Z",
        "2026-02-28 12:30",
        "2026-02-28T14:30:00,0+0200",
        "2026-02-28T11:30:00.000000999-01",
    ]
    made, failed = read(Column("t", "timestamp"), *map(json.dumps, forms))
    assert failed == []
    assert made == [datetime(2026, 2, 28, 12, 30, tzinfo=UTC)] * 4
    bad = ["2026-02-29T00:00:00Z", "2026-02-28", "2026-02-28T25:00:00Z", "2026-02-28T12:30:00Zx", "12", ""]
    assert len(read(Column("t", "timestamp"), *map(json.dumps, bad))[1]) == len(bad)


@proves("P1", "typed")
@given(st.dates())
def test_dates_are_read(day: date) -> None:
    assert read(Column("d", "date"), json.dumps(day.isoformat())) == ([day], [])


@proves("P1", "typed")
@given(st.binary(max_size=20))
def test_bytes_are_base64(data: bytes) -> None:
    assert read(Column("b", "binary"), json.dumps(base64.b64encode(data).decode())) == ([data], [])


@proves("P1", "typed")
def test_the_last_of_two_members_counts_and_others_are_left_out() -> None:
    inner = Column("b", "list", (Column("element", "long"),))
    column = Column("value", "struct", (Column("a", "string"), inner))
    text = '{"b": [1, 2], "x": {"a": [{}]}, "a": "one", "b": [3], "\\u0061": "two"}'
    assert read(column, text, "{}", "null") == ([{"a": "two", "b": [3]}, {"a": None, "b": None}, None], [])


@proves("P1", "typed")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": "x"}', "a: the value is of another type, at byte 6"),
        ('{"a": 1.5}', "a: the value is of another type, at byte 9"),
        ('{"a": 9223372036854775808}', "a: a number is out of range, at byte 25"),
        ('{"a": 1', "it ends too early, at byte 7"),
        ('{"a": 1} {}', "something comes after its end, at byte 9"),
        ("[]", "the value is of another type, at byte 0"),
        ("", "it ends too early, at byte 0"),
        ('{"a": 1, "b": "\\x"}', "b: an escape in a text is not valid in JSON, at byte 17"),
        ('{"a": nul}', "a: it is not JSON, at byte 6"),
        ("this is not JSON", "it is not JSON, at byte 0"),
        ("hello", "it is not JSON, at byte 0"),
        ("id,amount", "it is not JSON, at byte 0"),
        ('{"a": tea}', "a: it is not JSON, at byte 6"),
        ('{"b": tea}', "b: it is not JSON, at byte 6"),
        ("true", "the value is of another type, at byte 0"),
        ('{"b": [1]}', "b: the value is of another type, at byte 6"),
    ],
)
def test_the_reason_says_where_and_why(text: str, said: str) -> None:
    column = Column("value", "struct", (Column("a", "long"), Column("b", "string")))
    assert read(column, text)[1] == [Failed(0, said)]


@proves("P1", "typed")
def test_whole_numbers_may_be_written_as_others() -> None:
    assert read(Column("n", "long"), "1.0", "1e3", "-0.0", "120e-1", "0e999999999999") == ([1, 1000, 0, 12, 0], [])


@proves("P1", "typed", "hostile")
def test_nesting_is_bounded() -> None:
    assert "nested too deep" in read(ANY, "[" * 100_000)[1][0].reason
    assert read(ANY, "[" * 100 + "]" * 100)[1] == []


@proves("P1", "typed")
def test_a_map_with_a_key_twice_is_refused() -> None:
    column = map_of("m", Column("key", "string"), Column("value", "long"))
    many = json.dumps({str(n): n for n in range(1000)})
    made, failed = read(column, '{"a": 1, "b": 2, "a": 3}', many, many[:-1] + ', "17": 1}')
    assert [one.row for one in failed] == [0, 2]
    assert failed[0].reason.startswith("the map has a key twice")
    assert dict(made[1]) == {str(n): n for n in range(1000)}


# --- JSON Schema -----------------------------------------------------------------------------------------------------

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "note": {"type": ["string", "null"]},
        "paid": {"type": "boolean"},
        "day": {"type": "string", "format": "date"},
        "at": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
        "status": {"enum": ["open", "closed", None]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "anything": {},
        "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "both": {"allOf": [{"$ref": "#/definitions/line"}, {"properties": {"gift": {"type": "boolean"}}}]},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}]},
    },
    "definitions": {"line": {"type": "object", "properties": {"item": {"type": "string", "maxLength": 9}}}},
}


@proves("P1", "typed")
def test_the_columns_of_a_json_schema() -> None:
    kind = arrow_type(reader_of("JSON", json.dumps(ORDER), {}).column)
    line = pa.struct([("item", pa.string())])
    assert {field.name: field.type for field in kind} == {
        "id": pa.int64(),
        "price": pa.float64(),
        "note": pa.string(),
        "paid": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "status": pa.string(),
        "lines": pa.list_(pa.field("element", line)),
        "tags": pa.map_(pa.string(), pa.string()),
        "anything": pa.string(),
        "either": pa.string(),
        "both": pa.struct([("item", pa.string()), ("gift", pa.bool_())]),
        "pair": pa.string(),
    }


@proves("P1", "typed")
def test_a_value_of_a_json_schema() -> None:
    value = {
        "id": 1,
        "lines": [{"item": "pen"}],
        "tags": {"a": "b"},
        "anything": {"x": [1, None]},
        "either": 5,
        "status": None,
    }
    made, failed = Decoder(reader_of("JSON", json.dumps(ORDER), {})).decode(
        pa.array([json.dumps(value).encode()], pa.binary())
    )
    assert failed == []
    [row] = made.to_pylist()
    assert (row["id"], row["lines"], row["tags"]) == (1, [{"item": "pen"}], [("a", "b")])
    assert (json.loads(row["anything"]), row["either"], row["price"]) == ({"x": [1, None]}, "5", None)


@proves("P1", "typed")
def test_a_json_schema_that_contains_itself_is_refused_by_name() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}}}
    with pytest.raises(InvalidSchema, match="contains itself at 'left'"):
        reader_of("JSON", json.dumps(tree), {})
