"""The messages of PostgreSQL's plugin `pgoutput`, protocol version 1, with values as text. Bytes to values, no IO.

Numbers are big-endian; `text` ends with a zero byte; times are microseconds since 2000-01-01.

    copy data    'w' start u64 | end u64 | clock i64 | message          what was written to the log at `start`
                 'k' end u64 | clock i64 | reply wanted u8              nothing before `end` is still to be sent
                 'r' written u64 | flushed u64 | applied u64 | clock i64 | reply wanted u8     ours, to the server

    message  'B' commit lsn u64 | commit time i64 | xid u32
             'C' flags u8 | commit lsn u64 | end lsn u64 | commit time i64
             'O' lsn at the origin u64 | name text
             'R' relation u32 | schema text | name text | identity u8 | n u16 | n * column
                     column: flags u8 (1: part of the identity) | name text | type u32 | modifier i32
             'Y' type u32 | schema text | name text
             'I' relation u32 | 'N' row
             'U' relation u32 | ['K' row | 'O' row] | 'N' row           K: the old key; O: the whole old row
             'D' relation u32 | 'K' row | 'O' row
             'T' n u32 | flags u8 (1: cascade, 2: restart identity) | n * relation u32
             'M' flags u8 (1: transactional) | lsn u64 | prefix text | size u32 | bytes
     row     n u16 | n * value
     value   'n'                    null
             'u'                    a large value that the update did not change, and that is not sent
             't' size u32 | bytes   the value's text

A malformed message raises `MalformedChange`, whatever its bytes are. `at` is where a message begins in its copy data.
The row's reader is the hot path of capture: it takes converters that were chosen once per relation (`Reader`), gives
JSON texts, and checks once at the end of a message that all of it and no more was read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.errors import PeerError

EPOCH_US = 946_684_800_000_000  # 2000-01-01, in microseconds since 1970
HEADER = 25  # bytes of copy data before the message

DATA, KEEPALIVE = ord("w"), ord("k")
BEGIN, COMMIT, ORIGIN, RELATION, TYPE = ord("B"), ord("C"), ord("O"), ord("R"), ord("Y")
INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE = ord("I"), ord("U"), ord("D"), ord("T"), ord("M")
NEW, OLD_KEY, OLD_ROW = ord("N"), ord("K"), ord("O")
TEXT, NULL, UNCHANGED = ord("t"), ord("n"), ord("u")

_U16 = struct.Struct(">H").unpack_from
_U32 = struct.Struct(">I").unpack_from
_U64 = struct.Struct(">Q").unpack_from
_BEGIN = struct.Struct(">cQqI")
_COMMIT = struct.Struct(">cBQQq")
_KEEPALIVE = struct.Struct(">cQqB")
_STATUS = struct.Struct(">cQQQqB")
_MESSAGE = struct.Struct(">cBQ")
_TRUNCATE = struct.Struct(">cIB")
_COLUMN_TYPE = struct.Struct(">Ii")

# What bytes that are not a message make of the code below: each is told as one error.
FAULTS = (struct.error, IndexError, ValueError, KeyError, OverflowError, ArithmeticError)


class MalformedChange(PeerError):
    pass


class BeginMessage(NamedTuple):
    commit_lsn: int
    commit_us: int
    xid: int


class CommitMessage(NamedTuple):
    commit_lsn: int
    end_lsn: int
    commit_us: int


class RelationColumn(NamedTuple):
    name: str
    type: int
    modifier: int
    identity: bool  # part of what identifies an old row


class Relation(NamedTuple):
    id: int
    schema: str
    name: str
    identity: str  # d: the primary key, n: nothing, f: the whole row, i: an index
    columns: tuple[RelationColumn, ...]


class TruncateMessage(NamedTuple):
    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


class LogicalMessage(NamedTuple):
    transactional: bool
    lsn: int
    prefix: str
    content: bytes


class Keepalive(NamedTuple):
    end: int
    clock_us: int
    reply: bool


Reader = Callable[[bytes], str]  # of a value's text, to its JSON text
Readers = Sequence[tuple[Reader, str]]  # of a relation's columns, each with the text for a value that was not sent
Texts = tuple[str, ...]


def begin(data: bytes, at: int = 0) -> BeginMessage:
    _, commit_lsn, time, xid = _whole(_BEGIN, data, at)
    return BeginMessage(commit_lsn, time + EPOCH_US, xid)


def commit(data: bytes, at: int = 0) -> CommitMessage:
    _, _, commit_lsn, end_lsn, time = _whole(_COMMIT, data, at)
    return CommitMessage(commit_lsn, end_lsn, time + EPOCH_US)


def origin(data: bytes, at: int = 0) -> tuple[int, str]:
    """Its LSN there, and its name."""
    (lsn,) = _U64(data, at + 1)
    name, end = _text(data, at + 9)
    _ends(data, end)
    return lsn, name


def relation(data: bytes, at: int = 0) -> Relation:
    (number,) = _U32(data, at + 1)
    schema, here = _text(data, at + 5)
    name, here = _text(data, here)
    identity = chr(data[here])
    (count,) = _U16(data, here + 1)
    here += 3
    columns = []
    for _ in range(count):
        flags = data[here]
        column, here = _text(data, here + 1)
        kind, modifier = _COLUMN_TYPE.unpack_from(data, here)
        here += 8
        columns.append(RelationColumn(column, kind, modifier, bool(flags & 1)))
    _ends(data, here)
    return Relation(number, schema or "pg_catalog", name, identity, tuple(columns))


def truncate(data: bytes, at: int = 0) -> TruncateMessage:
    _, count, flags = _TRUNCATE.unpack_from(data, at)
    if count > len(data) // 4:
        raise MalformedChange(f"a truncate names {count} tables in {len(data)} bytes")
    end = at + 6 + 4 * count
    _ends(data, end)
    numbers = struct.unpack_from(f">{count}I", data, at + 6)
    return TruncateMessage(numbers, bool(flags & 1), bool(flags & 2))


def message(data: bytes, at: int = 0) -> LogicalMessage:
    _, flags, lsn = _MESSAGE.unpack_from(data, at)
    prefix, here = _text(data, at + 10)
    (size,) = _U32(data, here)
    _ends(data, here + 4 + size)
    return LogicalMessage(bool(flags & 1), lsn, prefix, data[here + 4 : here + 4 + size])


def insert(data: bytes, at: int, readers: Readers) -> Texts:
    if data[at + 5] != NEW:
        raise MalformedChange(f"an insert has a row of the kind {data[at + 5]}")
    values, end = row(data, at + 6, readers)
    _ends(data, end)
    return values


def update(data: bytes, at: int, readers: Readers) -> tuple[Texts | None, bool, Texts]:
    """The old row or None, whether it is whole (else its key alone), and the new row. What the new row leaves out
    because it did not change is taken from a whole old row."""
    kind = data[at + 5]
    old = None
    here = at + 5
    if kind != NEW:
        if kind not in (OLD_KEY, OLD_ROW):
            raise MalformedChange(f"an update has a row of the kind {kind}")
        old, here = row(data, at + 6, readers)
        if data[here] != NEW:
            raise MalformedChange(f"an update has a second row of the kind {data[here]}")
    new, end = row(data, here + 1, readers)
    _ends(data, end)
    if kind == OLD_ROW and old is not None:
        new = _filled(new, old, readers)
    return old, kind == OLD_ROW, new


def delete(data: bytes, at: int, readers: Readers) -> tuple[Texts, bool]:
    """The old row, and whether it is whole."""
    kind = data[at + 5]
    if kind not in (OLD_KEY, OLD_ROW):
        raise MalformedChange(f"a delete has a row of the kind {kind}")
    values, end = row(data, at + 6, readers)
    _ends(data, end)
    return values, kind == OLD_ROW


def row(data: bytes, at: int, readers: Readers) -> tuple[Texts, int]:
    """The JSON texts of a row that begins at `at`, and where it ends."""
    (count,) = _U16(data, at)
    if count != len(readers):
        raise MalformedChange(f"a row has {count} values, and its table {len(readers)} columns")
    at += 2
    values: list[str] = []
    add = values.append
    for reader, unchanged in readers:
        kind = data[at]
        if kind == TEXT:
            start = at + 5
            at = start + _U32(data, at + 1)[0]
            add(reader(data[start:at]))
        elif kind == NULL:
            add("null")
            at += 1
        elif kind == UNCHANGED:
            add(unchanged)
            at += 1
        else:
            raise MalformedChange(f"a value is of the kind {kind}")
    return tuple(values), at


def relation_id(data: bytes, at: int) -> int:
    number: int = _U32(data, at + 1)[0]
    return number


def written_at(data: bytes) -> int:
    """Where in the server's log the change lies that this copy data tells."""
    lsn: int = _U64(data, 1)[0]
    return lsn


