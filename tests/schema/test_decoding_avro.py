"""Avro into columns: random schemas and values as fastavro writes them, and schemas resolved as it resolves them."""

from __future__ import annotations

import io
import json
from array import array
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from itertools import product
from typing import Any, NamedTuple
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import InvalidSchema
from tidelog.schema.decoding import _decode
from tidelog.schema.decoding.decoder import Decoder, Failed, reader_of
from tidelog.schema.formats import parse

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROS = st.integers(-(10**15), 10**15)  # of a time that Python's datetime has


class Pair(NamedTuple):
    """What fastavro is given, and what is to come out."""

    given: Any
    expected: Any


class Typed(NamedTuple):
    schema: Any
    values: st.SearchStrategy[Pair]


def same(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Pair]:
    return values.map(lambda value: Pair(value, value))


def moment(schema: str, unit: int, zone: Any) -> Typed:
    def pair(number: int) -> Pair:
        time = EPOCH + timedelta(microseconds=number * unit)
        return Pair(number, time if zone else time.replace(tzinfo=None))

    return Typed({"type": "long", "logicalType": schema}, st.integers(-(10**15) // unit, 10**15 // unit).map(pair))


def decimal(underlying: dict[str, Any], precision: int, scale: int) -> Typed:
    def pair(number: int) -> Pair:
        with localcontext() as context:
            context.prec = 50
            value = Decimal(number).scaleb(-scale)
        return Pair(value, value)

    most = 10**precision - 1
    schema = {**underlying, "logicalType": "decimal", "precision": precision, "scale": scale}
    return Typed(schema, st.integers(-most, most).map(pair))


LETTERS = st.characters(exclude_categories=("Cs",))
FLOATS = st.floats(width=32, allow_nan=False)
PLAIN = [
    Typed("boolean", same(st.booleans())),
    Typed("int", same(st.integers(-(2**31), 2**31 - 1))),
    Typed("long", same(st.integers(-(2**63), 2**63 - 1))),
    Typed("float", same(FLOATS)),
    Typed("double", same(st.floats(allow_nan=False))),
    Typed("bytes", same(st.binary(max_size=20))),
    Typed("string", same(st.text(LETTERS, max_size=20))),
    Typed(
        {"type": "int", "logicalType": "date"},
        st.integers(-700000, 2_900_000).map(lambda n: Pair(n, date(1970, 1, 1) + timedelta(n))),
    ),
    Typed({"type": "string", "logicalType": "uuid"}, st.uuids().map(lambda one: Pair(one, str(one)))),
    moment("timestamp-millis", 1000, UTC),
    moment("timestamp-micros", 1, UTC),
    moment("local-timestamp-millis", 1000, None),
    moment("local-timestamp-micros", 1, None),
    decimal({"type": "bytes"}, 38, 10),
    decimal({"type": "bytes"}, 5, 0),
]


@st.composite
def any_typed(draw: Any, names: list[str] | None = None, depth: int = 3) -> Typed:
    names = [] if names is None else names
    kind = draw(
        st.sampled_from(["plain"] * 4 + ["named"] + (["array", "map", "record", "null", "union"] * (depth > 0)))
    )
    if kind == "plain":
        return draw(st.sampled_from(PLAIN))
    if kind == "named":
        return draw(named(names))
    if kind == "array":
        inner = draw(any_typed(names, depth - 1))
        lists = st.lists(inner.values, max_size=4).map(
            lambda some: Pair([p.given for p in some], [p.expected for p in some])
        )
        return Typed({"type": "array", "items": inner.schema}, lists)
    if kind == "map":
        inner = draw(any_typed(names, depth - 1))
        maps = st.dictionaries(st.text(LETTERS, max_size=5), inner.values, max_size=4)
        pairs = maps.map(
            lambda some: Pair({k: p.given for k, p in some.items()}, [(k, p.expected) for k, p in some.items()])
        )
        return Typed({"type": "map", "values": inner.schema}, pairs)
    if kind == "record":
        return draw(record(names, depth - 1))
    return draw(union(names, depth - 1, most=1 if kind == "null" else 3))


@st.composite
def named(draw: Any, names: list[str]) -> Typed:
    names.append(f"n{len(names)}")
    name = names[-1]
    kind = draw(st.sampled_from(["enum", "fixed", "decimal", "uuid"]))
    if kind == "enum":
        symbols = ["A", "Bc", "d_1"]
        return Typed({"type": "enum", "name": name, "symbols": symbols}, same(st.sampled_from(symbols)))
    if kind == "decimal":
        return decimal({"type": "fixed", "name": name, "size": 9}, 20, 3)
    if kind == "uuid":
        schema = {"type": "fixed", "name": name, "size": 16, "logicalType": "uuid"}
        return Typed(schema, st.uuids().map(lambda one: Pair(one.bytes, str(one))))
    size = draw(st.integers(0, 20))
    return Typed({"type": "fixed", "name": name, "size": size}, same(st.binary(min_size=size, max_size=size)))


@st.composite
def record(draw: Any, names: list[str], depth: int) -> Typed:
    names.append(f"n{len(names)}")
    name = names[-1]
    fields = {f"f{i}": draw(any_typed(names, depth)) for i in range(draw(st.integers(1, 4)))}
    schema = {"type": "record", "name": name, "fields": [{"name": n, "type": t.schema} for n, t in fields.items()]}
    rows = st.fixed_dictionaries({n: t.values for n, t in fields.items()})
    return Typed(
        schema,
        rows.map(lambda row: Pair({n: p.given for n, p in row.items()}, {n: p.expected for n, p in row.items()})),
    )


@st.composite
def union(draw: Any, names: list[str], depth: int, most: int) -> Typed:
    """With null, and perhaps with several others, which then are the members of a struct."""
    others = {
        _branch_name(one.schema): one for one in draw(st.lists(any_typed(names, depth), min_size=1, max_size=most))
    }
    others = {name: one for name, one in others.items() if not isinstance(one.schema, list)}
    if {name for name, one in others.items() if isinstance(one.schema, str)} & {"int", "float"}:
        others = dict(list(others.items())[:1])  # int and long would become one
    if not others:
        others = {"string": Typed("string", same(st.text(LETTERS, max_size=5)))}
    choices = [st.just(Pair(None, None))]
    for index, (name, one) in enumerate(others.items()):
        choices.append(one.values.map(lambda pair, i=index, n=name: _chosen(pair, i, n, len(others))))
    return Typed(["null", *(one.schema for one in others.values())], st.one_of(choices))


def _chosen(pair: Pair, index: int, name: str, count: int) -> Pair:
    expected = (
        pair.expected if count == 1 else {f"member{i}": pair.expected if i == index else None for i in range(count)}
    )
    return Pair((name, pair.given), expected)


def _branch_name(schema: Any) -> str:
    if isinstance(schema, dict):
        return schema["name"] if "name" in schema else schema["type"]
    return schema if isinstance(schema, str) else "union"


def write(schema: Any, values: list[Any]) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    made = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        made.append(out.getvalue())
    return made


def decoder(schema: Any) -> Decoder:
    return Decoder(reader_of("AVRO", json.dumps(schema), {}))


def read(schema: Any, values: list[bytes | None]) -> tuple[list[Any], list[Failed]]:
    made, failed = decoder(schema).decode(pa.array(values, pa.binary()))
    made.validate(full=True)
    return made.to_pylist(), failed


@proves("P1", "typed")
@given(st.data())
def test_what_fastavro_writes_is_read(data: st.DataObject) -> None:
    typed = data.draw(any_typed())
    pairs = data.draw(st.lists(typed.values, max_size=6))
    made, failed = read(typed.schema, write(typed.schema, [pair.given for pair in pairs]))
    assert failed == []
    assert made == [pair.expected for pair in pairs]


@proves("P1", "typed", "hostile")
@given(st.data())
def test_a_row_that_is_cut_or_changed_fails_alone(data: st.DataObject) -> None:
    typed = data.draw(any_typed())
    pairs = data.draw(st.lists(typed.values, min_size=3, max_size=3))
    first, middle, last = write(typed.schema, [pair.given for pair in pairs])
    changed = bytearray(middle)
    for _ in range(data.draw(st.integers(0, 3))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    bad = bytes(changed[: data.draw(st.integers(0, len(changed)))])
    made, failed = read(typed.schema, [first, bad, last])
    assert (made[0], made[2]) == (pairs[0].expected, pairs[2].expected)
    assert [one.row for one in failed] in ([], [1])
    if failed:
        assert made[1] is None


@proves("P1", "typed", "hostile")
@given(st.data())
def test_any_bytes_are_read_or_refused(data: st.DataObject) -> None:
    typed = data.draw(any_typed())
    rows = data.draw(st.lists(st.none() | st.binary(max_size=40), max_size=10))
    made, failed = read(typed.schema, rows)
    assert len(made) == len(rows)
    assert {one.row for one in failed} <= {row for row, value in enumerate(rows) if value is not None}


# --- two schemas -----------------------------------------------------------------------------------------------------


def framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def resolved(reader: Any, writers: dict[int, Any], values: list[bytes]) -> tuple[list[Any], list[Failed]]:
    schemas = {number: parse("AVRO", json.dumps(writer), {}) for number, writer in writers.items()}
    made = Decoder(reader_of("AVRO", json.dumps(reader), {}), lambda n: schemas.get(n, f"no schema {n}"))
    column, failed = made.decode(pa.array(values, pa.binary()))
    column.validate(full=True)
    return column.to_pylist(), failed


def fields(*listed: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(listed), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


PROMOTIONS = [
    *[("int", "int"), ("int", "long"), ("int", "float"), ("int", "double"), ("long", "long"), ("long", "float")],
    *[("long", "double"), ("float", "float"), ("float", "double"), ("double", "double"), ("string", "string")],
    *[("string", "bytes"), ("bytes", "bytes")],
]
VALUES = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**53), 2**53),
    "float": FLOATS,
    "double": st.floats(allow_nan=False),
    "string": st.text(LETTERS, max_size=10),
    "bytes": st.binary(max_size=10),
}
DEFAULTS = {"int": 7, "long": -(2**40), "float": 0.5, "double": 1e300, "string": "é", "bytes": "\u00ff"}


@proves("P1", "typed")
@given(st.data())
def test_a_record_is_resolved_as_fastavro_resolves_it(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(PROMOTIONS), min_size=1, max_size=6))
    names = [f"f{i}" for i in range(len(kinds))]
    writer = fields(*(field(n, w) for n, (w, _) in zip(names, kinds, strict=True)))
    kept = data.draw(st.lists(st.sampled_from(range(len(kinds))), unique=True))
    listed = [field(f"f{i}", ["null", kinds[i][1]] if data.draw(st.booleans()) else kinds[i][1]) for i in kept]
    for i, kind in enumerate(data.draw(st.lists(st.sampled_from(sorted(DEFAULTS)), min_size=1, max_size=3))):
        listed.append(field(f"new{i}", kind, default=DEFAULTS[kind]))
    reader = fields(*data.draw(st.permutations(listed)))
    row = {n: data.draw(VALUES[w]) for n, (w, _) in zip(names, kinds, strict=True)}
    [encoded] = write(writer, [row])
    expected = fastavro.schemaless_reader(
        io.BytesIO(encoded), fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    )
    floats = {one["name"] for one in reader["fields"] if one["type"] in ("float", ["null", "float"])}
    for name in floats:
        expected[name] = pa.scalar(expected[name], pa.float32()).as_py()
    for one in reader["fields"]:  # fastavro leaves a default of bytes as the text of the schema
        if one.get("type") == "bytes" and isinstance(expected[one["name"]], str):
            expected[one["name"]] = expected[one["name"]].encode("latin-1")
    assert resolved(reader, {1: writer}, [framed(1, encoded)]) == ([expected], [])


