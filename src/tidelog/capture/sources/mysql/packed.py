"""Values as a row event packs them, to JSON texts. Nothing here knows a table or a stream.

    reader(buffer, position) -> (JSON text, position behind the value)

It is our own and not mysql-replication's: that one gives an empty SET and a zero date as None, a SET without order, a
BINARY without its padding, and times as objects that are written again at once.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any

from tidelog.capture.sources.mysql.charsets import Decoder
from tidelog.capture.sources.mysql.kinds import (
    FIXED,
    MysqlKind,
    bits_text,
    bytes_text,
    date_text,
    datetime_text,
    fixed_text,
    float_text,
    geometry_text,
    json_text,
    timestamp_text,
    unscaled_text,
)
from tidelog.errors import PeerError, UsageError

Reader = Callable[[bytes, int], tuple[str, int]]

TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, TIME, DATETIME, YEAR, NEWDATE, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 10, 11, 12, 13, 14, 15, 16, 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141  # MariaDB's
JSON, NEWDECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 245, 246, 247, 248, 252, 253, 254, 255
INTEGERS = {TINY: ("int8", 1), SHORT: ("int16", 2), INT24: ("int24", 3), LONG: ("int32", 4), LONGLONG: ("int64", 8)}
_BYTES_OF_DIGITS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def reader(code: int, meta: int, kind: MysqlKind, decode: Decoder | None) -> Reader:
    """`code` and `meta` are the table map's: of an ENUM or SET its own, not STRING's."""
    if code in INTEGERS:
        return _integer(INTEGERS[code][1], not kind.unsigned)
    if code in {VARCHAR, VAR_STRING, STRING, BLOB, BLOB_COMPRESSED, VARCHAR_COMPRESSED}:
        return _string(code, meta, kind, decode)
    if code in {ENUM, SET}:
        return _enum(meta, kind) if code == ENUM else _set(meta, kind)
    if code in {GEOMETRY, JSON}:
        return _prefixed(meta, _json if code == JSON else lambda data: geometry_text(data, kind.name == "point"))
    if code == NEWDECIMAL:
        return _decimal(kind.size, kind.scale)
    if code == BIT:
        return _bit(kind.size)
    temporal = _temporal(code, kind)
    if temporal is None:
        raise UsageError(f"a column of the binlog's type {code} cannot be captured; leave its table out")
    return temporal


def _integer(size: int, signed: bool) -> Reader:
    from_bytes = int.from_bytes

    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + size
        return str(from_bytes(data[at:end], "little", signed=signed)), end

    return read


def _temporal(code: int, kind: MysqlKind) -> Reader | None:
    nullable, scale = kind.nullable, kind.scale
    if code == FLOAT:
        return lambda data, at: (float_text(struct.unpack_from("<f", data, at)[0]), at + 4)
    if code == DOUBLE:
        return lambda data, at: (repr(struct.unpack_from("<d", data, at)[0]), at + 8)
    if code == YEAR:
        return lambda data, at: (str(1900 + data[at] if data[at] else 0), at + 1)
    if code in {DATE, NEWDATE}:
        return lambda data, at: (_date(int.from_bytes(data[at : at + 3], "little"), nullable), at + 3)
    if code == TIMESTAMP2:
        return _timestamp2(scale, nullable)
    if code == DATETIME2:
        return _datetime2(scale, nullable)
    if code == TIME2:
        return _time2(scale)
    # Without the 5.6 formats; those have no fraction in the table map, so only whole seconds can be read.
    if code == TIMESTAMP:
        return lambda data, at: (timestamp_text(struct.unpack_from("<I", data, at)[0], 0, 0, nullable), at + 4)
    if code == DATETIME:
        return lambda data, at: (_datetime1(struct.unpack_from("<Q", data, at)[0], nullable), at + 8)
    if code == TIME:
        return lambda data, at: (_time1(int.from_bytes(data[at : at + 3], "little", signed=True)), at + 3)
    return None


# Text and bytes -----------------------------------------------------------------------------------------------------


def _prefixed(size: int, convert: Callable[[bytes], str]) -> Reader:
    def read(data: bytes, at: int) -> tuple[str, int]:
        start = at + size
        end = start + int.from_bytes(data[at:start], "little")
        return convert(data[start:end]), end

    return read


def _string(code: int, meta: int, kind: MysqlKind, decode: Decoder | None) -> Reader:
    size = meta if code in {BLOB, BLOB_COMPRESSED} else 1 if meta <= 255 else 2
    convert = _string_converter(kind, decode)
    if code in {BLOB_COMPRESSED, VARCHAR_COMPRESSED}:
        return _prefixed(size, lambda data: convert(_inflated(data)))
    return _prefixed(size, convert)


def _string_converter(kind: MysqlKind, decode: Decoder | None) -> Callable[[bytes], str]:
    if kind.name in FIXED:
        return lambda data: fixed_text(kind.name, data.ljust(FIXED[kind.name], b"\0"))
    if decode is None:
        return lambda data: bytes_text(data.ljust(kind.size, b"\0"))
    return lambda data: encode_basestring(decode(data))


def _inflated(data: bytes) -> bytes:
    """Of a COMPRESSED column: 0 and the bytes, or 0x80 + size of the length (+ 8: raw deflate), length, deflate."""
    if not data or not data[0]:
        return data[1:]
    return zlib.decompress(data[1 + (data[0] & 7) :], -15 if data[0] & 8 else 15)


def _json(data: bytes) -> str:
    from pymysqlreplication.json_binary import parse_json

    def texts(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, dict):
            return {texts(key): texts(member) for key, member in value.items()}
        return [texts(member) for member in value] if isinstance(value, list) else value

    return json_text(texts(parse_json(data[0], data[1:])) if data else None)


def _enum(size: int, kind: MysqlKind) -> Reader:
    texts = [encode_basestring(word) for word in ("", *kind.allowed)]  # 0 is what a wrong value became

    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + size
        return texts[int.from_bytes(data[at:end], "little")], end

    return read


def _set(size: int, kind: MysqlKind) -> Reader:
    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + size
        bits = int.from_bytes(data[at:end], "little")
        return encode_basestring(",".join(word for n, word in enumerate(kind.allowed) if bits >> n & 1)), end

    return read


# Numbers ------------------------------------------------------------------------------------------------------------


def _bit(bits: int) -> Reader:
    size = (bits + 7) // 8
    return lambda data, at: (bits_text(int.from_bytes(data[at : at + size], "big"), bits), at + size)


def _decimal(precision: int, scale: int) -> Reader:
    whole, fraction = divmod(precision - scale, 9), divmod(scale, 9)
    groups = [whole[1]] * bool(whole[1]) + [9] * whole[0] + [9] * fraction[0] + [fraction[1]] * bool(fraction[1])
    sizes = [(_BYTES_OF_DIGITS[digits], 10**digits) for digits in groups]
    total = sum(size for size, _ in sizes)

    def read(data: bytes, at: int) -> tuple[str, int]:
        positive = data[at] & 0x80
        packed = bytes([data[at] ^ 0x80]) + data[at + 1 : at + total]
        if not positive:
            packed = bytes(byte ^ 0xFF for byte in packed)
        number, start = 0, 0
        for size, ten in sizes:
            number = number * ten + int.from_bytes(packed[start : start + size], "big")
            start += size
        return unscaled_text(number if positive else -number), at + total

    return read


# Times --------------------------------------------------------------------------------------------------------------


def _date(packed: int, nullable: bool) -> str:
    return date_text(packed >> 9, packed >> 5 & 15, packed & 31, nullable)


def _fraction(data: bytes, at: int, scale: int) -> tuple[int, int]:
    """Microseconds, and the position behind them."""
    size = (scale + 1) // 2
    return int.from_bytes(data[at : at + size], "big") * 100 ** (3 - size), at + size


def _timestamp2(scale: int, nullable: bool) -> Reader:
    def read(data: bytes, at: int) -> tuple[str, int]:
        micros, end = _fraction(data, at + 4, scale)
        return timestamp_text(int.from_bytes(data[at : at + 4], "big"), micros, scale, nullable), end

    return read


def _datetime2(scale: int, nullable: bool) -> Reader:
    def read(data: bytes, at: int) -> tuple[str, int]:
        packed = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
        micros, end = _fraction(data, at + 5, scale)
        day, time = packed >> 17, packed & 0x1FFFF
        year, month = divmod(day >> 5, 13)
        return datetime_text((year, month, day & 31), _of_day(time) + micros, scale, nullable), end

    return read


def _of_day(time: int) -> int:
    """Microseconds, of hours, minutes and seconds of six bits each (hours have more)."""
    return ((time >> 12) * 3600 + (time >> 6 & 63) * 60 + (time & 63)) * 1_000_000


def _time2(scale: int) -> Reader:
    """The whole is one number with the fraction in its last bytes, below its middle if it is negative."""
    size = (scale + 1) // 2
    middle, unit = 0x800000 << 8 * size, 100 ** (3 - size)

    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + 3 + size
        packed = int.from_bytes(data[at:end], "big") - middle
        number = abs(packed)
        micros = _of_day(number >> 8 * size) + (number & (1 << 8 * size) - 1) * unit
        return str(-micros if packed < 0 else micros), end

    return read


def _datetime1(packed: int, nullable: bool) -> str:
    day, time = divmod(packed, 1_000_000)
    return datetime_text((day // 10_000, day // 100 % 100, day % 100), _digits_of_day(time), 0, nullable)


def _time1(packed: int) -> str:
    micros = _digits_of_day(abs(packed))
    return str(-micros if packed < 0 else micros)


def _digits_of_day(time: int) -> int:
    return (time // 10_000 * 3600 + time // 100 % 100 * 60 + time % 100) * 1_000_000


def inflated_event(data: bytes) -> bytes:
    """The body of one of MariaDB's compressed events: a byte with the length of the length, the length, zlib."""
    size = data[0] & 7
    body = zlib.decompress(data[1 + size :])
    if len(body) != int.from_bytes(data[1 : 1 + size], "big"):
        raise PeerError(f"a compressed event of the binlog has {len(body)} bytes, and says it has others")
    return body
