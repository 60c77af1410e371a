"""A page of rows from a store that gives rows by key order and cannot filter them itself. Pure.

Rules:
- What `where` says is asked of each row here (`schema/expression/evaluation.py`); a row counts where it is true.
- Rows come chunk by chunk, so that a page takes memory for a chunk and itself, however few rows match.
- A page that has looked for `within_s` ends where it is, and says so: whoever goes on behind `last` misses nothing. So
  a filter over a huge view holds a thread and its store for that long at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.errors import UsageError
from tidelog.schema.declaration import Declaration, Row
from tidelog.schema.expression.checking import check
from tidelog.schema.expression.evaluation import predicate
from tidelog.views.stores.bounds import Bounds
from tidelog.views.stores.key_order import encoder
from tidelog.views.stores.store import Ask, Page, Place

SCAN_ROWS = 2_000

Fetch = Callable[[bytes | None, int], Sequence[tuple[bytes, Row]]]  # after which key, how many at most


class Moved(Exception):
    """By a `Fetch`: what it would give is not of the instant of what it gave before."""


def fill(declared: Declaration, ask: Ask, place: Place, fetch: Fetch) -> Page:
    """`Moved` where the very first chunk is; after that the page ends with what it has."""
    matches = None if ask.where is None else predicate(check(ask.where, declared.columns))
    after = None if ask.after is None else encoder(declared)(ask.after)
    bounds, last = Bounds(ask), ask.after
    rows: list[Row] = []
    while True:
        chunk = bounds.chunk(bounds.limit - len(rows) + 1 if matches is None else SCAN_ROWS)
        try:
            got = fetch(after, chunk)
        except Moved:
            if last == ask.after:
                raise
            return Page(rows, place, True, last)
        for _, row in got:
            bounds.looked_at(row)
            if matches is None or matches(row) is True:
                if not bounds.takes(row):
                    return Page(rows, place, True, last)
                rows.append(row)
            last = declared.key_of(row)
        if len(got) < chunk:
            return Page(rows, place, False)
        after = got[-1][0]
        if bounds.is_late:
            return Page(rows, place, True, last)


def refuse_match(ask: Ask, store: str) -> None:
    if ask.match is not None:
        raise UsageError(f"{store} has no full text; a store sqlite+fts:// or opensearch+http:// has")
