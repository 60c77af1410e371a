"""What has been seen: a snapshot of PostgreSQL, by which committed transactions are told from those that are not.

    xmin:xmax:a,b      every transaction below xmax has ended, but for a and b; nothing from xmax on has

Here it ends where numbers last (`lasting.py`): what is from there on has told nothing, and is looked for again.

A position is {"log", "system", "seen"}: all that `seen` has was told. Within a batch it is also "upto" and "last": of
what `upto` has and `seen` has not, the transactions up to the place `last` were told. The order in a batch is a rule
(`changelog.py`), so that a restart finds the same one.

Why not by number. A change with a low id, or of a transaction with a low number, may be committed after one with a high
one. Who reads on from the highest id that he saw passes over it for ever. Who reads only what is older than every open
transaction (`pg_snapshot_xmin`) waits for the longest of them, and still tells a row's changes in the wrong order: a
transaction with a low number may change a row after one with a high number that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidelog.capture.change import Position

Place = tuple[int, int]  # among the transactions of a batch: marks before it, and the id of its last change


class SeenSnapshot(NamedTuple):
    text: str
    xmin: int
    xmax: int
    open: frozenset[int]

    def has(self, xid: int) -> bool:
        return xid < self.xmin or (xid < self.xmax and xid not in self.open)

    def below(self, end: int) -> SeenSnapshot:
        """With nothing from this number on."""
        if end >= self.xmax:
            return self
        inside = sorted(xid for xid in self.open if xid < end)
        return seen_of(f"{min(inside, default=end)}:{end}:{','.join(map(str, inside))}")

    def has_all_of(self, other: SeenSnapshot) -> bool:
        return self.xmax >= other.xmax and all(xid >= other.xmax or xid in other.open for xid in self.open)


def seen_of(text: str) -> SeenSnapshot:
    xmin, xmax, inside = text.split(":")
    return SeenSnapshot(text, int(xmin), int(xmax), frozenset(int(one) for one in inside.split(",") if one))


class LogIdentity(NamedTuple):
    log: str  # made at random with the tables
    system: str

    def position(self, seen: str, upto: str | None = None, last: Place | None = None) -> Position:
        told: dict[str, Any] = {"log": self.log, "system": self.system, "seen": seen}
        return told if upto is None or last is None else {**told, "upto": upto, "last": list(last)}


def place_in(position: Mapping[str, Any]) -> Place:
    marks, last = position["last"]
    return int(marks), int(last)
