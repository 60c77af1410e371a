"""A stream with a table as of event time, without Spark: against a search through all that came, after every step."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.joins.driving import FEWER, KEYED, Driver, Row, arrow, in_a_batch, left, right
from proving import proves
from tidelog.pipelines.operators.joins.as_of import LATE, MATCHED, TIME, AsOf
from tidelog.pipelines.operators.joins.sides import GONE, ORDER
from tidelog.pipelines.operators.state.fold import SIDE, Clock

ROW = pa.schema(
    [(SIDE, pa.int8()), (TIME, pa.timestamp("us", "UTC")), (GONE, pa.bool_()), (ORDER, pa.int64()), *KEYED.all]
)
LONG = 10**9
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(ms: float) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def event(k: str | None, time: float | None, number: int) -> Row:
    return left(k=k, l=number, **{TIME: None if time is None else at(time)})


def version(k: str | None, time: float | None, number: int | None, order: int | None = None) -> Row:
    """None: from then on there is no row."""
    return right(k=k, r=number, **{TIME: None if time is None else at(time), GONE: number is None, ORDER: order})


def driver(deletes_kept: int = LONG) -> Driver:
    return Driver(lambda: AsOf(KEYED, deletes_kept, divert=True), ROW, ["k"])


def plain(rows: list[Row]) -> list[tuple[Any, ...]]:
    """(l, r) of rows that were joined, in order."""
    return [(row["l"], row["r"]) for row in rows if not row[LATE]]


class Oracle:
    """All that ever came, and a search through it for every row of the stream that is due."""

    def __init__(self) -> None:
        self.waiting: list[Row] = []
        self.versions: list[Row] = []

    def step(self, rows: list[Row], watermark: int | None) -> tuple[list[tuple[Any, ...]], list[int]]:
        reached = None if watermark is None else at(watermark)
        self.versions += [row for row in rows if row[SIDE] == 1 and row["k"] is not None and row[TIME] is not None]
        late = []
        for row in (row for row in rows if row[SIDE] == 0):
            if row[TIME] is None or (reached is not None and row[TIME] <= reached):
                late.append(row["l"])
            else:
                self.waiting.append(row)
        due = [row for row in self.waiting if self.is_due(row, reached)]
        self.waiting = [row for row in self.waiting if row not in due]
        return [(row["l"], self.found(row)) for row in due], late

    def is_due(self, row: Row, reached: datetime | None) -> bool:
        return row["k"] is None or (reached is not None and row[TIME] <= reached)

    def found(self, row: Row) -> int | None:
        fits = [one for one in self.versions if one["k"] == row["k"] and one[TIME] <= row[TIME]]
        return max(enumerate(fits), key=lambda pair: (pair[1][TIME], pair[0]))[1]["r"] if fits else None


TIMES = st.integers(0, 20).map(lambda half: half / 2)
KEYS = st.sampled_from(["a", "b", "c", None])
EVENTS = st.tuples(st.just(0), KEYS, st.one_of(TIMES, st.none()))
VERSIONS = st.tuples(st.just(1), KEYS, st.one_of(TIMES, st.none()), st.booleans())
STEPS = st.lists(st.tuples(st.lists(st.one_of(EVENTS, VERSIONS), max_size=6), st.integers(0, 3)), max_size=8)


def made(steps: list[Any]) -> list[tuple[list[Row], int | None]]:
    """Rows with numbers of their own; the watermark starts as none, and goes up by what the step says."""
    number, watermark, found = 0, None, []
    for rows, ahead in steps:
        batch = []
        for row in rows:
            number += 1
            gone = row[0] == 1 and row[3]
            batch.append(
                event(row[1], row[2], number) if row[0] == 0 else version(row[1], row[2], None if gone else number)
            )
        watermark = (watermark or 0) + ahead if watermark is not None or ahead else None
        found.append((batch, watermark))
    return found


@proves("P9", "P10")
@FEWER
@given(STEPS)
def test_every_step_puts_out_what_a_search_through_everything_finds(steps: list[Any]) -> None:
    operator, oracle = driver(), Oracle()
    came = 0
    for rows, watermark in made(steps):
        output = operator.step(rows, watermark)
        expected, late = oracle.step(rows, watermark)
        assert sorted(plain(output)) == sorted(expected, key=lambda pair: pair[0])
        assert sorted(row["l"] for row in output if row[LATE]) == sorted(late)
        assert all(row[MATCHED] == (row["r"] is not None) for row in output)
        came += sum(row[SIDE] == 0 for row in rows) - len(output)
        assert len([row for row in operator.state() if row[SIDE] == 0]) == came == len(oracle.waiting)


@proves("P10")
@FEWER
@given(
    st.lists(
        st.one_of(st.tuples(st.just(0), KEYS, TIMES), st.tuples(st.just(1), KEYS, TIMES, st.booleans())), max_size=25
    ),
    st.integers(0, 8),
    st.randoms(use_true_random=False),
)
def test_whatever_the_order_within_the_lateness_the_answer_is_that_of_the_batch(
    history: list[Any], lateness: int, chance: random.Random
) -> None:
    """Versions of a key have different times here: of equal ones, the order is the answer."""
    seen: set[tuple[Any, Any]] = set()
    rows = []
    for number, row in enumerate(history):
        if row[0] == 0:
            rows.append(event(row[1], row[2], number))
        elif (row[1], row[2]) not in seen:
            seen.add((row[1], row[2]))
            rows.append(version(row[1], row[2], None if row[3] else number))
    batch = in_a_batch(AsOf(KEYED, LONG), rows, ROW, ["k"])
    # A row comes at most `lateness` behind the newest one before it: the jitter is what it can be late by.
    come = sorted(rows, key=lambda row: row[TIME] + timedelta(milliseconds=chance.random() * lateness))
    operator, output, newest = driver(), [], None
    while come:
        cut = chance.randint(1, len(come))
        output += operator.step(come[:cut], None if newest is None else newest - lateness - 1)
        newest = max([*([] if newest is None else [newest]), *(ms(row[TIME]) for row in come[:cut])])
        come = come[cut:]
    output += operator.step([], 10**6)
    assert [row for row in output if row[LATE]] == []
    assert sorted(plain(output)) == sorted(plain(batch))


def ms(time: datetime) -> int:
    return (time - EPOCH) // timedelta(milliseconds=1)


@proves("P10")
def test_a_version_counts_from_its_time_on_and_up_to_the_next() -> None:
    operator = driver()
    assert (
        operator.step([version("a", 10, 1), version("a", 20, 2), *(event("a", t, t) for t in (9, 10, 19, 20, 21))])
        == []
    )
    assert plain(operator.step([], 30)) == [(9, None), (10, 1), (19, 1), (20, 2), (21, 2)]


@proves("P10")
def test_nothing_is_put_out_before_the_watermark_and_at_it_everything_is() -> None:
    operator = driver()
    operator.step([version("a", 1, 1), event("a", 10, 5), event("a", 10.5, 6)])
    assert operator.step([], 9) == []
    assert plain(operator.step([version("a", 10, 2)], 9)) == []
    assert plain(operator.step([], 10)) == [(5, 2)]
    assert plain(operator.step([], 11)) == [(6, 2)]


@proves("P10")
def test_of_versions_with_the_same_time_the_last_that_came_counts_also_over_steps() -> None:
    operator = driver()
    operator.step([version("a", 10, 1), version("a", 10, 2), event("a", 10, 5)])
    operator.step([version("a", 10, 3)])
    assert plain(operator.step([], 10)) == [(5, 3)]
    assert len(operator.state()) == 1


@proves("P10")
def test_where_the_order_of_arrival_says_nothing_a_column_does() -> None:
    rows = [version("a", 10, 2, order=2), version("a", 10, 1, order=1), event("a", 10, 5)]
    assert plain(in_a_batch(AsOf(KEYED, LONG), rows, ROW, ["k"])) == [(5, 2)]


@proves("P10", "F4")
def test_versions_that_were_kept_without_an_order_are_before_all_that_have_one() -> None:
    operator = driver()
    operator.step([version("a", 10, 1, order=9), version("b", 10, 3, order=9)])
    for bucket in operator.buckets:
        if bucket.known is not None:
            header = json.loads(bucket.known[0])
            header["declared"] = {}  # of state from before there was such a parameter
            bucket.known = (json.dumps(header), bucket.known[1])
    operator.make = lambda: AsOf(KEYED, LONG, divert=True, order="revision", order_in="numbers")
    operator.step([version("a", 10, 2, order=1), event("a", 10, 5), event("b", 11, 6)])
    operator.step([version("a", 10, 4, order=0)])
    assert sorted(plain(operator.step([], 20))) == [(5, 2), (6, 3)]


@proves("P10")
def test_a_deletion_is_a_version_and_no_older_one_is_fallen_back_on() -> None:
    operator = driver()
    operator.step([version("a", 10, 1), version("a", 20, None), version("a", 30, 3)])
    operator.step([event("a", 15, 1), event("a", 20, 2), event("a", 29, 3), event("a", 30, 4)])
    assert plain(operator.step([], 40)) == [(1, 1), (2, None), (3, None), (4, 3)]


@proves("P9")
def test_a_result_is_never_revised_by_a_version_that_comes_later() -> None:
    operator = driver()
    operator.step([version("a", 1, 1), event("a", 10, 5)])
    assert plain(operator.step([], 10)) == [(5, 1)]
    assert operator.step([version("a", 5, 2)], 10) == []
    assert plain(operator.step([event("a", 11, 6)])) == []
    assert plain(operator.step([], 11)) == [(6, 2)]


@proves("P7", "P9")
def test_a_row_at_the_watermark_is_late_and_one_above_it_is_not() -> None:
    operator = driver()
    operator.step([version("a", 1, 1)])
    operator.step([], 10)
    output = operator.step([event("a", 10, 1), event("a", 10.001, 2)])
    assert [(row["l"], row[LATE], row[MATCHED]) for row in output] == [(1, True, False)]
    assert plain(operator.step([], 11)) == [(2, 1)]


@proves("P9")
def test_versions_are_kept_as_long_as_they_can_matter_and_no_longer() -> None:
    operator = driver()
    operator.step([version("a", time, time) for time in (1, 2, 3, 14, 15)])
    assert len(operator.state()) == 5
    operator.step([version("a", 16, 16)], 10)
    assert sorted(row["r"] for row in operator.state()) == [3, 14, 15, 16]
    operator.step([version("a", 17, 17)], 15)
    assert sorted(row["r"] for row in operator.state()) == [15, 16, 17]


@proves("P9")
def test_a_deleted_key_is_forgotten_when_nothing_from_before_it_is_expected_any_more() -> None:
    operator = driver(deletes_kept=100)
    operator.step([version("a", 1, 1), version("a", 10, None)])
    operator.step([version("a", 5, 2)], 50)
    assert [(row["r"], row[GONE]) for row in operator.state()] == [(None, True)]
    operator.step([event("a", 200, 1)], 110)
    assert [row[SIDE] for row in operator.state()] == [0]
    assert plain(operator.step([], 200)) == [(1, None)]
    assert operator.state() == []


@proves("P9")
def test_a_row_without_a_key_meets_nothing_and_waits_for_nothing() -> None:
    operator = driver()
    rows = [version(None, 1, 1), version("a", None, 2), version("a", 1, 3), event(None, 5, 1)]
    assert plain(operator.step(rows)) == [(1, None)]
    assert [row["r"] for row in operator.state()] == [3]


@proves("P7", "P9")
def test_a_late_row_without_a_key_is_late_and_one_in_time_is_put_out_at_once() -> None:
    operator = driver()
    operator.step([event("a", 5, 0)], 10)
    output = operator.step([event(None, 10, 1), event(None, 11, 2), event(None, 5000, 3)], 10)
    assert sorted((row["l"], row[LATE], row[MATCHED]) for row in output) == [
        (1, True, False),
        (2, False, False),
        (3, False, False),
    ]
    rows = arrow([event(None, 10, 1), event(None, 11, 2)], ROW, ["k"])
    fold = AsOf(KEYED, LONG)
    step = fold.step(fold.state_schema.empty_table(), rows, Clock(10, 0))
    assert (dict(step.counts), step.output["l"].to_pylist()) == ({"in": 2, "joined": 1, "dropped": 1, "late": 1}, [2])


@proves("P7", "P9")
def test_a_row_without_a_time_is_as_one_that_is_late_in_a_batch_too() -> None:
    rows = [version("a", 1, 1), event("a", None, 1), event(None, None, 2)]
    assert [(row["l"], row[LATE], row[MATCHED]) for row in driver().step(rows)] == [(1, True, False), (2, True, False)]
    assert [row["l"] for row in in_a_batch(AsOf(KEYED, LONG, divert=True), rows, ROW, ["k"]) if row[LATE]] == [1, 2]
    assert in_a_batch(AsOf(KEYED, LONG), rows, ROW, ["k"]) == []


@proves("P9")
def test_rows_of_a_key_come_out_by_time_and_of_the_same_time_as_they_came() -> None:
    operator = driver()
    operator.step([event("a", time, number) for number, time in enumerate((7, 3, 7, 5))])
    operator.step([event("a", 3, 9)])
    assert [row["l"] for row in operator.step([], 20)] == [1, 9, 3, 0, 2]


@proves("P7", "P9")
def test_what_came_was_joined_or_dropped_or_waits() -> None:
    fold = AsOf(KEYED, LONG)
    came = [version("a", 1, 1), event("a", 9, 1), event("a", 10, 2), event("a", 11, 3), event(None, 12, 4)]
    came.append(event("a", None, 5))
    step = fold.step(fold.state_schema.empty_table(), arrow(came, ROW, ["k"]), Clock(10, 0))
    assert step.counts == {"in": 5, "joined": 1, "dropped": 3, "late": 2, "without_time": 1}
    assert [row["l"] for row in step.output.to_pylist()] == [4]
    assert [row["l"] for row in step.state.to_pylist() if row[SIDE] == 0] == [3]


@proves("P10")
def test_versions_go_when_their_time_is_over_although_their_key_never_comes_again() -> None:
    operator = driver(deletes_kept=5)
    operator.step([version("a", 1, 10), version("a", 2, 11), version("a", 3.5, None), version("b", 2, 20)])
    operator.step([], 3)
    assert sorted((row["k"], row["r"]) for row in operator.state() if row["r"]) == [("a", 11), ("b", 20)]
    operator.step([], 4)
    assert sorted((row["k"], row["r"]) for row in operator.state()) == [("a", None), ("b", 20)]
    operator.step([], 8)
    assert len(operator.state()) == 2, "the deletion is younger than 5 ms"
    operator.step([], 9)
    assert [(row["k"], row["r"]) for row in operator.state()] == [("b", 20)]
