"""The binlog's table map: what a table's columns were when the row events that follow it were written.

    table id 6, flags 2, database (length, name, 0), table (length, name, 0), columns n (packed number)
    a type of one byte for each; the types' own metadata; a bit for each that may be NULL
    optional metadata, as binlog_row_metadata=FULL writes it: (field 1, length, bytes)*

Names, signedness, character sets, the words of ENUM and SET, and the primary key come from there: they are those of
the position, never today's. UUID, INET4 and INET6 look like BINARY(n), and defaults are not told: `shapes.py` adds
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelog.capture.sources.mysql import packed
from tidelog.capture.sources.mysql.charsets import BINARY, Decoder, decoder
from tidelog.capture.sources.mysql.kinds import MysqlKind
from tidelog.errors import UsageError

SIGNEDNESS, DEFAULT_CHARSET, COLUMN_CHARSET, COLUMN_NAME, SET_WORDS, ENUM_WORDS, GEOMETRY_TYPE = 1, 2, 3, 4, 5, 6, 7
SIMPLE_KEY, KEY_WITH_PREFIX, ENUM_DEFAULT_CHARSET, ENUM_COLUMN_CHARSET = 8, 9, 10, 11
POINT = 1
_META_SIZE = dict.fromkeys((packed.FLOAT, packed.DOUBLE, packed.BLOB, packed.BLOB_COMPRESSED, packed.JSON), 1)
_META_SIZE |= dict.fromkeys((packed.GEOMETRY, packed.TIME2, packed.DATETIME2, packed.TIMESTAMP2), 1)
_META_SIZE |= dict.fromkeys((packed.VARCHAR, packed.VARCHAR_COMPRESSED, packed.VAR_STRING, packed.STRING), 2)
_META_SIZE |= dict.fromkeys((packed.BIT, packed.NEWDECIMAL), 2)
_NUMERIC = {*packed.INTEGERS, packed.NEWDECIMAL, packed.FLOAT, packed.DOUBLE, packed.YEAR}
_STRINGS = {packed.STRING, packed.VAR_STRING, packed.VARCHAR, packed.BLOB}
_STRINGS |= {packed.BLOB_COMPRESSED, packed.VARCHAR_COMPRESSED}


@dataclass(frozen=True, slots=True)
class MappedColumn:
    name: str
    code: int
    meta: int
    kind: MysqlKind
    decode: Decoder | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TableMap:
    database: str
    table: str
    columns: tuple[MappedColumn, ...]
    key: tuple[str, ...]
    named: bool  # it was written with binlog_row_metadata=FULL


def names_of(body: bytes) -> tuple[int, str, str]:
    """Id, database and table: what tells whether the rest is of interest."""
    at = 9 + body[8]
    return int.from_bytes(body[:6], "little"), body[9:at].decode(), body[at + 2 : at + 2 + body[at + 1]].decode()


def decode(body: bytes, charsets: Mapping[int, str], mariadb: bool) -> TableMap:
    _, database, table = names_of(body)
    at = 9 + body[8]
    at += 3 + body[at + 1]
    count, at = number(body, at)
    codes, at = list(body[at : at + count]), at + count
    length, at = number(body, at)
    metas = _metas(codes, body[at : at + length])
    at += length
    nullable = [bool(body[at + n // 8] >> n % 8 & 1) for n in range(count)]
    optional = _fields(body, at + (count + 7) // 8)
    columns = _columns(codes, metas, nullable, optional, charsets, mariadb)
    key = tuple(columns[n].name for n in _key(optional)) if COLUMN_NAME in optional else ()
    return TableMap(database, table, columns, key, COLUMN_NAME in optional)


def number(data: bytes, at: int) -> tuple[int, int]:
    """A packed number, and the position behind it."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def _metas(codes: list[int], data: bytes) -> list[int]:
    """Each column's metadata. A STRING is looked into: it may be an ENUM or a SET, and then `codes` says so."""
    metas, at = [], 0
    for n, code in enumerate(codes):
        size = _META_SIZE.get(code, 0)
        order = "big" if code in {packed.STRING, packed.NEWDECIMAL} else "little"
        meta = int.from_bytes(data[at : at + size], order)  # type: ignore[arg-type]
        at += size
        if code == packed.STRING:
            codes[n], meta = _string_meta(meta >> 8, meta & 0xFF)
        metas.append(meta)
    return metas


def _string_meta(first: int, second: int) -> tuple[int, int]:
    """Lengths above 255 have two of their bits, turned, in the first byte."""
    if first & 0x30 != 0x30:
        return first | 0x30, second | ((first & 0x30) ^ 0x30) << 4
    return first, second


def _fields(body: bytes, at: int) -> dict[int, bytes]:
    fields = {}
    while at < len(body):
        name = body[at]
        length, at = number(body, at + 1)
        fields[name] = body[at : at + length]
        at += length
    return fields


