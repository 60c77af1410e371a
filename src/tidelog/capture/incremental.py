"""Incremental snapshots: tables are read chunk by chunk while changes flow (DBLog). Decisions, and no IO.

    asked -> low watermark written -> chunk read -> high watermark written
          -> low seen in the log: every change of a key takes that key out of the chunk
          -> high seen: what is left of the chunk is given as rows with op `r`; the next chunk is asked for

Rules:
- A row of a chunk was true at some time between its two watermarks. Where the log has a change of its key between them,
  that may be newer, so the row is left out. So the last event of each key is its newest state always. A change of a key
  takes out both.
- The largest key is fixed when a table begins, so that a table which grows comes to an end.
- Progress (tables left, last key, largest key) lies in the capture's progress and moves only with the rows that it
  tells of. After a crash the chunk that was open is read again; its old watermarks name another window, and count for
  nothing.
- Composite keys are compared as a whole, by the source.
- A table may change inside of a window. A row's key is that of its own shape. If the key itself is another one, what
  was read cannot be compared with what came: the window gives nothing, and the table is read from its beginning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.capture.change import READ, TRUNCATE, Event, Message, RowChange, SourceTable, Values
from tidelog.capture.conditions import Keeps, conditions_of

KeyOf = Callable[[Values], Values]
CHUNK_ROWS = 1024
PREFIX = "tidelog.watermark"


@dataclass(frozen=True, slots=True)
class Incremental:
    """What is still to be read. `tables` has the one that is being read first."""

    id: str
    tables: tuple[str, ...] = ()
    after: Values | None = None
    to: Values | None = None  # the largest key of the first table; None before it has begun
    paused: bool = False
    rows: int = 0
    conditions: Mapping[str, str] = field(default_factory=dict)  # of a table that is not read whole (`conditions.py`)


@dataclass(slots=True)
class ChunkWindow:
    """A chunk between its watermarks."""

    number: str
    table: SourceTable
    rows: dict[Values, Values]  # by key
    last: Values | None  # the last key that was read; None where nothing was
    ends: bool  # whether the table is read whole
    open: bool = False
    spoiled: bool = False  # the table has another key now
    keys: dict[SourceTable, KeyOf | None] = field(default_factory=dict)  # by shape; None: of another key


def to_fields(state: Incremental | None) -> dict[str, Any] | None:
    if state is None:
        return None
    edges = {name: None if edge is None else list(edge) for name, edge in (("after", state.after), ("to", state.to))}
    told = {"id": state.id, "tables": list(state.tables), **edges, "paused": state.paused, "rows": state.rows}
    conditions = {name: text for name, text in state.conditions.items() if name in state.tables}
    return told | ({"conditions": conditions} if conditions else {})


def from_fields(content: Mapping[str, Any] | None) -> Incremental | None:
    if content is None:
        return None

    def edge(name: str) -> Values | None:
        return None if content.get(name) is None else tuple(content[name])

    return Incremental(
        str(content["id"]),
        tuple(content["tables"]),
        edge("after"),
        edge("to"),
        bool(content.get("paused")),
        int(content.get("rows", 0)),
        dict(content.get("conditions", {})),
    )


# Signals --------------------------------------------------------------------------------------------------------------


def told(state: Incremental | None, signal: Mapping[str, Any], captured: Sequence[str]) -> Incremental | None:
    """After a signal in Debezium's form. Raises ValueError for one that cannot be followed: it is passed over."""
    kind, data = signal.get("type"), signal.get("data") or {}
    if isinstance(data, str):
        data = json.loads(data)
    if not isinstance(data, dict):
        raise ValueError(f"its data are not an object: {data!r}")
    if kind == "execute-snapshot":
        return _asked(state, data, captured, str(signal.get("id") or "snapshot"))
    if kind not in ("stop-snapshot", "pause-snapshot", "resume-snapshot"):
        raise ValueError(f"a signal of type {kind!r} is not known")
    if state is None:
        return None
    if kind == "stop-snapshot":
        gone = set(data.get("data-collections") or state.tables)
        left = tuple(name for name in state.tables if name not in gone)
        same = left[:1] == state.tables[:1]
        stopped = replace(state, tables=left, after=state.after if same else None, to=state.to if same else None)
        return stopped if left else None
    return replace(state, paused=kind == "pause-snapshot")


