"""Values of a view as SQLite has them, and back, exactly. Pure.

    boolean    INTEGER    0, 1
    long       INTEGER
    double     REAL       NaN as the text 'NaN': SQLite would make it null. It is above all numbers, as texts are
    decimal    TEXT       '12.50', as it was said; of a key without zeros at its end, so that equal keys are equal
    string     TEXT       compared by code point
    binary     BLOB
    date       TEXT       '2026-01-31'
    timestamp  TEXT       '2026-01-31T23:59:59.000000Z': texts of one length, in the order of time
    json       TEXT

Decimals are compared by `order_of`, a text for each number that is in order where the numbers are; in SQL it is the
function ORDER, which connections of ours have.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

from tidelog.schema.column_types import BINARY, BOOLEAN, DATE, DECIMAL, DOUBLE, JSON, TIMESTAMP
from tidelog.schema.declaration import Column, Declaration, Row, Value, json_text, to_json

ORDER = "tidelog_decimal_order"
NAN = "NaN"
WRITTEN_OUT = 100  # digits, beyond which a number is written with an exponent
_ZERO, _ABOVE, _BELOW = "1", "2", "0"
_EXPONENT_SHIFT, _EXPONENT_WIDTH = 10**9, 10
_COMPLEMENT = str.maketrans("0123456789", "9876543210")

Convert = Callable[[Any], Any]


def order_of(number: Decimal | str | None) -> str | None:
    """Longer digits of a number below zero are less: its digits are turned round and ended by what is above all."""
    if number is None:
        return None
    sign, digits, exponent = Decimal(number).normalize(_EXACT).as_tuple()
    if not any(digits):
        return _ZERO
    assert isinstance(exponent, int), "a view has finite decimals"
    told = f"{exponent + len(digits) + _EXPONENT_SHIFT:0{_EXPONENT_WIDTH}d}{''.join(map(str, digits))}"
    return _ABOVE + told if not sign else _BELOW + told.translate(_COMPLEMENT) + "~"


def plain(number: Decimal) -> str:
    """One text for equal numbers."""
    normal = number.normalize(_EXACT)
    if not normal:
        return "0"
    return f"{normal:f}" if abs(normal.adjusted()) < WRITTEN_OUT else str(normal)


def to_bind(kind: str, *, of_key: bool = False) -> Convert | None:
    """What makes a value one that SQLite takes; None where it is one. Never asked about null."""
    if kind == DECIMAL:
        return plain if of_key else str
    return _BIND.get(kind)


def bound(value: Value) -> Any:
    """For a literal of a condition, whose type is told by itself."""
    if isinstance(value, Decimal):
        return order_of(value)
    if isinstance(value, datetime):
        return to_json(TIMESTAMP, value)
    if isinstance(value, date):
        return value.isoformat()
    return _double(value) if isinstance(value, float) else value


def binder(declared: Declaration) -> Callable[[Row], tuple[Any, ...]]:
    """Rows to parameters, all columns in their order."""
    steps = [(name, to_bind(kind, of_key=name in declared.key)) for name, kind in declared.columns]

    def bind(row: Row) -> tuple[Any, ...]:
        return tuple(
            [
                value if convert is None or value is None else convert(value)
                for value, convert in [(row.get(name), convert) for name, convert in steps]
            ]
        )

    return bind


def reader(columns: Sequence[Column]) -> Callable[[Sequence[Any]], Row]:
    """What SQLite gives to rows."""
    steps = [(name, _READ.get(kind)) for name, kind in columns]

    def read(found: Sequence[Any]) -> Row:
        return {
            name: value if convert is None or value is None else convert(value)
            for (name, convert), value in zip(steps, found, strict=True)
        }

    return read


def _double(value: float) -> float | str:
    return NAN if math.isnan(value) else value


_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)  # rounds nothing
_BIND: dict[str, Convert] = {
    BOOLEAN: int,
    DOUBLE: _double,
    DATE: date.isoformat,
    TIMESTAMP: lambda value: to_json(TIMESTAMP, value),
    JSON: json_text,
}
_READ: dict[str, Convert] = {
    BOOLEAN: bool,
    DOUBLE: float,
    DECIMAL: Decimal,
    BINARY: bytes,
    DATE: date.fromisoformat,
    TIMESTAMP: lambda said: datetime.fromisoformat(said[:-1]).replace(tzinfo=UTC),
    JSON: json.loads,
}
