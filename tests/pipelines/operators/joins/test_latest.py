"""A stream with a table as it is when a row comes, without Spark: against a dictionary, after every step."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.joins.driving import FEWER, KEYED, Driver, Row, in_a_batch, left, right
from proving import proves
from tidelog.pipelines.operators.joins.latest import Latest
from tidelog.pipelines.operators.joins.sides import GONE, ORDER
from tidelog.pipelines.operators.state.fold import SIDE

ROW = pa.schema([(SIDE, pa.int8()), (GONE, pa.bool_()), (ORDER, pa.int64()), *KEYED.all])
KEYS = st.sampled_from(["a", "b", None])
STEPS = st.lists(st.lists(st.tuples(st.booleans(), KEYS, st.booleans()), max_size=6), max_size=8)


def driver(load_until: int | None = None) -> Driver:
    return Driver(lambda: Latest(KEYED, load_until), ROW, ["k"])


def row_of(k: str | None, number: int | None) -> Row:
    return right(k=k, r=number, **{GONE: number is None})


def plain(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted((row["l"], row["r"]) for row in rows)


@proves("P9")
@FEWER
@given(STEPS)
def test_a_row_meets_what_its_key_has_when_all_changes_of_its_step_are_in(steps: list[Any]) -> None:
    operator, table, number = driver(), dict[str, int](), 0
    for changes in steps:
        rows, events = [], []
        for is_event, key, gone in changes:
            number += 1
            if is_event:
                events.append((key, number))
                rows.append(left(k=key, l=number))
                continue
            rows.append(row_of(key, None if gone else number))
            if key is not None:
                table.pop(key, None)
                table |= {} if gone else {key: number}
        found = operator.step(rows)
        assert plain(found) == sorted((event, table.get(key or "")) for key, event in events)
        assert {row["k"]: row["r"] for row in operator.state()} == table


@proves("P9")
def test_rows_wait_until_the_table_is_loaded() -> None:
    operator = driver(load_until=10)
    assert operator.step([left(k="a", l=1), row_of("a", 1)]) == []
    assert operator.step([row_of("a", 2)], 9) == []
    assert plain(operator.step([left(k="a", l=3)], 10)) == [(1, 2), (3, 2)]
    assert plain(operator.step([left(k="b", l=4)])) == [(4, None)]
    assert [row[SIDE] for row in operator.state()] == [1]


@proves("P9", "B1")
def test_in_a_batch_the_table_is_whole_before_the_stream_begins() -> None:
    rows = [left(k="a", l=1), {**row_of("a", 2), ORDER: 2}, {**row_of("a", 1), ORDER: 1}]
    assert plain(in_a_batch(Latest(KEYED, 10), rows, ROW, ["k"])) == [(1, 2)]
