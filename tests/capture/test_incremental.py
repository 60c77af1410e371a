"""Incremental snapshots, without IO: a simulated database whose log and chunks come in any order."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.capture import incremental
from tidelog.capture.change import (
    CREATE,
    DELETE,
    READ,
    TRUNCATE,
    UPDATE,
    Event,
    Message,
    RowChange,
    SourceColumn,
    SourceTable,
)
from tidelog.capture.incremental import Incremental, after_window, from_fields, mark, pass_through, to_fields, told
from tidelog.capture.snapshotting import key_of

TABLE = SourceTable(
    "main", "kv", (SourceColumn("id", {"type": "int64"}), SourceColumn("v", {"type": "int64"})), ("id",)
)
KEY = key_of(TABLE)
SIGNAL = {"type": "execute-snapshot", "data": {"data-collections": ["main.kv"], "type": "incremental"}}


class Database:
    """A table by key, and its log."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.log: list[Event] = []
        self.clock = 0

    def write(self, kind: str, key: int, to: int) -> None:
        self.clock += 1
        old = self.rows.get(key)
        before = None if old is None else (str(key), str(old))
        if kind == "put":
            self.rows[key] = self.clock
            op = CREATE if old is None else UPDATE
            self.log.append(RowChange(TABLE, op, before, (str(key), str(self.clock))))
        elif kind == "truncate":
            self.rows.clear()
            self.log.append(RowChange(TABLE, TRUNCATE, None, None))
        elif old is not None and kind == "delete":
            del self.rows[key]
            self.log.append(RowChange(TABLE, DELETE, before, None))
        elif old is not None and kind == "move" and to not in self.rows:
            del self.rows[key]
            self.rows[to] = old
            self.log.append(RowChange(TABLE, UPDATE, before, (str(to), str(old))))

    def chunk(self, after: int | None, to: int, size: int) -> list[tuple[str, str]]:
        keys = sorted(key for key in self.rows if (after is None or key > after) and key <= to)
        return [(str(key), str(self.rows[key])) for key in keys[:size]]

    def watermark(self, text: str) -> None:
        self.log.append(Message(incremental.PREFIX, text.encode(), True))


WRITES = st.lists(
    st.tuples(st.sampled_from(["put", "put", "delete", "move", "truncate"]), st.integers(0, 9), st.integers(0, 9)),
    max_size=6,
)


@proves("D3", "cdc.18", "cdc.19", "cdc.20", "cdc.21")
@given(data=st.data(), size=st.integers(1, 4), beginning=WRITES)
def test_the_last_event_of_each_key_is_its_newest_state(
    data: st.DataObject, size: int, beginning: list[tuple[str, int, int]]
) -> None:
    """Writes come before, within and after windows; crashes throw windows away. A consumer that knew nothing before."""
    database = Database()
    for write in beginning:
        database.write(*write)
    start = len(database.log)  # the consumer knows no row of before
    seen: dict[str, str] = {}
    read, number = start, 0
    state: Incremental | None = told(None, SIGNAL, ["main.kv"])
    while state is not None:
        number += 1
        for write in data.draw(WRITES, label="before"):
            database.write(*write)
        if state.to is None:
            state = replace(state, to=(str(max(database.rows, default=-1)),))
        after = None if state.after is None else int(state.after[0])
        database.watermark(mark(str(number), "low"))
        for write in data.draw(WRITES, label="between low and chunk"):
            database.write(*write)
        assert state.to is not None
        rows = database.chunk(after, int(state.to[0]), size)
        for write in data.draw(WRITES, label="between chunk and high"):
            database.write(*write)
        database.watermark(mark(str(number), "high"))
        window = incremental.window_of(str(number), TABLE, rows, KEY, size)
        if data.draw(st.integers(0, 3), label="crash") == 3:
            state = from_fields(json.loads(json.dumps(to_fields(state))))
            continue  # and the next window is another: old watermarks count for nothing
        events, given = pass_through(window, database.log[read:], key_of)
        read = len(database.log)
        assert given is not None
        fold(seen, events)
        state = after_window(state, window, given)
    fold(seen, database.log[read:])
    for key, value in database.rows.items():
        assert seen.get(str(key)) == str(value)
    assert set(seen) <= {str(key) for key in database.rows}


