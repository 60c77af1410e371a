"""One bucket in pages, without Spark: what a fold keeps comes back, whatever the pages' size and the order of steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operators.state.counting import ROW, Counting
from proving import proves
from tidelog.errors import StateMismatch
from tidelog.pipelines.operators.state import pages
from tidelog.pipelines.operators.state.bucket import Header, step_bucket
from tidelog.pipelines.operators.state.buckets import Layout
from tidelog.pipelines.operators.state.fold import Clock
from tidelog.pipelines.operators.state.pages import ENTRY, LOWEST

LAYOUT = Layout(8, 2)


@dataclass
class Kept:
    """A bucket's bytes in a dictionary, and what was written in the last step."""

    known: tuple[str, bytes] | None = None
    pages: dict[int, bytes] = field(default_factory=dict)
    timer: int | None = None
    written: list[int] = field(default_factory=list)

    def header(self) -> tuple[str, bytes] | None:
        return self.known

    def set_header(self, header: str, directory: bytes) -> None:
        self.known = (header, directory)

    def page(self, number: int) -> bytes:
        return self.pages[number]

    def set_page(self, number: int, data: bytes) -> None:
        self.written.append(number)
        self.pages[number] = data

    def drop_page(self, number: int) -> None:
        del self.pages[number]

    def set_timer(self, before: int | None, after: int | None) -> None:
        assert self.timer == before
        self.timer = after

    def step(self, fold: Counting, rows: list[tuple[str, int, int]], watermark: int | None = None) -> list[dict]:
        self.written = []
        output = step_bucket(fold, self, LAYOUT, table(rows), Clock(watermark, 0))
        assert self.known is not None
        check_directory(np.frombuffer(self.known[1], ENTRY), self.pages)
        return output.to_pylist()


def table(rows: list[tuple[str, int, int]]) -> pa.Table:
    """Some hashes are shared by two keys: a hash is no key."""
    hashes = [
        (int(key) // 2 * 2654435761 * 2**31 + int(key)) % 2**64 - 2**63 if int(key) % 3 else -1 for key, *_ in rows
    ]
    columns = [*map(list, zip(*rows, strict=True))] if rows else [[], [], []]
    return pa.table([pa.array(column, kind.type) for column, kind in zip([*columns, hashes], ROW, strict=True)], ROW)


def check_directory(directory: np.ndarray, kept: dict[int, bytes]) -> None:
    assert sorted(directory["number"].tolist()) == sorted(kept)
    assert (np.diff(directory["first"]) > 0).all()
    assert not len(directory) or directory["first"][0] == LOWEST
    assert [len(kept[number]) for number in directory["number"]] == directory["size"].tolist()
    assert (directory["rows"] > 0).all()


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pages, "PAGE_SIZE", 600)
    monkeypatch.setattr(pages, "CUT_AT", 900)
    return


keys = st.integers(0, 60).map(str)
steps = st.lists(st.lists(st.tuples(keys, st.integers(-5, 5), st.integers(0, 100)), max_size=60), max_size=8)


@proves("P1")
@given(steps)
def test_any_split_into_steps_keeps_the_same_counts(batches: list[list[tuple[str, int, int]]]) -> None:
    kept, expected = Kept(), dict[str, tuple[int, int]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "PAGE_SIZE", 600)
        patch.setattr(pages, "CUT_AT", 900)
        for rows in batches:
            for key, value, _ in rows:
                expected[key] = (expected.get(key, (0, 0))[0] + 1, value)
            output = kept.step(Counting(), rows)
            assert {row["key"]: (row["n"], row["last"]) for row in output} == {key: expected[key] for key, *_ in rows}


@proves("P1", "P7")
@given(steps, st.lists(st.integers(1, 200), min_size=8, max_size=8))
def test_what_is_due_is_looked_at_when_the_watermark_has_reached_it(
    batches: list[list[tuple[str, int, int]]], watermarks: list[int]
) -> None:
    kept, fold, alive = Kept(), Counting(forget_after=10), dict[str, int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "PAGE_SIZE", 600)
        patch.setattr(pages, "CUT_AT", 900)
        for rows, watermark in zip(batches, sorted(watermarks), strict=False):
            for key, _, at in rows:
                alive[key] = max(alive.get(key, 0), at + 10)
            output = kept.step(fold, rows, watermark)
            gone = {key for key, due in alive.items() if due <= watermark}
            alive = {key: due for key, due in alive.items() if key not in gone}
            assert {row["key"] for row in output if row["forgotten"]} == gone
            assert kept.timer == min(alive.values(), default=None)