@proves("P1", "typed")
def test_each_record_may_have_a_writer_of_its_own() -> None:
    old, new = fields(field("id", "int")), fields(field("note", "string"), field("id", "long"))
    reader = fields(field("id", "long"), field("note", "string", default="none"))
    [one], [two] = write(old, [{"id": 1}]), write(new, [{"id": 2, "note": "n"}])
    made, failed = resolved(reader, {1: old, 2: new}, [framed(1, one), framed(2, two), framed(1, one), framed(3, one)])
    assert made == [{"id": 1, "note": "none"}, {"id": 2, "note": "n"}, {"id": 1, "note": "none"}, None]
    assert failed == [Failed(3, "no schema 3")]


@proves("P1", "typed")
def test_a_value_without_a_frame_is_told() -> None:
    schema = fields(field("id", "int"))
    [one] = write(schema, [{"id": 1}])
    made, failed = resolved(schema, {1: schema}, [framed(1, one), b"", b"\1\0\0\0\1\2", framed(1, one)[:3]])
    assert made == [{"id": 1}, None, None, None]
    assert [one.row for one in failed] == [1, 2, 3]
    assert "no frame" in failed[0].reason


@proves("P1", "typed")
def test_aliases_and_nested_defaults_and_recursive_records_that_are_skipped() -> None:
    tree = {"type": "record", "name": "Tree", "fields": [field("left", ["null", "Tree"]), field("n", "int")]}
    writer = fields(field("tree", tree), field("old", "int"), field("m", {"type": "map", "values": "string"}))
    inner = fields(field("a", "int"), field("b", {"type": "array", "items": "long"}), name="Inner")
    reader = fields(
        field("new", "long", aliases=["old"]),
        field("inner", inner, default={"a": 5, "b": [1, 2]}),
        field("maybe", ["null", "string"], default=None),
    )
    value = {"tree": {"left": {"left": None, "n": 1}, "n": 2}, "old": 3, "m": {"x": "y"}}
    [encoded] = write(writer, [value])
    made, failed = resolved(reader, {1: writer}, [framed(1, encoded)])
    assert failed == []
    assert made == [{"new": 3, "inner": {"a": 5, "b": [1, 2]}, "maybe": None}]