def given_by(rows: list[tuple[str, str]], changed: SourceTable, *changes: RowChange) -> tuple[list[Event], Incremental]:
    """Of a window between whose watermarks the table was changed, and what is to be read next."""
    window = incremental.window_of("1", TABLE, rows, KEY, 10)
    low, high = (Message(incremental.PREFIX, mark("1", edge).encode(), True) for edge in ("low", "high"))
    events, given = pass_through(window, [low, *changes, high], key_of)
    assert given is not None
    state = after_window(Incremental("s", ("main.kv", "main.b"), ("0",), ("9",)), window, given)
    assert state is not None
    return [one for one in events if isinstance(one, RowChange) and one.op == READ], state


@proves("D3", "cdc.14", "cdc.18")
def test_a_table_that_changes_inside_of_a_window_is_compared_by_the_keys_of_its_shapes() -> None:
    note = SourceColumn("note", {"type": "string"})
    first = SourceTable("main", "kv", (note, *TABLE.columns), ("id",))
    changes = (
        RowChange(first, UPDATE, ('"x"', "2", "20"), ('"x"', "2", "21")),
        RowChange(first, DELETE, ('"x"', "3", "30"), None),
    )
    rows = [("1", "10"), ("2", "20"), ("3", "30"), ("21", "1")]
    read, state = given_by(rows, first, *changes)
    assert [one.after for one in read if isinstance(one, RowChange)] == [("1", "10"), ("21", "1")]
    assert state == Incremental("s", ("main.b",), rows=2)


@proves("D3", "cdc.14", "cdc.20")
@pytest.mark.parametrize(
    "other",
    [
        SourceTable("main", "kv", (SourceColumn("id", {"type": "string"}), TABLE.columns[1]), ("id",)),
        SourceTable("main", "kv", (SourceColumn("number", {"type": "int64"}), TABLE.columns[1]), ("number",)),
        SourceTable("main", "kv", TABLE.columns, ("id", "v")),
        SourceTable("main", "kv", TABLE.columns, ()),
    ],
)
def test_a_table_that_gets_another_key_inside_of_a_window_is_read_from_its_beginning(other: SourceTable) -> None:
    read, state = given_by([("1", "10"), ("2", "20")], other, RowChange(other, CREATE, None, ('"3"', "30")))
    assert read == []
    assert state == Incremental("s", ("main.kv", "main.b"))


def fold(seen: dict[str, str], events: list[Event]) -> None:
    for one in events:
        if not isinstance(one, RowChange):
            continue
        if one.op == TRUNCATE:
            seen.clear()
        if one.before is not None:
            seen.pop(one.before[0], None)
        if one.after is not None:
            seen[one.after[0]] = one.after[1]
        assert one.op in (CREATE, UPDATE, DELETE, READ, TRUNCATE)


@proves("cdc.20")
@pytest.mark.parametrize(
    "signal",
    [
        {},
        {"type": "what"},
        {"type": "execute-snapshot"},
        {"type": "execute-snapshot", "data": {"data-collections": []}},
        {"type": "execute-snapshot", "data": {"data-collections": ["main.other"]}},
        {"type": "execute-snapshot", "data": {"data-collections": ["main.kv"], "type": "blocking"}},
        {"type": "execute-snapshot", "data": "no json"},
        {"type": "execute-snapshot", "data": "[]"},
    ],
)
def test_a_signal_that_cannot_be_followed_is_refused_with_a_reason(signal: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        told(None, signal, ["main.kv"])


@proves("cdc.20")
def test_a_snapshot_is_added_to_paused_resumed_and_stopped() -> None:
    tables = ["main.kv", "main.b"]
    state = told(None, SIGNAL, tables)
    assert state is not None and state.tables == ("main.kv",)
    state = told(state, {"type": "execute-snapshot", "data": '{"data-collections":["main.b","main.kv"]}'}, tables)
    assert state is not None and state.tables == ("main.kv", "main.b")
    paused = told(state, {"type": "pause-snapshot"}, tables)
    assert paused is not None and paused.paused
    assert told(paused, {"type": "resume-snapshot"}, tables) == state
    stop = {"type": "stop-snapshot", "data": {"data-collections": ["main.kv"]}}
    left = told(replace(state, after=("3",), to=("9",)), stop, tables)
    assert left == Incremental(state.id, ("main.b",))
    assert told(left, {"type": "stop-snapshot"}, tables) is None
    assert told(None, {"type": "pause-snapshot"}, tables) is None