@proves("P1")
def test_pages_are_cut_as_they_grow_and_only_touched_ones_are_written(small_pages: None) -> None:
    kept = Kept()
    kept.step(Counting(), [(str(key), 0, 0) for key in range(1, 500) if key % 3])
    whole = len(kept.pages)
    assert whole > 10
    kept.step(Counting(), [("7", 1, 0)])
    assert len(kept.written) == 1
    assert len(kept.pages) == whole


@proves("P1", "P7")
def test_a_bucket_whose_keys_are_all_forgotten_keeps_no_page_and_no_timer(small_pages: None) -> None:
    kept, fold = Kept(), Counting(forget_after=10)
    kept.step(fold, [(str(key), 0, key) for key in range(200)], watermark=1)
    assert kept.timer == 10
    assert len(kept.step(fold, [], watermark=1000)) == 200
    assert (kept.pages, kept.timer) == ({}, None)
    kept.step(fold, [("5", 0, 2000)], watermark=1000)
    assert kept.timer == 2010


@proves("P1")
def test_a_step_that_changes_nothing_writes_no_page(small_pages: None) -> None:
    kept, fold = Kept(), Counting(forget_after=10)
    kept.step(fold, [(str(key), 0, 100 + key) for key in range(100)], watermark=1)
    kept.step(fold, [], watermark=2)
    assert kept.written == []


@proves("P1", "P7")
def test_what_became_of_rows_is_counted_over_all_steps() -> None:
    kept, fold = Kept(), Counting(forget_after=10)
    for watermark in (1, 50, 60):
        kept.step(fold, [("1", 0, 20), ("2", 0, 100)], watermark)
    assert kept.known is not None
    assert Header.decode(kept.known[0]).counts == {"in": 6, "forgotten": 2}


@dataclass(frozen=True)
class Renamed(Counting):
    name: str = "another"


@dataclass(frozen=True)
class Forgetful(Counting):
    version: int = 2


@dataclass(frozen=True)
class Newer(Forgetful):
    def upgrade(self, state: pa.Table, version: int) -> pa.Table:
        assert version == 1
        position = state.schema.get_field_index("n")
        return state.set_column(position, "n", pa.array([1000 + n for n in state["n"].to_pylist()], pa.int64()))


@proves("P1", "F4")
def test_state_of_an_older_version_is_read_whole_and_written_anew(small_pages: None) -> None:
    kept = Kept()
    kept.step(Counting(), [(str(key), 0, 0) for key in range(100)])
    before = len(kept.pages)
    assert kept.step(Newer(), [("7", 5, 0)]) == [{"key": "7", "n": 1002, "last": 5, "forgotten": False}]
    assert len(kept.written) >= before
    assert kept.step(Newer(), [("8", 5, 0)]) == [{"key": "8", "n": 1002, "last": 5, "forgotten": False}]
    with pytest.raises(StateMismatch, match="has version 2, newer than 1"):
        kept.step(Counting(), [("7", 5, 0)])


@proves("P1", "F4")
def test_a_fold_that_cannot_read_state_of_an_older_version_refuses_it() -> None:
    kept = Kept()
    kept.step(Counting(), [("1", 0, 0)])
    before = dict(kept.pages), kept.known
    with pytest.raises(StateMismatch, match="has version 1, and version 2 does not read it; take a new checkpoint"):
        kept.step(Forgetful(), [("1", 0, 0)])
    assert (kept.pages, kept.known) == before


@proves("P1", "F4")
def test_state_of_another_fold_or_another_spread_is_refused_before_anything_is_written() -> None:
    kept = Kept()
    kept.step(Counting(), [("1", 0, 0)])
    before = dict(kept.pages), kept.known
    with pytest.raises(StateMismatch, match="is that of 'counting', not of 'another'"):
        kept.step(Renamed(), [("1", 0, 0)])
    with pytest.raises(StateMismatch, match="over 8 buckets in 2 partitions, the query over 32 in 8"):
        step_bucket(Counting(), kept, Layout(32, 8), table([("1", 0, 0)]), Clock(None, 0))
    assert (kept.pages, kept.known) == before