@proves("P1", "typed")
def test_only_rows_with_what_the_reader_cannot_read_fail() -> None:
    writer = fields(field("v", ["int", "string"]), field("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}))
    reader = fields(field("v", "long"), field("e", {"type": "enum", "name": "E", "symbols": ["A"]}))
    rows = write(writer, [{"v": 1, "e": "A"}, {"v": "x", "e": "A"}, {"v": 2, "e": "B"}])
    made, failed = resolved(reader, {1: writer}, [framed(1, row) for row in rows])
    assert made == [{"v": 1, "e": "A"}, None, None]
    assert failed[0].reason == "v: a reader of long cannot read string"
    assert failed[1].reason.startswith("e: the enum has no symbol 1")


@proves("P1", "typed")
def test_a_reader_that_lacks_a_default_fails_every_row_with_the_reason() -> None:
    writer, reader = fields(field("a", "int")), fields(field("a", "int"), field("b", "int"))
    made, failed = resolved(reader, {1: writer}, [framed(1, row) for row in write(writer, [{"a": 1}])])
    assert made == [None]
    assert "'b' has no default" in failed[0].reason


@proves("P1", "typed")
def test_times_keep_their_instant_when_the_unit_changes() -> None:
    def time(unit: str) -> dict[str, Any]:
        return fields(field("t", {"type": "long", "logicalType": f"timestamp-{unit}"}))

    rows = write(time("millis"), [{"t": 1500}]) + write(time("micros"), [{"t": -1}]) + write(time("nanos"), [{"t": -1}])
    writers = {1: time("millis"), 2: time("micros"), 3: time("nanos")}
    made, failed = resolved(time("micros"), writers, [framed(n, row) for n, row in enumerate(rows, 1)])
    assert failed == []
    assert [row["t"] for row in made] == [EPOCH + timedelta(seconds=1.5), *[EPOCH - timedelta(microseconds=1)] * 2]


@proves("P1", "typed")
def test_int_with_long_and_float_with_double_are_one_column() -> None:
    schema = fields(field("n", ["null", "int", "long"]), field("x", ["float", "double"]))
    values = [
        {"n": ("int", 1), "x": ("float", 0.5)},
        {"n": ("long", 2**40), "x": ("double", 0.1)},
        {"n": None, "x": 2.0},
    ]
    made, failed = read(schema, write(schema, values))
    assert failed == []
    assert made == [{"n": 1, "x": 0.5}, {"n": 2**40, "x": 0.1}, {"n": None, "x": 2.0}]


# --- what is refused -------------------------------------------------------------------------------------------------


@proves("P1", "typed")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ({"type": "record", "name": "T", "fields": [field("t", ["null", "T"])]}, "'T' contains itself"),
        ("null", "'x' is always null"),
        (["null"], "'x' is a union of null alone"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "has 39 digits"),
        ({"type": "record", "name": "E", "fields": []}, "'E' at 'x' has no fields"),
    ],
)
def test_what_no_column_can_hold_is_refused_by_name(kind: Any, said: str) -> None:
    with pytest.raises(InvalidSchema, match=said):
        reader_of("AVRO", json.dumps(fields(field("x", kind))), {})


