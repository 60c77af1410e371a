"""What a view is: its columns, its key, and how long its past is kept. Pure.

    columns    a name and one of TYPES each; those of the key come first, and are never null
    key        names of columns; one row a key
    horizon    how long a reader may be away and still go on where it was (`min.compaction.lag.ms` of the view's topic)

A value in Python, and the same in the JSON of envelopes, queries and feeds:

    boolean    bool                        true
    long       int, of 64 bits             12
    double     float                       1.5, "NaN", "Infinity", "-Infinity"
    decimal    Decimal                     "12.50"
    string     str                         "a"
    binary     bytes                       base64
    date       date                        "2026-01-31"
    timestamp  datetime in UTC             "2026-01-31T23:59:59.000000Z"
    json       list, dict, or any of JSON  as it is

Rules:
- A declaration may grow by columns that may be null, at its end, and change in no other way without a new generation.
- Its bytes are canonical: equal declarations are equal text.
- A zero has no sign, and NaN is equal to itself and above all other numbers: so it is in every store and expression.
- Dates and times are of the years 1 to 9999, which Python and every store can tell; pipelines refuse to write others.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from types import NoneType
from typing import Any, NamedTuple

from tidelog.errors import UsageError
from tidelog.schema.column_types import (
    BINARY,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    JSON,
    LONG,
    LONG_MAX,
    LONG_MIN,
    OF_A_KEY,
    STRING,
    TIMESTAMP,
    TYPES,
)

Value = bool | int | float | Decimal | str | bytes | date | datetime | list[Any] | dict[str, Any] | None
Row = dict[str, Value]
Key = tuple[Value, ...]

FEED_HORIZON_MS = 7 * 24 * 3600 * 1000
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")  # it is in names of topics, tables, keys and indexes
COLUMN_LENGTH_MAX = 63  # PostgreSQL's; longer ones would be cut there
DECIMAL_DIGITS_MAX = 400  # before or after the point
OF_YEARS = {DATE: " of the years 1 to 9999", TIMESTAMP: " of the years 1 to 9999"}


class Column(NamedTuple):
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Declaration:
    """Of a view, in one generation. Checked when made."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    horizon_ms: int = FEED_HORIZON_MS

    def __post_init__(self) -> None:
        _check(self)

    @property
    def rest(self) -> tuple[Column, ...]:
        """The columns that are not of the key."""
        return self.columns[len(self.key) :]

    def key_of(self, row: Mapping[str, Value]) -> Key:
        return tuple(row[name] for name in self.key)


def declare(columns: Mapping[str, str], key: tuple[str, ...], horizon_ms: int = FEED_HORIZON_MS) -> Declaration:
    """From names and types in any order: the key's columns come first, in the key's own order."""
    if missing := [name for name in key if name not in columns]:
        raise UsageError(
            f"the key has {', '.join(missing)}, and the columns are {', '.join(columns)}; name one of them"
        )
    ordered = (*key, *(name for name in columns if name not in key))
    return Declaration(tuple(Column(name, columns[name]) for name in ordered), key, horizon_ms)


def check_name(view: str) -> str:
    if not NAME.fullmatch(view):
        raise UsageError(
            f"{view!r} is not a valid view name; use a letter, then at most 99 letters, digits, '_' and '-'"
        )
    return view


def grows_to(old: Declaration, new: Declaration) -> bool:
    """Whether `new` is `old`, or that and more columns at its end."""
    same = old.columns == new.columns[: len(old.columns)]
    return same and (old.key, old.horizon_ms) == (new.key, new.horizon_ms)


def _check(declared: Declaration) -> None:
    if not declared.key:
        raise UsageError("a view without a key; name the columns that identify a row")
    names = [column.name for column in declared.columns]
    if len(set(map(str.lower, names))) != len(names):
        raise UsageError(f"two of the columns {', '.join(names)} have one name (case does not count); rename one")
    for name, kind in declared.columns:
        if not 0 < len(name) <= COLUMN_LENGTH_MAX or not name.isprintable() or name.startswith("_tidelog"):
            raise UsageError(
                f"column {name!r} cannot be one of a view; use 1 to {COLUMN_LENGTH_MAX} printable characters, not"
                " beginning with _tidelog"
            )
        if kind not in TYPES:
            raise UsageError(f"column {name!r} has type {kind!r}; a view has {', '.join(TYPES)}")
    if tuple(names[: len(declared.key)]) != declared.key:
        raise UsageError(f"the key is {', '.join(declared.key)}, and the first columns are {', '.join(names)}")
    for name, kind in declared.columns[: len(declared.key)]:
        if kind not in OF_A_KEY:
            raise UsageError(f"column {name!r} of the key has type {kind}; a key has {', '.join(OF_A_KEY)}")
    if declared.horizon_ms <= 0:
        raise UsageError(f"the feed horizon is {declared.horizon_ms} ms; it is above 0")


# Text -----------------------------------------------------------------------------------------------------------------


