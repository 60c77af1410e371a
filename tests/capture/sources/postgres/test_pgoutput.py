"""Messages of pgoutput from bytes: as they are drawn, cut short, and changed at random."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.capture.change import Begin, Commit, Event, Idle, Message, RowChange, SourceColumn, SourceTable
from tidelog.capture.progress import CaptureProgress, apply
from tidelog.capture.sources.postgres import pgoutput
from tidelog.capture.sources.postgres.catalog import Catalog, Known, describe
from tidelog.capture.sources.postgres.columns import Type
from tidelog.capture.sources.postgres.pgoutput import MalformedChange, Relation, RelationColumn
from tidelog.capture.sources.postgres.stream import SlotStream
from tidelog.errors import PeerError

TYPES = {23: Type(23, "int4", "b"), 25: Type(25, "text", "b"), 1114: Type(1114, "timestamp", "b")}
COLUMNS = (RelationColumn("id", 23, -1, True), RelationColumn("v", 25, -1, False))
RELATION = Relation(7, "public", "kv", "d", COLUMNS)


def data(lsn: int, message: bytes) -> bytes:
    return struct.pack(">cQQq", b"w", lsn, lsn, 0) + message


def begin(commit_lsn: int, xid: int) -> bytes:
    return struct.pack(">cQqI", b"B", commit_lsn, 1, xid)


def commit(commit_lsn: int, end_lsn: int) -> bytes:
    return struct.pack(">cBQQq", b"C", 0, commit_lsn, end_lsn, 1)


def relation() -> bytes:
    head = struct.pack(">cI", b"R", 7) + b"public\0kv\0" + b"d" + struct.pack(">H", 2)
    return head + b"\1id\0" + struct.pack(">Ii", 23, -1) + b"\0v\0" + struct.pack(">Ii", 25, -1)


def row(*values: bytes | bool | None) -> bytes:
    """None is null, True is a value that did not change."""
    parts = [
        b"n" if each is None else b"u" if each is True else b"t" + struct.pack(">I", len(each)) + each
        for each in values
    ]  # type: ignore[arg-type]
    return struct.pack(">H", len(values)) + b"".join(parts)


def insert(*values: bytes | None) -> bytes:
    return struct.pack(">cI", b"I", 7) + b"N" + row(*values)


class Recorded:
    """What `SlotStream` asks of a catalog, of one table that is not in any database."""

    def matches(self, schema: str, name: str) -> bool:
        return True

    def known(self, told: Relation) -> tuple[Known, bool]:
        return describe(told, None, TYPES), False


def taken(*messages: bytes, start: int = 0) -> list[Event]:
    changes = SlotStream(cast(Catalog, Recorded()), "db", "1", start)
    events: list[Event] = []
    for message in messages:
        changes.take(message, events)
    return events


MESSAGES = {
    "begin": begin(100, 9),
    "commit": commit(100, 120),
    "origin": struct.pack(">cQ", b"O", 5) + b"east\0",
    "relation": relation(),
    "insert": insert(b"1", b"one"),
    "update": struct.pack(">cI", b"U", 7) + b"K" + row(b"1", None) + b"N" + row(b"2", True),
    "update of a whole row": struct.pack(">cI", b"U", 7) + b"O" + row(b"1", b"a") + b"N" + row(b"1", True),
    "delete": struct.pack(">cI", b"D", 7) + b"K" + row(b"1", None),
    "truncate": struct.pack(">cIBI", b"T", 1, 3, 7),
    "message": struct.pack(">cBQ", b"M", 1, 77) + b"prefix\0" + struct.pack(">I", 2) + b"hi",
    "type": struct.pack(">cI", b"Y", 99) + b"public\0mood\0",
}


@proves("cdc.1")
def test_messages_are_read_as_they_are_drawn() -> None:
    readers = describe(RELATION, None, TYPES).readers
    assert pgoutput.begin(MESSAGES["begin"]) == (100, pgoutput.EPOCH_US + 1, 9)
    assert pgoutput.commit(MESSAGES["commit"]) == (100, 120, pgoutput.EPOCH_US + 1)
    assert pgoutput.origin(MESSAGES["origin"]) == (5, "east")
    assert pgoutput.relation(MESSAGES["relation"]) == RELATION
    assert pgoutput.insert(MESSAGES["insert"], 0, readers) == ("1", '"one"')
    assert pgoutput.update(MESSAGES["update"], 0, readers) == (("1", "null"), False, ("2", readers[1][1]))
    assert pgoutput.update(MESSAGES["update of a whole row"], 0, readers) == (("1", '"a"'), True, ("1", '"a"'))
    assert pgoutput.delete(MESSAGES["delete"], 0, readers) == (("1", "null"), False)
    assert pgoutput.truncate(MESSAGES["truncate"]) == ((7,), True, True)
    assert pgoutput.message(MESSAGES["message"]) == (True, 77, "prefix", b"hi")


@proves("cdc.10")
def test_a_text_that_reads_like_the_marker_is_a_value() -> None:
    readers = describe(RELATION, None, TYPES).readers
    literal = b"__debezium_unavailable_value"
    changed = struct.pack(">cI", b"U", 7) + b"O" + row(b"1", b"a") + b"N" + row(b"1", literal)
    assert pgoutput.update(changed, 0, readers)[2] == ("1", f'"{literal.decode()}"')


@proves("cdc.3")
def test_a_transaction_whose_first_change_lies_where_the_last_commit_ended_is_told() -> None:
    """PostgreSQL 17 can give both one LSN; who leaves out what is not beyond the stored LSN loses a transaction."""
    told = [data(500, begin(560, 3)), data(500, relation()), data(500, insert(b"1", b"a")), data(560, commit(560, 600))]
    events = taken(*told, start=500)
    assert [(type(event).__name__) for event in events] == ["Begin", "RowChange", "Commit"]
    assert cast(RowChange, events[1]).where == 500
    assert cast(Commit, events[2]).position == {"lsn": "0/258", "system": "1"}


@proves("cdc.3")
def test_rows_that_share_an_lsn_are_all_told_in_their_order() -> None:
    """COPY and an insert of many rows write several rows with one LSN."""
    rows = [data(700, insert(str(number).encode(), None)) for number in range(50)]
    events = taken(data(700, begin(800, 3)), data(700, relation()), *rows, data(800, commit(800, 850)))
    assert [cast(RowChange, event).after for event in events[1:-1]] == [(str(number), "null") for number in range(50)]
    assert len({cast(RowChange, event).where for event in events[1:-1]}) == 1


@proves("cdc.4")
def test_a_keepalive_is_a_place_to_go_on_from_only_between_transactions() -> None:
    changes = SlotStream(cast(Catalog, Recorded()), "db", "1", 0)
    events: list[Event] = []
    changes.take(data(1, begin(50, 1)), events)
    changes.idle(40, events)
    changes.take(data(50, commit(50, 60)), events)
    changes.idle(55, events)  # older than the commit
    changes.idle(70, events)
    changes.idle(80, events)
    assert [type(event) for event in events] == [Begin, Commit, Idle]
    assert cast(Idle, events[-1]).position == {"lsn": "0/50", "system": "1"}


@proves("cdc.2")
def test_a_message_outside_of_transactions_is_a_place_to_go_on_from() -> None:
    """Or it would be told once more after a restart: no commit moves the position behind it."""
    loose = struct.pack(">cBQ", b"M", 0, 77) + b"prefix\0" + struct.pack(">I", 2) + b"hi"
    events = taken(data(70, loose), start=50)
    assert [type(event) for event in events] == [Message, Idle]
    assert apply(CaptureProgress({"lsn": "0/32"}), events).position == {"lsn": "0/4D", "system": "1"}
    assert [type(event) for event in taken(data(70, begin(90, 3)), data(70, MESSAGES["message"]))] == [Begin, Message]


@proves("cdc.1")
@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_that_is_cut_or_too_long_is_refused(name: str) -> None:
    before = [data(1, relation())]
    if name not in ("begin", "relation"):
        before.append(data(1, begin(50, 1)))
    taken(*before, data(1, MESSAGES[name]))
    if name == "type":
        return
    for cut in [*range(len(MESSAGES[name])), None]:
        message = MESSAGES[name] + b"\0" if cut is None else MESSAGES[name][:cut]
        with pytest.raises(MalformedChange):
            taken(*before, data(1, message))


@proves("cdc.1")
@given(
    st.sampled_from(list(MESSAGES.values())), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=4)
)
def test_changed_bytes_are_read_or_refused_and_never_more(message: bytes, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(message)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    with suppress(PeerError):
        taken(data(1, relation()), data(1, bytes(changed)))


@proves("cdc.1")
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(random: bytes) -> None:
    for message in (random, data(1, random)):
        with suppress(PeerError):
            taken(data(1, relation()), message)
        with suppress(PeerError):
            pgoutput.keepalive(random)


@proves("cdc.2")
def test_a_position_is_written_as_postgresql_writes_it() -> None:
    assert pgoutput.lsn_text(0x1_6B37_4842) == "1/6B374842"
    assert pgoutput.lsn_of("1/6B374842") == 0x1_6B37_4842
    with pytest.raises(ValueError, match="is not a position"):
        pgoutput.lsn_of("12")


@proves("cdc.14")
def test_a_column_that_was_renamed_since_is_still_of_the_key() -> None:
    from tidelog.capture.sources.postgres.catalog import ColumnFacts, TableFacts

    facts = TableFacts(
        "public", "kv", "f", ("number",), (),
        (ColumnFacts("number", 23, -1, True, 0, None, "integer"), ColumnFacts("v", 25, -1, False, 0, None, "text")),
    )  # fmt: skip
    whole = RELATION._replace(identity="f", columns=tuple(column._replace(identity=True) for column in COLUMNS))
    table: SourceTable = describe(whole, facts, TYPES).table
    assert table.key == ("id",)
    assert [column.name for column in table.columns] == ["id", "v"]
    first: SourceColumn = table.columns[0]
    expected: dict[str, Any] = {"type": "int32", "optional": False}
    assert first.connect == expected
