"""Changes as Server-Sent Events. Pure.

    id: CURSOR                  where to go on after this event
    event: enter                or change, leave, truncated, switched, expired, refused
    data: {"key":{...},"row":{...}}           without `row` where it leaves

An `id` without data is not an event, and still where to go on: so it goes with heartbeats, for who follows rows that
seldom match.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tidelog.schema.declaration import Declaration, row_to_json, to_json
from tidelog.schema.expression.evaluation import Predicate
from tidelog.views.changes import Change
from tidelog.views.feeds import LEAVE, SWITCHED, TRUNCATED, Cursor, event_of, to_text

EXPIRED, REFUSED = "expired", "refused"
RETRY_MS = 1000  # for a client to come back after its connection ended


def greeting(cursor: Cursor) -> bytes:
    return f"retry: {RETRY_MS}\nid: {to_text(cursor)}\n\n".encode()


def heartbeat(cursor: Cursor) -> bytes:
    return f":\nid: {to_text(cursor)}\n\n".encode()


def switched(cursor: Cursor) -> bytes:
    return _event(SWITCHED, to_text(cursor), {"generation": cursor.generation})


def ended(event: str, message: str, start: str | None = None) -> bytes:
    """The last event of a stream. Its `id` is empty: who comes back begins anew."""
    return _event(event, "" if event == EXPIRED else None, {"message": message, "cursor": start})


def changes(
    declared: Declaration,
    start: Cursor,
    told: Iterable[Change],
    where: Predicate | None,
    beyond: Sequence[int] | None = None,
) -> bytes:
    """Events of changes that follow on `start`; only those at or after the offsets `beyond`, where they are given."""
    written, cursor = [], start
    for change in told:
        cursor = cursor.after(change)
        if beyond is not None and change.offset < beyond[change.at.partition]:
            continue
        event = event_of(change, where)
        if event is not None:
            place = cursor if beyond is None else _furthest(cursor, beyond)
            written.append(_event(event, to_text(place), _data(declared, event, change)))
    return b"".join(written)


def _furthest(cursor: Cursor, beyond: Sequence[int]) -> Cursor:
    return cursor._replace(offsets=tuple(map(max, cursor.offsets, beyond)))


def _data(declared: Declaration, event: str, change: Change) -> dict[str, Any]:
    if event == TRUNCATED:
        return {"partition": change.at.partition}
    key = {name: to_json(kind, value) for (name, kind), value in zip(declared.columns, change.key, strict=False)}
    if event == LEAVE or change.after is None:
        return {"key": key}
    return {"key": key, "row": row_to_json(declared, change.after)}


def _event(event: str, cursor: str | None, data: Any) -> bytes:
    place = "" if cursor is None else f"id: {cursor}\n"
    try:
        return f"{place}event: {event}\ndata: {_text(data, ascii_only=False)}\n\n".encode()
    except UnicodeEncodeError:  # half a surrogate pair in a value of type json: as a query gives it
        return f"{place}event: {event}\ndata: {_text(data, ascii_only=True)}\n\n".encode()


def _text(data: Any, *, ascii_only: bool) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=ascii_only)