def to_fields(declared: Declaration) -> dict[str, Any]:
    return {
        "columns": [[name, kind] for name, kind in declared.columns],
        "key": list(declared.key),
        "horizon_ms": declared.horizon_ms,
    }


def from_fields(fields: Mapping[str, Any]) -> Declaration:
    columns = tuple(Column(str(name), str(kind)) for name, kind in fields["columns"])
    return Declaration(columns, tuple(map(str, fields["key"])), int(fields["horizon_ms"]))


# Values ---------------------------------------------------------------------------------------------------------------


def from_json(kind: str, said: Any) -> Value:
    """A value as JSON has it. One that is not of its type is refused."""
    if said is None:
        return None
    try:
        return _FROM_JSON[kind](said)
    except (ValueError, TypeError, InvalidOperation, OverflowError) as error:
        raise UsageError(f"{str(said)[:80]!r} is not a {kind}{OF_YEARS.get(kind, '')}") from error
    except RecursionError as error:  # and to show it would take as many levels
        raise UsageError(f"a value of type {kind} is nested too deep to be read") from error


def column_from_json(kind: str, said: list[Any]) -> list[Value]:
    """`from_json` of each. Most are what they are in JSON already, and are then looked at together."""
    found = set(map(type, said)) - {NoneType}
    if found <= _AS_IT_IS.get(kind, set()):
        there = [one for one in said if one is not None] if None in said else said
        if not there or _IS_ALL_RIGHT[kind](there):
            return said
    return [from_json(kind, one) for one in said]


def _is_utf8(texts: list[str]) -> bool:
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def to_json(kind: str, value: Value) -> Any:
    return None if value is None else _TO_JSON[kind](value)


def row_to_json(declared: Declaration, row: Mapping[str, Value]) -> dict[str, Any]:
    return {name: to_json(kind, row.get(name)) for name, kind in declared.columns}


def json_text(value: Any) -> str:
    """A value of type json for a store that keeps text: all that stands in it can be written as UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which no UTF-8 has
        return json.dumps(value, separators=(",", ":"))
    return text


def _exactly(*kinds: type) -> Callable[[Any], Any]:
    def check(said: Any) -> Any:
        if type(said) not in kinds:
            raise TypeError(said)
        return said

    return check


def _long(said: Any) -> int:
    if type(said) is not int or not LONG_MIN <= said <= LONG_MAX:
        raise ValueError(said)
    return said


def _double(said: Any) -> float:
    if type(said) is str and said not in ("NaN", "Infinity", "-Infinity"):
        raise ValueError(said)
    if type(said) is bool:
        raise TypeError(said)
    return float(said) + 0.0  # minus 0.0 is 0.0 from here on


def _double_said(value: Any) -> float | str:
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decimal(said: Any) -> Decimal:
    value = Decimal(_exactly(str, int)(said))
    if not value.is_finite() or abs(value.adjusted()) > DECIMAL_DIGITS_MAX:
        raise ValueError(said)
    return value if value else value.copy_abs()


def _json(said: Any) -> Any:
    """Python's reader takes NaN and 1e999, which are not JSON: told as a double's are."""
    if isinstance(said, float):
        return said if math.isfinite(said) else _double_said(said)
    if isinstance(said, list):
        return [_json(one) if isinstance(one, float | list | dict) else one for one in said]
    if isinstance(said, dict):
        return {name: _json(one) if isinstance(one, float | list | dict) else one for name, one in said.items()}
    return said


def _string(said: Any) -> str:
    """Half a surrogate pair, which JSON can say, is in no UTF-8, and so in no store."""
    text: str = _exactly(str)(said)
    if not text.isascii():
        text.encode()
    return text


def _timestamp(said: Any) -> datetime:
    at = datetime.fromisoformat(said)
    return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _timestamp_said(value: Any) -> str:
    return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


_FROM_JSON: dict[str, Callable[[Any], Value]] = {
    BOOLEAN: _exactly(bool),
    LONG: _long,
    DOUBLE: _double,
    DECIMAL: _decimal,
    STRING: _string,
    BINARY: lambda said: b64decode(said, validate=True),
    DATE: date.fromisoformat,
    TIMESTAMP: _timestamp,
    JSON: _json,
}
_AS_IT_IS: dict[str, set[type]] = {BOOLEAN: {bool}, LONG: {int}, DOUBLE: {float}, STRING: {str}}
_IS_ALL_RIGHT: dict[str, Callable[[list[Any]], bool]] = {
    BOOLEAN: lambda there: True,
    LONG: lambda there: min(there) >= LONG_MIN and max(there) <= LONG_MAX,
    DOUBLE: lambda there: 0.0 not in there,  # which is minus 0.0 as well, and not to be told from it
    STRING: _is_utf8,
}
_TO_JSON: dict[str, Callable[[Any], Any]] = {
    BOOLEAN: bool,
    LONG: int,
    DOUBLE: _double_said,
    DECIMAL: str,
    STRING: str,
    BINARY: lambda value: b64encode(value).decode(),
    DATE: lambda value: value.isoformat(),
    TIMESTAMP: _timestamp_said,
    JSON: lambda value: value,
}