def _columns(
    codes: Sequence[int],
    metas: Sequence[int],
    nullable: Sequence[bool],
    optional: Mapping[int, bytes],
    charsets: Mapping[int, str],
    mariadb: bool,
) -> tuple[MappedColumn, ...]:
    names = [word.decode() for word in _words(optional.get(COLUMN_NAME, b""))] or [f"@{n}" for n in range(len(codes))]
    numeric = [n for n, code in enumerate(codes) if code in _NUMERIC]
    signs = optional.get(SIGNEDNESS, b"")
    unsigned = {n for place, n in enumerate(numeric) if signs and signs[place // 8] >> 7 - place % 8 & 1}
    strings = [n for n, code in enumerate(codes) if code in _STRINGS or (mariadb and code == packed.GEOMETRY)]
    collations = _collations(strings, optional, DEFAULT_CHARSET, COLUMN_CHARSET)
    chosen = [n for n, code in enumerate(codes) if code in {packed.ENUM, packed.SET}]
    collations |= _collations(chosen, optional, ENUM_DEFAULT_CHARSET, ENUM_COLUMN_CHARSET)
    lists = {
        packed.ENUM: iter(_word_lists(optional.get(ENUM_WORDS, b""))),
        packed.SET: iter(_word_lists(optional.get(SET_WORDS, b""))),
    }
    shapes = iter(_numbers(optional.get(GEOMETRY_TYPE, b"")))
    columns = []
    for n, code in enumerate(codes):
        decode_text = decoder(collations.get(n, BINARY), charsets)
        words = next(lists[code], []) if code in lists else []
        allowed = tuple((decode_text or bytes.decode)(word) for word in words)
        shape = next(shapes, 0) if code == packed.GEOMETRY else 0
        kind = replace(_kind(code, metas[n], shape, decode_text), allowed=allowed, nullable=nullable[n])
        kind = replace(kind, unsigned=n in unsigned and code != packed.YEAR)
        columns.append(MappedColumn(names[n], code, metas[n], kind, decode_text))
    return tuple(columns)


def _kind(code: int, meta: int, shape: int, decode_text: Decoder | None) -> MysqlKind:
    if code in packed.INTEGERS:
        return MysqlKind(packed.INTEGERS[code][0])
    if code in _STRINGS:
        if decode_text is not None:
            return MysqlKind("text")
        return MysqlKind("binary", size=meta) if code == packed.STRING else MysqlKind("bytes")
    if code == packed.NEWDECIMAL:
        return MysqlKind("decimal", size=meta >> 8, scale=meta & 0xFF)
    if code == packed.BIT:
        return MysqlKind("bit", size=(meta >> 8) * 8 + (meta & 0xFF))
    if code == packed.GEOMETRY:
        return MysqlKind("point" if shape == POINT else "geometry")
    if code not in _KINDS:
        raise UsageError(f"a column of the binlog's type {code} cannot be captured; leave its table out")
    return MysqlKind(_KINDS[code], scale=meta if code in _FRACTIONS else 0)


_FRACTIONS = {packed.TIME2, packed.DATETIME2, packed.TIMESTAMP2}
_KINDS = {packed.FLOAT: "float", packed.DOUBLE: "double", packed.YEAR: "year", packed.JSON: "json"}
_KINDS |= {packed.ENUM: "enum", packed.SET: "set", packed.DATE: "date", packed.NEWDATE: "date"}
_KINDS |= {packed.TIME: "time", packed.TIME2: "time", packed.DATETIME: "datetime", packed.DATETIME2: "datetime"}
_KINDS |= {packed.TIMESTAMP: "timestamp", packed.TIMESTAMP2: "timestamp"}


def _collations(columns: Sequence[int], optional: Mapping[int, bytes], default: int, each: int) -> dict[int, int]:
    """By column: one for all with its exceptions, or one for each."""
    if each in optional:
        return dict(zip(columns, _numbers(optional[each]), strict=True))
    if default not in optional:
        return {}
    first, *others = _numbers(optional[default])
    exceptions = dict(zip(others[::2], others[1::2], strict=True))
    return {column: exceptions.get(place, first) for place, column in enumerate(columns)}


def _key(optional: Mapping[int, bytes]) -> list[int]:
    if KEY_WITH_PREFIX in optional:
        return _numbers(optional[KEY_WITH_PREFIX])[::2]
    return _numbers(optional.get(SIMPLE_KEY, b""))


def _numbers(data: bytes) -> list[int]:
    numbers, at = [], 0
    while at < len(data):
        value, at = number(data, at)
        numbers.append(value)
    return numbers


def _words(data: bytes) -> list[bytes]:
    words, at = [], 0
    while at < len(data):
        length, at = number(data, at)
        words.append(data[at : at + length])
        at += length
    return words


def _word_lists(data: bytes) -> list[list[bytes]]:
    lists, at = [], 0
    while at < len(data):
        count, at = number(data, at)
        words = []
        for _ in range(count):
            length, at = number(data, at)
            words.append(data[at : at + length])
            at += length
        lists.append(words)
    return lists
