"""A page of rows from a store that gives rows by key order and cannot filter them itself. Pure.

Rules:
- What `where` says is asked of each row here (`schema/expression/evaluation.py`); a row counts where it is true.
- Rows come chunk by chunk, so that a page takes memory for a chunk and itself, however few rows match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.errors import UsageError
from tidelog.schema.expression.checking import check
from tidelog.schema.expression.evaluation import predicate
from tidelog.views.declaration import Declaration, Row
from tidelog.views.stores.key_order import encoder
from tidelog.views.stores.store import PAGE_ROWS_MAX, Ask, Page, Place

SCAN_ROWS = 2_000

Fetch = Callable[[bytes | None, int], Sequence[tuple[bytes, Row]]]  # after which key, how many at most


def fill(declared: Declaration, ask: Ask, place: Place, fetch: Fetch, chunk: int = SCAN_ROWS) -> Page:
    matches = None if ask.where is None else predicate(check(ask.where, declared.columns))
    after = None if ask.after is None else encoder(declared)(ask.after)
    limit = max(0, min(ask.limit, PAGE_ROWS_MAX))
    if matches is None:
        chunk = limit + 1
    rows: list[Row] = []
    while True:
        got = fetch(after, chunk)
        for _, row in got:
            if matches is not None and matches(row) is not True:
                continue
            if len(rows) == limit:
                return Page(rows, place, True)
            rows.append(row)
        if len(got) < chunk:
            return Page(rows, place, False)
        after = got[-1][0]


def refuse_match(ask: Ask, store: str) -> None:
    if ask.match is not None:
        raise UsageError(f"{store} has no full text; a store sqlite+fts:// or opensearch+http:// has")
