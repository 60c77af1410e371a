"""Folds in the order of event time, each against a plain loop: any split, any order within the lateness, restarts.

Every step reads the state from its bytes and writes it back, so each one is a restart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.joins.driving import FEWER, Driver, in_a_batch
from proving import proves
from tidelog.pipelines.operators.analytics import Earlier
from tidelog.pipelines.operators.changes import Changes
from tidelog.pipelines.operators.dedup import Once
from tidelog.pipelines.operators.in_order import WAITS
from tidelog.pipelines.operators.state.fold import Fold

Row = dict[str, Any]

ROW = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC")), ("v", pa.int64()), ("n", pa.int64())])
MICROS_A_MS = 1000
END = 10**9  # ms; behind all times


def at(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def micros(row: Row) -> int:
    return (row["at"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


# Few times, keys and values: ties, repeats and boundaries are the rule. Times are in microseconds, watermarks in ms.
rows_of_keys = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 12), st.none() | st.integers(0, 3)), max_size=25
)


def numbered(drawn: Sequence[tuple[str | None, int, int | None]], half_ms: bool = True) -> list[Row]:
    unit = MICROS_A_MS // 2 if half_ms else MICROS_A_MS
    return [{"k": k, "at": at(1 + time * unit), "v": v, "n": n} for n, (k, time, v) in enumerate(drawn)]


def sequences(rows: Sequence[Row]) -> list[list[Row]]:
    """Each key's rows by time; those of one time as they came."""
    found = defaultdict(list)
    for row in rows:
        found[row["k"]].append(row)
    return [sorted(those, key=micros) for those in found.values()]


def once(rows: Sequence[Row], within: int) -> list[Row]:
    kept = []
    for sequence in sequences(rows):
        last = None
        for row in sequence:
            if last is None or micros(row) - last > within:
                kept.append(row)
                last = micros(row)
    return kept


def changed(rows: Sequence[Row], fold: Changes) -> list[Row]:
    found = []
    for sequence in sequences(rows):
        last: Row | None = None
        for row in sequence:
            if last is not None and fold.remembers is not None and micros(row) - micros(last) > fold.remembers:
                last = None
            if last is None or differs(row["v"], last["v"], fold.at_least):
                if last is not None or fold.first:
                    found.append(row | {"v_before": None if last is None else last["v"]})
                last = row
    return found


def differs(value: int | None, last: int | None, at_least: float | None) -> bool:
    if at_least is None or value is None or last is None:
        return value != last
    return abs(value - last) >= at_least


FOLDS: dict[str, tuple[Fold, Callable[[Sequence[Row]], list[Row]]]] = {}
for within in (1, 1000, 2500):
    FOLDS[f"once within {within}"] = (Once(ROW, "at", ("k",), within), lambda rows, w=within: once(rows, w))  # type: ignore[misc]
for fold in (
    Changes(ROW, "at", ("k",), None, ("v",)),
    Changes(ROW, "at", ("k",), None, ("v",), first=False),
    Changes(ROW, "at", ("k",), None, ("v",), at_least=2),
    Changes(ROW, "at", ("k",), 2000, ("v",)),
    Changes(ROW, "at", ("k",), 1500, ("v",), at_least=2, first=False),
):
    FOLDS[f"changes {fold.at_least} {fold.remembers} {fold.first}"] = (fold, lambda rows, f=fold: changed(rows, f))  # type: ignore[misc]


def as_set(rows: Sequence[Row]) -> list[str]:
    return sorted(repr(sorted((row | {"at": micros(row)}).items())) for row in rows)