@proves("P1", "typed")
def test_a_default_that_is_none_is_told() -> None:
    writer, reader = fields(field("a", "int")), fields(field("a", "int"), field("b", "int", default="x"))
    _, failed = resolved(reader, {1: writer}, [framed(1, row) for row in write(writer, [{"a": 1}])])
    assert "the default of 'b' is not of its type" in failed[0].reason


@proves("P1", "typed", "hostile")
def test_arrays_that_take_no_bytes_are_bounded() -> None:
    schema = fields(field("a", {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}))
    huge = b"\xfe\xff\xff\xff\xff\x7f"
    made, failed = read(schema, [huge, b"\x04\x00"])
    assert made == [None, {"a": [b"", b""]}]
    assert failed[0].reason.startswith("a: it has more items than bytes")


@proves("P1", "typed", "hostile")
def test_a_writer_that_nests_without_end_is_stopped() -> None:
    tree = {"type": "record", "name": "T", "fields": [field("t", ["null", "T"])]}
    writer, reader = fields(field("t", tree), field("a", "int")), fields(field("a", "int"))
    _, failed = resolved(reader, {1: writer}, [framed(1, b"\2" * 100_000)])
    assert "nested too deep" in failed[0].reason


@proves("P1", "typed")
def test_slices_and_empty_arrays_are_read() -> None:
    schema = fields(field("a", "int"))
    rows = write(schema, [{"a": n} for n in range(20)])
    values = pa.array([None, *rows], pa.binary())
    one = decoder(schema)
    assert one.decode(values.slice(5, 3))[0].to_pylist() == [{"a": 4}, {"a": 5}, {"a": 6}]
    assert one.decode(values.slice(0, 2))[0].to_pylist() == [None, {"a": 0}]
    assert one.decode(values.slice(0, 0))[0].to_pylist() == []
    assert one.decode(pa.array([], pa.binary()))[0].to_pylist() == []


