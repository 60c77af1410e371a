"""Values of SQLite as JSON texts, and back; columns as Connect schemas.

    affinity of the declared type    Connect                  JSON
    INTEGER                          int64                    12
    REAL                             double                   1.5, "Infinity"
    TEXT                             string                   "a\\nb"
    BLOB, or none declared           bytes                    base64
    BOOL...                          boolean                  true, false (of 1 and 0)
    DATE..., TIME...                 string                   as it is stored
    NUMERIC, DECIMAL, others         double                   its digits, exact

SQLite checks types only in STRICT tables: elsewhere any column may hold any value. One that does not fit its column is
written as what it is (a text in an INTEGER column is a JSON string), since to leave it out would be worse.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any

from tidelog.capture.change import Values

BOOLEANS = {0: "false", 1: "true"}


def affinity(declared: str) -> str:
    """By SQLite's own five rules; of NUMERIC, what its name says."""
    word = declared.upper()
    if "INT" in word:
        return "int64"
    if any(part in word for part in ("CHAR", "CLOB", "TEXT")):
        return "string"
    if "BLOB" in word or not word:
        return "bytes"
    if any(part in word for part in ("REAL", "FLOA", "DOUB")):
        return "double"
    if "BOOL" in word:
        return "boolean"
    return "string" if "DATE" in word or "TIME" in word else "double"


def connect_schema(declared: str, *, optional: bool) -> dict[str, Any]:
    return {"type": affinity(declared), "optional": optional}


def _real(value: float) -> str:
    if value in (float("inf"), float("-inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    return repr(value)


TEXTS: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda _: "null",
    int: str,
    str: encode_basestring,
    float: _real,
    bytes: lambda value: f'"{b64encode(value).decode()}"',
}


def text(value: Any) -> str:
    return TEXTS[type(value)](value)


def texts(row: Sequence[Any]) -> Values:
    return tuple([TEXTS[type(value)](value) for value in row])


def _boolean(value: Any) -> str:
    return BOOLEANS[value] if type(value) is int and value in BOOLEANS else text(value)


def reader(types: Sequence[str]) -> Callable[[Sequence[Any]], Values]:
    """Of rows whose columns have these Connect types."""
    if "boolean" not in types:
        return texts
    ways = [_boolean if one == "boolean" else text for one in types]
    return lambda row: tuple([way(value) for way, value in zip(ways, row, strict=True)])


def bound(value: str, kind: str) -> Any:
    """The value of a JSON text, to be bound to a statement."""
    found = json.loads(value)
    if isinstance(found, bool):
        return int(found)
    if isinstance(found, str) and kind == "bytes":
        return b64decode(found)
    if isinstance(found, str) and kind == "double" and found in ("Infinity", "-Infinity"):
        return float(found.replace("Infinity", "inf"))
    return found
