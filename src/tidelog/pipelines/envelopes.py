"""Envelopes from texts, without Spark: what a small micro-batch's rows become in the driver. Pure.

A row of it is the key and the row as JSON, which Spark has made inside of the streaming plan (`view_texts.py`); of a
changelog also `_op` and `_seq`. Here they are netted, one change a key, and put into envelopes. A large micro-batch is
netted by Spark instead, and its envelopes have the same bytes: both put the same texts together in the same order.

Rules:
- A row without a key is not a row of a view.
- Of two rows of one key the later one counts, where the order in which they were read says which that is
  (`collisions.py`). Where nothing says it, none counts: refused.
- A changelog's first retraction is what was before, its last addition what is after; nothing where they are equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tidelog.errors import UsageError
from tidelog.pipelines.operators.changelog import ADDITIONS, OP, RETRACTIONS
from tidelog.views.changes import CREATE, DELETE, UPDATE

HEAD, THEN_AFTER, THEN_OP, THEN_SOURCE, THEN_TIME, END = (
    '{"before":',
    ',"after":',
    ',"op":"',
    '","source":',
    ',"ts_ms":',
    "}",
)
NULL = "null"
TWO_ROWS = "two rows of one key in a micro-batch, and no column says which is the later one; give order= for the key"
UNKNOWN_OP = f"a changelog has {', '.join((*ADDITIONS, *RETRACTIONS))} as {OP}; other for"


class Source(NamedTuple):
    """What an envelope says of where it comes from."""

    view: str
    generation: int
    batch: int

    @property
    def fields(self) -> dict[str, Any]:
        return {"connector": "tidelog", "name": self.view, "generation": self.generation, "batch": self.batch}

    def tail(self, now_ms: int) -> str:
        """The end of every envelope of this micro-batch, from behind its `op` on."""
        told = json.dumps(self.fields, ensure_ascii=False, separators=(",", ":"))
        return f"{THEN_SOURCE}{told}{THEN_TIME}{now_ms}{END}"


class Netted(NamedTuple):
    """Of one key; all of it is JSON."""

    key: str
    before: str | None
    after: str | None


def not_a_key(key: Sequence[str]) -> str:
    return f"{', '.join(key)} is not a key of this changelog: it has two rows at the same time for"


def net_rows(rows: Iterable[Sequence[Any]], *, as_read: bool = False) -> list[Netted]:
    """Of rows (key, row): each is its key's only one, or, in the order in which they were read, the last counts."""
    found: dict[str, str | None] = {}
    for key, row in rows:
        if key in found and not as_read:
            raise UsageError(f"{TWO_ROWS} {key}")
        if key is not None:
            found[key] = row
    return [Netted(key, None, row) for key, row in found.items()]


def net_changelog(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> list[Netted]:
    """Of rows (key, row, _op, _seq). `columns` are those of the key, for who is told that they are not one."""
    found: dict[str, list[tuple[int, str, str]]] = {}
    for key, row, op, seq in rows:
        if key is not None:
            found.setdefault(key, []).append((seq, op, row))
    changes = (_net(key, of_key, columns) for key, of_key in found.items())
    return [change for change in changes if change.before != change.after]


def _net(key: str, rows: list[tuple[int, str, str]], columns: Sequence[str]) -> Netted:
    if any(op not in ADDITIONS and op not in RETRACTIONS for _, op, _ in rows):
        raise UsageError(f"{UNKNOWN_OP} {key}")
    (_, opened_by, first), (_, closed_by, last) = min(rows, key=_by_seq), max(rows, key=_by_seq)
    before = first if opened_by in RETRACTIONS else None
    after = last if closed_by in ADDITIONS else None
    more = sum(1 if op in ADDITIONS else -1 for _, op, _ in rows)
    opened = sum(op in RETRACTIONS and seq < 0 for seq, op, _ in rows)
    if more != (after is not None) - (before is not None) or opened > 1:
        raise UsageError(f"{not_a_key(columns)} {key}")
    return Netted(key, before, after)


def _by_seq(row: tuple[int, str, str]) -> int:
    return row[0]


def records_of(changes: Iterable[Netted], tail: str, *, is_changelog: bool) -> Iterator[tuple[str, str | None]]:
    """Key and value of each record, in the order in which they are to be written: after a delete a tombstone."""
    for key, before, after in changes:
        op = DELETE if after is None else CREATE if is_changelog and before is None else UPDATE
        yield key, f"{HEAD}{before or NULL}{THEN_AFTER}{after or NULL}{THEN_OP}{op}{tail}"
        if after is None:
            yield key, None