@proves("P1", "typed")
def test_an_error_leaves_nothing_behind_for_the_next_batch() -> None:
    def writer_of(number: int) -> Any:
        if number == 2:
            raise OSError("the registry is away")
        return parse("AVRO", json.dumps(schema), {})

    schema = fields(field("a", "int"))
    one = Decoder(reader_of("AVRO", json.dumps(schema), {}), writer_of)
    [row] = write(schema, [{"a": 1}])
    with pytest.raises(OSError, match="away"):
        one.decode(pa.array([framed(1, row), framed(2, row)], pa.binary()))
    rows = _decode.Rows(2, 0, None, memoryview(array("i", [0, 1, 2])).cast("B"), row * 2)
    with pytest.raises(ValueError, match="row 1 has no program 7"):
        _decode.decode(one._columns, [one._by_kind[1, b""].program], rows, array("i", [0, 7]).tobytes())
    assert one.decode(pa.array([framed(1, row)], pa.binary()))[0].to_pylist() == [{"a": 1}]


EDGES = bytes.fromhex("00 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ed ee ef f0 f1 f4 f5 ff")


@proves("P1", "typed", "hostile")
def test_a_text_is_utf8_where_python_says_so() -> None:
    """All texts of up to four bytes at the edges of what UTF-8 has: 245,000 of them."""
    texts = [bytes(one) for size in range(1, 5) for one in product(EDGES, repeat=size)]
    made, failed = decoder("string").decode(pa.array([bytes([2 * len(text)]) + text for text in texts], pa.binary()))
    bad = {one.row for one in failed}
    wrong = [text for row, text in enumerate(texts) if (row in bad) == _is_utf8(text)]
    assert wrong == []
    made.validate(full=True)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@proves("P1", "typed")
def test_a_uuid_in_sixteen_bytes_is_text() -> None:
    schema = fields(field("u", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}))
    one = UUID("12345678-9abc-def0-1234-56789abcdef0")
    assert read(schema, [one.bytes]) == ([{"u": str(one)}], [])
