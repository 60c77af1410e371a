"""What joins answer: rows of the join, and what a table has, of one key, by the names that users know."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.joins.driving import FEWER, Driver, Row, left, right
from proving import proves
from tidelog.pipelines.operators.changelog import COUNT
from tidelog.pipelines.operators.joins.as_of import TIME, AsOf
from tidelog.pipelines.operators.joins.latest import Latest
from tidelog.pipelines.operators.joins.sides import GONE, ORDER, Columns
from tidelog.pipelines.operators.joins.tables import KINDS, LEFT_ONLY, TableJoin
from tidelog.pipelines.operators.state.fold import SIDE, Clock

NAMED = Columns(pa.schema([("k_id", pa.string())]), pa.schema([("l_a", pa.int64())]), pa.schema([("r_b", pa.int64())]))
CHANGES = pa.schema([(SIDE, pa.int8()), (COUNT, pa.int64()), *NAMED.all])
UPSERTS = pa.schema([(SIDE, pa.int8()), (GONE, pa.bool_()), (ORDER, pa.int64()), *NAMED.all])


def answer(driver: Driver, key: str) -> list[Row]:
    fold = driver.make()
    state = pa.Table.from_pylist([row for row in driver.state() if row["k_id"] == key], fold.state_schema)
    return fold.answer(state, Clock(driver.time, 0)).to_pylist()  # type: ignore[attr-defined,no-any-return]


ROWS = st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.integers(0, 2)), max_size=12)


@proves("P6", "P9")
@FEWER
@given(how=st.sampled_from(KINDS), rows=ROWS)
def test_a_table_join_answers_with_the_rows_that_it_has_put_out(how: str, rows: list[Any]) -> None:
    driver = Driver(lambda: TableJoin(NAMED, how), CHANGES, ["k_id"])
    table: Counter[Any] = Counter()
    for is_left, key, number in rows:
        one = left(k_id=key, l_a=number, r_b=None) if is_left else right(k_id=key, l_a=None, r_b=number)
        for told in driver.step([{**one, COUNT: 1}]):
            row = (told["k_id"], told["l_a"], told.get("r_b"))
            table[row] += 1 if told["_op"] in ("+I", "+U") else -1
    for key in "abc":
        found = Counter((row["id"], row["a"], row.get("b")) for row in answer(driver, key))
        assert found == Counter({row: count for row, count in table.items() if row[0] == key and count})
        assert all(("b" in row) == (how not in LEFT_ONLY) for row in answer(driver, key))


@proves("P6", "P10")
@pytest.mark.parametrize("by_time", [False, True])
def test_an_enrichment_answers_with_what_the_table_has(by_time: bool) -> None:
    schema = UPSERTS.append(pa.field(TIME, pa.timestamp("us", "UTC"))) if by_time else UPSERTS
    make = (lambda: AsOf(NAMED, 1000)) if by_time else (lambda: Latest(NAMED, None))
    driver = Driver(make, schema, ["k_id"])
    at = [{TIME: n * 1000} if by_time else {} for n in range(3)]
    driver.step([right(k_id="a", r_b=1, **{GONE: False, ORDER: 1}, **at[1])], watermark=0)
    driver.step([right(k_id="b", r_b=5, **{GONE: False, ORDER: 1}, **at[1])])
    driver.step([right(k_id="b", **{GONE: True, ORDER: 2}, **at[2])], watermark=50)
    assert answer(driver, "a") == [{"id": "a", "b": 1}]
    assert answer(driver, "b") == []
