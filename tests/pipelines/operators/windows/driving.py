"""Micro-batches for property tests: any rows, any cut, a watermark that never goes back, wake-ups without rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa
from hypothesis import strategies as st

from pipelines.operators.windows.mechanism import Late, Mechanism, Row, Told, added_up, late_of, told_of
from pipelines.operators.windows.oracle import order
from tidelog.pipelines.operators.state.fold import Fold

Batch = tuple[list[Row], int]  # rows, and how far the watermark goes on before them, in ms; below 0: there is none yet

KEYS = st.sampled_from(["a", "b", "c", None])


def rows(first: int, last: int, *, untimed: bool = True) -> st.SearchStrategy[Row]:
    """Half milliseconds, so that there are times between the watermarks'."""
    times = st.integers(2 * first, 2 * last).map(lambda half: half * 500)
    return st.builds(Row, KEYS, st.none() | times if untimed else times, st.none() | st.integers(-9, 9))


def batches(first: int, last: int, *, untimed: bool = True) -> st.SearchStrategy[list[Batch]]:
    steps = st.integers(-1, 0) | st.integers(0, (last - first) // 2)
    return st.lists(st.tuples(st.lists(rows(first, last, untimed=untimed), max_size=6), steps), max_size=8)


class Oracle(Protocol):
    counts: dict[str, int]

    def run(self, rows: Sequence[Row], watermark: int | None) -> tuple[list[Told], list[Late]]: ...


def place_of(told: Told) -> tuple[Any, ...]:
    return (order(told.key), told.start, told.end)


def compare(fold: Fold, oracle: Oracle, given: Sequence[Batch], first: int, pages: int) -> Mechanism:
    """After every micro-batch: the same is put out, and every row is accounted for in every window."""
    mechanism, watermark = Mechanism(fold, pages), None
    diverts = "_late" in fold.output_schema.names
    everything: list[Told] = []
    for taken, step in given:
        if step >= 0:
            watermark = (first if watermark is None else watermark) + step
        output = mechanism.run(taken, watermark)
        told, late = oracle.run(taken, watermark)
        assert sorted(told_of(output), key=place_of) == told
        assert sorted(late_of(output), key=repr) == (sorted(late, key=repr) if diverts else [])
        check_accounts(mechanism, oracle, diverts)
        check_order(output)
        everything += told_of(output)
    added_up(everything)
    return mechanism


def check_accounts(mechanism: Mechanism, oracle: Oracle, diverts: bool) -> None:
    counts = {"in": 0, "aggregated": 0, "diverted": 0, "dropped": 0} | mechanism.counts
    by_reason = counts.pop("late", 0) + counts.pop("without_time", 0)
    assert by_reason == counts["dropped"], "each dropped row has one reason"
    assert counts["in"] == counts["aggregated"] + counts["diverted"] + counts["dropped"]
    assert counts == {
        "in": oracle.counts["in"],
        "aggregated": oracle.counts["aggregated"],
        "diverted": oracle.counts["late"] if diverts else 0,
        "dropped": 0 if diverts else oracle.counts["late"],
    }


def check_order(output: pa.Table) -> None:
    """Within a key, `_seq` rises, from below 0 for what is taken back to 0 and above for what is put in its place."""
    if "_seq" not in output.column_names:
        return
    last: dict[Any, int] = {}
    for op, seq, key in zip(*(output[name].to_pylist() for name in ("_op", "_seq", "key")), strict=True):
        if seq is not None:
            assert (seq < 0) == (op in ("-U", "-D"))
            assert seq > last.get(key, -(2**62))
            last[key] = seq