@proves("P2", "B1")
@pytest.mark.parametrize("name", FOLDS)
@FEWER
@given(drawn=rows_of_keys, data=st.data())
def test_any_split_into_micro_batches_gives_the_batch_answer_up_to_the_watermark(
    name: str, drawn: list[tuple[str | None, int, int | None]], data: st.DataObject
) -> None:
    """No row is late. After every step, all that the watermark has reached is put out, and nothing else."""
    fold, oracle = FOLDS[name]
    rows = numbered(drawn)
    assert as_set(in_a_batch(fold, rows, ROW, ["k"])) == as_set(oracle(rows))
    driver = Driver(lambda: fold, ROW, ["k"])
    found: list[Row] = []
    cut, watermark = 0, 0
    while cut < len(rows):
        size = data.draw(st.integers(1, len(rows)))
        # The watermark is that of the rows before, and no row from here on is at or below it.
        left = min(micros(row) for row in rows[cut:])
        watermark = max(watermark, data.draw(st.integers(0, max((left - 1) // MICROS_A_MS, 0))))
        found += driver.step(rows[cut : cut + size], watermark or None)
        cut += size
        reached = [row for row in rows[:cut] if micros(row) <= watermark * MICROS_A_MS]
        assert as_set(found) == as_set(oracle(reached))
    found += driver.step([], END)
    assert as_set(found) == as_set(oracle(rows))


@proves("P2", "P7")
@pytest.mark.parametrize("name", FOLDS)
@FEWER
@given(drawn=rows_of_keys, marks=st.lists(st.integers(0, 7), min_size=25, max_size=25))
def test_a_late_row_is_dropped_and_all_others_are_as_if_it_had_not_been(
    name: str, drawn: list[tuple[str | None, int, int | None]], marks: list[int]
) -> None:
    fold, oracle = FOLDS[name]
    rows = numbered(drawn)
    driver = Driver(lambda: fold, ROW, ["k"])
    found: list[Row] = []
    on_time, watermark = [], 0
    for row, mark in zip(rows, marks, strict=False):
        watermark = max(watermark, mark)
        found += driver.step([row], watermark or None)
        if micros(row) > watermark * MICROS_A_MS or not watermark:
            on_time.append(row)
    found += driver.step([], END)
    assert as_set(found) == as_set(oracle(on_time))


@proves("P2", "P3")
@FEWER
@given(drawn=rows_of_keys, marks=st.lists(st.integers(0, 7), min_size=25, max_size=25), within=st.integers(1, 6))
def test_every_row_that_came_to_a_deduplication_is_put_out_or_late_or_a_duplicate_or_waits(
    drawn: list[tuple[str | None, int, int | None]], marks: list[int], within: int
) -> None:
    fold = Once(ROW, "at", ("k",), within * MICROS_A_MS)
    driver, on_time, watermark, put_out = Driver(lambda: fold, ROW, ["k"]), [], 0, 0
    for came, (row, mark) in enumerate(zip(numbered(drawn), marks, strict=False), 1):
        watermark = max(watermark, mark)
        put_out += len(driver.step([row], watermark or None))
        if micros(row) > watermark * MICROS_A_MS or not watermark:
            on_time.append(row)
        counts = Counter(driver.counts())
        waiting = sum(one[WAITS] for one in driver.state())
        assert counts["in"] == came == put_out + counts["late"] + counts["duplicates"] + waiting
    driver.step([], END)
    assert Counter(driver.counts())["duplicates"] == len(on_time) - len(once(on_time, within * MICROS_A_MS))


@proves("P2", "B1")
@FEWER
@given(drawn=rows_of_keys, sizes=st.lists(st.integers(1, 10), min_size=25, max_size=25), span=st.integers(1, 6))
def test_each_row_is_compared_with_the_one_of_its_key_a_period_earlier(
    drawn: list[tuple[str | None, int, int | None]], sizes: list[int], span: int
) -> None:
    """Rows come as windows do: one for each key and time, none before those of an earlier time."""
    unique = {(row["k"], row["at"]): row for row in numbered(drawn, half_ms=False)}
    rows = sorted(unique.values(), key=micros)
    known = {(row["k"], micros(row)): row["v"] for row in rows}
    expected = [row | {"v_earlier": known.get((row["k"], micros(row) - span * MICROS_A_MS))} for row in rows]
    fold = Earlier(ROW, "at", ("k",), ("v",), span * MICROS_A_MS, 0)
    assert as_set(in_a_batch(fold, rows, ROW, ["k"])) == as_set(expected)
    driver = Driver(lambda: fold, ROW, ["k"])
    cut, found, watermark = 0, [], 0
    for size in sizes:
        if cut < len(rows):
            # A window is put out when the watermark has reached its end: no later than the rows that follow.
            watermark = max(watermark, micros(rows[cut]) // MICROS_A_MS)
            found += driver.step(rows[cut : cut + size], watermark or None)
        cut += size
        assert as_set(found) == as_set(expected[: min(cut, len(rows))])


@proves("P2")
def test_what_can_matter_no_more_is_forgotten() -> None:
    first = {"k": "a", "at": at(1000), "v": 1, "n": 0}
    for fold, gone_at in (
        (Once(ROW, "at", ("k",), 5000), 7),
        (Changes(ROW, "at", ("k",), 5000, ("v",)), 7),
        (Earlier(ROW, "at", ("k",), ("v",), 4000, 1000), 7),
    ):
        driver = Driver(lambda fold=fold: fold, ROW, ["k"])  # type: ignore[misc]
        driver.step([first])
        driver.step([], gone_at - 1)
        assert len(driver.state()) == 1
        driver.step([], gone_at)
        assert driver.state() == []
    driver = Driver(lambda: Changes(ROW, "at", ("k",), None, ("v",)), ROW, ["k"])
    driver.step([first])
    driver.step([], END)
    assert len(driver.state()) == 1


@proves("P2")
def test_a_row_without_a_time_is_dropped_and_counted() -> None:
    rows = pa.Table.from_pylist(
        [{"k": "a", "at": None, "v": 1, "n": 0, "_hash": 1}], ROW.append(pa.field("_hash", pa.int64()))
    )
    from tidelog.pipelines.operators.state.fold import Clock

    for fold in (Once(ROW, "at", ("k",), 5), Earlier(ROW, "at", ("k",), ("v",), 5, 0)):
        made = fold.step(fold.state_schema.empty_table(), rows, Clock(None, 0))
        assert (len(made.output), len(made.state)) == (0, 0)
        assert (made.counts["in"], made.counts["dropped"]) == (1, 1)


@proves("P2")
def test_a_value_that_is_no_number_is_a_change_and_so_is_the_next_that_is_one() -> None:
    nan = float("nan")
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC")), ("v", pa.float64()), ("n", pa.int64())])
    values = [1.0, nan, nan, 1.2, 1.4, None, nan]
    rows = [{"k": "a", "at": at(n), "v": value, "n": n} for n, value in enumerate(values)]
    for at_least in (0.5, None):
        found = in_a_batch(Changes(schema, "at", ("k",), None, ("v",), at_least), rows, schema, ["k"])
        assert [row["n"] for row in found] == [0, 1, 3, *([] if at_least else [4]), 5, 6]
