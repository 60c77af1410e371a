"""One piece of a view's changes in the ring, and its events for each set of rows that somebody follows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from tidelog.gateway.limits import WHERES_MAX
from tidelog.gateway.views import rendering
from tidelog.schema.declaration import Column, Declaration
from tidelog.schema.expression.checking import check
from tidelog.schema.expression.evaluation import Predicate, predicate
from tidelog.schema.expression.parser import parse
from tidelog.views.changes import Change
from tidelog.views.feeds import Cursor, furthest


class Where(NamedTuple):
    """Which rows are followed, in one generation's columns."""

    text: str
    holds: Predicate

    @staticmethod
    def of(text: str, declared: Declaration) -> Where:
        return Where(text, _predicate(text, declared.columns))


@lru_cache(WHERES_MAX)
def _predicate(text: str, columns: tuple[Column, ...]) -> Predicate:
    return predicate(check(parse(text), columns))


class Slot:
    def __init__(
        self,
        start: Cursor,
        end: Cursor,
        declared: Declaration,
        changes: Sequence[Change],
        same_for_all: bytes | None = None,
    ) -> None:
        self.start = start
        self.end = end
        self.declared = declared
        self.changes = changes
        self._same_for_all = same_for_all
        self._rendered: dict[str | None, bytes] = {}
        self.size = len(same_for_all or b"")  # of all that is kept

    def render(self, wheres: Iterable[Where | None]) -> None:
        """Once for all who follow these rows; by who makes the slot, before others see it."""
        for where in islice(wheres, WHERES_MAX):
            self._rendered[None if where is None else where.text] = self.bytes_of(where)
        self.size = sum(map(len, self._rendered.values()))

    def bytes_of(self, where: Where | None) -> bytes:
        if self._same_for_all is not None:
            return self._same_for_all
        found = self._rendered.get(None if where is None else where.text)
        if found is not None:
            return found
        return rendering.changes(self.declared, self.start, self.changes, None if where is None else where.holds)

    def is_made(self, cursor: Cursor, where: str | None) -> bool:
        """Whether `told` has nothing to render: what takes long is not work for the loop."""
        if self._same_for_all is not None:
            return True
        whole = cursor.generation != self.start.generation or self.start.reaches(cursor.offsets)
        return whole and where in self._rendered

    def told(self, cursor: Cursor, where: Where | None) -> tuple[bytes, Cursor]:
        """What of it comes after `cursor`, and where that leads: nowhere back."""
        if cursor.generation != self.start.generation or self._same_for_all is not None:
            return self.bytes_of(where), self.end
        if self.start.reaches(cursor.offsets):
            return self.bytes_of(where), self.end
        holds = None if where is None else where.holds
        rest = rendering.changes(self.declared, self.start, self.changes, holds, cursor.offsets)
        return rest, furthest(cursor, self.end)
