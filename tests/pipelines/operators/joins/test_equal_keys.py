"""Keys that are equal in Spark's SQL and have other bits: zeros of both signs, and all that is not a number."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipelines.operators.joins.driving import left, right
from pipelines.operators.state.test_bucket import Kept
from proving import proves
from tidelog.errors import UsageError
from tidelog.pipelines.operators.changelog import COUNT, OP
from tidelog.pipelines.operators.joins.latest import Latest
from tidelog.pipelines.operators.joins.sides import GONE, ORDER, Columns
from tidelog.pipelines.operators.joins.tables import TableJoin
from tidelog.pipelines.operators.state.bucket import Layout, step_bucket
from tidelog.pipelines.operators.state.checking import check_key_type
from tidelog.pipelines.operators.state.fold import HASH, SIDE, Clock, Fold
from tidelog.pipelines.operators.state.key_values import with_plain_keys

KEYS = ["k"]
ONE_HASH = 7  # Spark's xxhash64 has one for zeros, and one for all that is not a number


def nan(bits: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return number


PAIRS = [
    pytest.param(0.0, -0.0, id="zeros"),
    pytest.param(nan(0x7FF8000000000000), nan(0xFFF8000000000000), id="signs of NaN"),
    pytest.param(nan(0x7FF8000000000001), nan(0x7FF0000000000001), id="payloads of NaN"),
]


def columns(kind: pa.DataType) -> Columns:
    return Columns(pa.schema([("k", kind)]), pa.schema([("l", pa.int64())]), pa.schema([("r", pa.int64())]))


class Steps:
    """One bucket, whose state is bytes between steps. `keys` as those had it who wrote it before."""

    def __init__(self, fold: Fold, more: list[tuple[str, pa.DataType]], of: Columns) -> None:
        self.fold, self.kept = fold, Kept()
        self.schema = pa.schema([(SIDE, pa.int8()), *more, *of.all, (HASH, pa.int64())])

    def __call__(self, *rows: dict[str, Any], keys: list[str] = KEYS) -> list[dict[str, Any]]:
        table = pa.Table.from_pylist([{**row, HASH: ONE_HASH} for row in rows], self.schema)
        found: list[dict[str, Any]] = step_bucket(
            self.fold, self.kept, Layout(1, 1), table, Clock(None, 0), keys=keys
        ).to_pylist()
        return found


def joining(kind: pa.DataType) -> Steps:
    return Steps(TableJoin(columns(kind), "inner"), [(COUNT, pa.int64())], columns(kind))


@proves("P8")
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_keys_that_are_equal_in_sql_meet_and_take_each_other_back(one: float, other: float, kind: pa.DataType) -> None:
    step = joining(kind)
    assert step(left(k=one, l=1, _count=1)) == []
    (met,) = step(right(k=other, r=2, _count=1))
    assert (met["l"], met["r"], met[OP]) == (1, 2, "+I")
    (gone,) = step(left(k=other, l=1, _count=-1))
    assert (gone["l"], gone["r"], gone[OP]) == (1, 2, "-D"), "and the query goes on"
    assert step(right(k=one, r=2, _count=-1)) == [] and len(step(left(k=one, l=1, _count=1))) == 0


@proves("P8")
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_row_meets_what_the_table_says_of_an_equal_key(one: float, other: float) -> None:
    of = columns(pa.float64())
    step = Steps(Latest(of, None), [(GONE, pa.bool_()), (ORDER, pa.int64())], of)
    step(right(k=one, r=2))
    assert [(row["l"], row["r"]) for row in step(left(k=other, l=1), left(k=3.5, l=4))] == [(1, 2), (4, None)]
    step(right(k=other, r=2, _gone=True))
    assert [(row["l"], row["r"]) for row in step(left(k=one, l=1))] == [(1, None)]


@proves("P8")
def test_state_from_before_is_read_with_its_keys_as_they_are_now() -> None:
    step = joining(pa.float64())
    step(left(k=-0.0, l=1, _count=1), keys=[])  # as it was written: with the sign
    (met,) = step(right(k=0.0, r=2, _count=1))
    assert (met["l"], met["r"]) == (1, 2)
    assert len(step(left(k=0.0, l=1, _count=-1))) == 1


@proves("P8")
def test_only_keys_are_changed_and_only_where_they_must_be() -> None:
    rows = pa.table({"k": [-0.0, 1.5, None], "s": ["a", None, "c"], "v": [-0.0, None, 2.0], HASH: [1, 2, 3]})
    plain = with_plain_keys(rows, ["k", "s", "there is none"])
    assert plain["k"].to_pylist() == [0.0, 1.5, None] and not np.signbit(plain["k"].to_pylist()[0])
    assert np.signbit(plain["v"].to_pylist()[0]), "values stay as they are"
    assert plain.drop_columns(["k"]) == rows.drop_columns(["k"])
    assert with_plain_keys(rows, ["s"]) is rows


@proves("P8")
def test_keys_within_structs_and_lists_are_made_plain_too() -> None:
    kind = pa.struct([("a", pa.float64()), ("b", pa.list_(pa.float32()))])
    given = [{"a": -0.0, "b": [-0.0, None, 1.0]}, None, {"a": None, "b": None}, {"a": nan(0xFFF8000000000001), "b": []}]
    rows = pa.table({"k": pa.chunked_array([pa.array(given[:2], kind), pa.array(given, kind).slice(2)])})
    plain = with_plain_keys(rows, ["k"])["k"]
    assert plain.type == kind
    first, second, third, fourth = plain.to_pylist()
    assert (second, third) == (None, {"a": None, "b": None})
    assert first == {"a": 0.0, "b": [0.0, None, 1.0]} and not np.signbit([first["a"], first["b"][0]]).any()
    assert struct.pack("<d", fourth["a"]) == struct.pack("<d", np.nan) and fourth["b"] == []


@proves("P8")
def test_texts_that_are_equal_by_a_collation_alone_are_refused_as_keys() -> None:
    fold = replace(TableJoin(columns(pa.string()), "inner"))
    check_key_type(fold, "name", "string")
    for kind in ("string collate UTF8_LCASE", "struct<a:array<string collate UNICODE_CI>>"):
        with pytest.raises(UsageError, match=r"collate\(name, 'UTF8_BINARY'\)"):
            check_key_type(fold, "name", kind)
