"""The plan of a snapshot: what is left of it, words of rows, going on in the middle."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.capture import snapshotting
from tidelog.capture.change import SourceColumn, SourceTable, Values
from tidelog.capture.snapshotting import SnapshotReading

LAST_OF_TABLE = "last_in_data_collection"
ID = SourceColumn("id", {"type": "int64", "optional": False})


class Rows:
    """A snapshot in memory, in ranges of two keys each."""

    def __init__(self, sizes: Sequence[int], *, ranges: int = 1) -> None:
        self._tables = [SourceTable("main", f"t{number}", (ID,), ("id",)) for number in range(len(sizes))]
        self._sizes = dict(zip(self._tables, sizes, strict=True))
        self._ranges = ranges
        self.position = {"at": 1}

    def tables(self) -> Sequence[SourceTable]:
        return self._tables

    def count(self, table: SourceTable) -> int:
        return self._sizes[table]

    def split(self, table: SourceTable, parts: int) -> Sequence[tuple[Values | None, Values | None]]:
        edges: list[Values | None] = [None, *((str(2 * number + 1),) for number in range(self._ranges - 1)), None]
        return list(itertools.pairwise(edges))

    def rows(
        self, table: SourceTable, after: Values | None, to: Values | None, size: int
    ) -> Iterator[Sequence[Values]]:
        low, high = -1 if after is None else int(after[0]), self._sizes[table] - 1 if to is None else int(to[0])
        found = [(str(key),) for key in range(low + 1, min(high + 1, self._sizes[table]))]
        for at in range(0, len(found), 2):
            yield found[at : at + 2]

    def close(self) -> None: ...


@proves("D3")
@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([0], []),
        ([1], ["last"]),
        ([2], ["first", "last"]),
        ([1, 1], ["first", "last"]),
        ([3, 1, 2], ["first", "true", LAST_OF_TABLE, LAST_OF_TABLE, "first_in_data_collection", "last"]),
        ([1, 0, 2, 0], ["first", "first_in_data_collection", "last"]),
    ],
)
def test_rows_have_the_words_that_debezium_gives_them(sizes: list[int], words: list[str]) -> None:
    assert [word for batch in SnapshotReading(Rows(sizes), None).batches() for _, _, word in batch] == words


@proves("D3")
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 4), max_size=4),
    ranges=st.integers(1, 3),
)
def test_interrupted_anywhere_each_row_is_stored_once(sizes: list[int], cuts: list[int], ranges: int) -> None:
    content, stored, words = None, [], []
    for cut in [*cuts, 1000]:
        reading = SnapshotReading(Rows(sizes, ranges=ranges), content)
        batches = reading.batches()
        for _ in range(cut):
            rows = next(batches, None)
            if rows is None:
                break
            stored += [(table.name, values) for table, values, _ in rows]
            words += [word for _, _, word in rows]
            content = json.loads(json.dumps(reading.fields()))
        batches.close()  # type: ignore[attr-defined]
    assert sorted(stored) == sorted((f"t{at}", (str(key),)) for at, size in enumerate(sizes) for key in range(size))
    assert words.count("last") == (1 if stored else 0)
    assert words.count("first") <= 1
    assert reading.position == {"at": 1}


@proves("D3")
def test_a_reader_that_fails_ends_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Iterator[Sequence[Values]]:
        yield [("0",), ("1",)]
        raise OSError("gone")

    rows = Rows([5])
    monkeypatch.setattr(rows, "rows", broken)
    with pytest.raises(OSError, match="gone"):
        list(SnapshotReading(rows, None).batches())


@proves("D3")
@pytest.mark.parametrize(
    ("mode", "position", "snapshot", "first", "due"),
    [
        ("initial", None, None, True, True),
        ("initial", {"at": 1}, None, True, False),
        ("initial", None, {"position": {}}, True, True),
        ("no_data", None, None, True, False),
        ("always", {"at": 1}, None, True, True),
        ("always", {"at": 1}, None, False, False),
        ("when_needed", None, None, True, True),
    ],
)
def test_a_snapshot_is_due_by_mode_and_by_what_is_stored(
    mode: str, position: dict[str, int] | None, snapshot: dict[str, object] | None, first: bool, due: bool
) -> None:
    assert snapshotting.decide(mode, position, snapshot, first=first) is due