def _asked(state: Incremental | None, data: Mapping[str, Any], captured: Sequence[str], id: str) -> Incremental:
    if str(data.get("type", "incremental")).lower() != "incremental":
        raise ValueError(f"a snapshot of type {data.get('type')!r} is not there; there is `incremental`")
    names = data.get("data-collections")
    if not isinstance(names, list) or not names:
        raise ValueError("it names no tables (data-collections)")
    unknown = [name for name in names if name not in captured]
    if unknown:
        raise ValueError(f"{', '.join(map(str, unknown))} is not captured; there are {', '.join(captured)}")
    asked = conditions_of(data, names)
    read = () if state is None else state.tables
    for name in {*names} & {*read}:
        if state is not None and asked.get(name) != state.conditions.get(name):
            raise ValueError(f"{name} is being read whole, or by another condition; ask again when that is done")
    made = with_tables(state, [name for name in names if name not in read], id)
    return replace(made, conditions={**made.conditions, **asked})


def with_tables(state: Incremental | None, names: Sequence[str], id: str, *, anew: Collection[str] = ()) -> Incremental:
    """With more of them, read whole. Those `anew`, and those of which some rows were to be read, begin once more."""
    if state is None:
        return Incremental(id, tuple(dict.fromkeys(names)))
    anew = {*anew} | ({*names} & state.conditions.keys())
    kept = [name for name in state.tables if name not in anew]
    conditions = {name: text for name, text in state.conditions.items() if name not in anew}
    asked = replace(state, tables=tuple(dict.fromkeys([*kept, *names])), conditions=conditions)
    return asked if asked.tables[:1] == state.tables[:1] and not {*state.tables[:1]} & anew else _begun_anew(asked)


def _begun_anew(state: Incremental) -> Incremental:
    return replace(state, after=None, to=None)


# Windows --------------------------------------------------------------------------------------------------------------


def mark(number: str, edge: str) -> str:
    return f"{number}:{edge}"


def window_of(
    number: str, table: SourceTable, rows: Sequence[Values], key_of: KeyOf, size: int, keep: Keeps | None = None
) -> ChunkWindow:
    """Of rows that were read, those that are to be given."""
    keyed = {key_of(row): row for row in rows if keep is None or keep(row)}
    return ChunkWindow(number, table, keyed, key_of(rows[-1]) if rows else None, ends=len(rows) < size)


def after_window(state: Incremental, window: ChunkWindow, given: int) -> Incremental | None:
    """When what is left of its rows was given."""
    if window.spoiled:
        return _begun_anew(state)
    rows = state.rows + given
    if not window.ends:
        return replace(state, after=window.last, rows=rows)
    left = state.tables[1:]
    return replace(state, tables=left, after=None, to=None, rows=rows) if left else None


def pass_through(
    window: ChunkWindow, events: Iterable[Event], key_of: Callable[[SourceTable], KeyOf]
) -> tuple[list[Event], int | None]:
    """Events with the window's rows behind its high watermark. How many, once they were given."""
    out: list[Event] = []
    given: int | None = None
    for event in events:
        out.append(event)
        if isinstance(event, Message) and event.prefix == PREFIX:
            text = event.content.decode(errors="replace")
            if text == mark(window.number, "low"):
                window.open = True
            elif text == mark(window.number, "high") and window.open:
                window.open = False
                out += [RowChange(window.table, READ, None, row, event.where) for row in window.rows.values()]
                given = len(window.rows)
        elif window.open and isinstance(event, RowChange) and event.table.full_name == window.table.full_name:
            _take_out(window, event, key_of)
    return out, given


def _take_out(window: ChunkWindow, row: RowChange, key_of: Callable[[SourceTable], KeyOf]) -> None:
    if row.op == TRUNCATE:
        window.rows.clear()
    if row.table not in window.keys:
        window.keys[row.table] = key_of(row.table) if _keyed(row.table) == _keyed(window.table) else None
    key = window.keys[row.table]
    if key is None:
        window.spoiled = True
        window.rows.clear()
        return
    for values in (row.before, row.after):
        if values is not None:
            window.rows.pop(key(values), None)


def _keyed(table: SourceTable) -> list[Any]:
    """What makes keys comparable: their columns, and how these are written."""
    by_name = {column.name: column.connect for column in table.columns}
    return [(name, {**by_name[name], "default": None}) for name in table.key]