def keepalive(data: bytes) -> Keepalive:
    _, end, clock, reply = _whole(_KEEPALIVE, data, 0)
    return Keepalive(end, clock + EPOCH_US, bool(reply))


def status(flushed: int, now_us: int, *, reply: bool = False) -> bytes:
    """What we tell the server: it may forget what lies before `flushed`. `reply`: it is to say how far it is."""
    return _STATUS.pack(b"r", flushed, flushed, flushed, now_us - EPOCH_US, reply)


def lsn_text(lsn: int) -> str:
    """As PostgreSQL writes it: 0/16B3748."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    high, slash, low = text.partition("/")
    if not slash:
        raise ValueError(f"{text!r} is not a position in PostgreSQL's log; one looks like 0/16B3748")
    return int(high, 16) << 32 | int(low, 16)


def _filled(new: Texts, old: Texts, readers: Readers) -> Texts:
    """Told by identity: a value that only reads like the one that stands for nothing is a value."""
    missing = [text is unchanged for text, (_, unchanged) in zip(new, readers, strict=True)]
    if not any(missing):
        return new
    return tuple(before if left else text for left, text, before in zip(missing, new, old, strict=True))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1


def _whole(layout: struct.Struct, data: bytes, at: int) -> tuple[int, ...]:
    _ends(data, at + layout.size)
    return layout.unpack_from(data, at)


def _ends(data: bytes, end: int) -> None:
    if end != len(data):
        raise MalformedChange(f"a message ends after {end} bytes and has {len(data)}")
