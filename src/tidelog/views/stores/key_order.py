"""A key as bytes that sort as the key does, for stores that know bytes alone. Pure.

    boolean    00 or 01
    long       8 bytes, big end first, the sign turned
    date       4 bytes: its day, counted from 0001-01-01
    timestamp  as long: microseconds since 1970
    string     UTF-8, 00 written as 00 FF, then 00 01
    binary     likewise
    decimal    80 for zero; above it 81, the exponent (4 bytes, the sign turned), the digits as text, 00;
               below it 7F and the complement of those

Rules:
- Keys that are equal have equal bytes (12.50 is 12.5), and others have others.
- One key's bytes are never the beginning of another's.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tidelog.errors import UsageError
from tidelog.schema.column_types import BINARY, BOOLEAN, DATE, DECIMAL, LONG, STRING, TIMESTAMP
from tidelog.schema.declaration import Declaration, Key

END = b"\x00\x01"
ESCAPED = b"\x00\xff"
COMPLEMENT = bytes(0xFF - byte for byte in range(256))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
INFINITE_EXPONENT = 2**31 - 1

Encoder = Callable[[Key], bytes]


def encoder(declared: Declaration) -> Encoder:
    """For the keys of one view."""
    parts = [_PARTS[kind] for _, kind in declared.columns[: len(declared.key)]]

    def encode(key: Key) -> bytes:
        if len(key) != len(parts):
            raise UsageError(f"a key of {len(key)} values; this view's is {', '.join(declared.key)}")
        return b"".join([part(value) for part, value in zip(parts, key, strict=True)])

    return encode


def _long(value: Any) -> bytes:
    return (int(value) + 2**63).to_bytes(8, "big")


def _date(value: date) -> bytes:
    return value.toordinal().to_bytes(4, "big")


def _timestamp(value: datetime) -> bytes:
    return _long((value - EPOCH) // MICROSECOND)


def _bytes(value: bytes) -> bytes:
    return value.replace(b"\x00", ESCAPED) + END


def _string(value: str) -> bytes:
    return _bytes(value.encode("utf-8", "surrogatepass"))


def _decimal(value: Decimal) -> bytes:
    if value.is_nan():
        raise UsageError("a key is NaN, which is equal to nothing; leave such rows out")
    if value.is_zero():
        return b"\x80"
    digits = b"" if value.is_infinite() else "".join(map(str, value.as_tuple().digits)).rstrip("0").encode()
    exponent = INFINITE_EXPONENT if value.is_infinite() else value.adjusted()
    size = (exponent + 2**31).to_bytes(4, "big") + digits + b"\x00"
    return b"\x81" + size if value > 0 else b"\x7f" + size.translate(COMPLEMENT)


_PARTS: dict[str, Callable[[Any], bytes]] = {
    BOOLEAN: lambda value: b"\x01" if value else b"\x00",
    LONG: _long,
    STRING: _string,
    DATE: _date,
    TIMESTAMP: _timestamp,
    DECIMAL: _decimal,
    BINARY: _bytes,
}
