"""Ranges of keys as SQL: `(after, up to]` by order of the primary key. A key is its JSON texts, in the key's order.

Of several columns it is (a > x) or (a = x and b > y): the form that MySQL reads by index, and that leaves out no row.
An ENUM or SET is compared by its number, since that is how the server sorts it.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from tidelog.capture.change import Values
from tidelog.capture.sources.mysql.kinds import MICROS_PER_DAY, MysqlKind, utc_text
from tidelog.capture.sources.mysql.session import quoted
from tidelog.errors import UsageError

Key = Sequence[tuple[str, MysqlKind]]  # name and kind of each column of a primary key
Condition = tuple[str, list[Any]]


def expression(name: str, kind: MysqlKind) -> str:
    """What a column is sorted and compared by."""
    return f"({quoted(name)}+0)" if kind.name in {"enum", "set"} else quoted(name)


def order(key: Key) -> str:
    return ", ".join(expression(name, kind) for name, kind in key)


def selected(name: str, kind: MysqlKind) -> str:
    """A float is asked for as a double, since the server rounds its text to six digits."""
    return f"{quoted(name)}+0e0" if kind.name == "float" else quoted(name)


def between(key: Key, after: Values | None, to: Values | None) -> Condition:
    """The condition of a range, with its values."""
    texts, values = [], []
    for bound, form in ((after, _after), (to, _up_to)):
        if bound is not None:
            text, given = form(key, bound)
            texts.append(f"({text})")
            values += given
    return " AND ".join(texts) or "TRUE", values


def _after(key: Key, bound: Values) -> Condition:
    return _compared(key, bound, ">", ">")


def _up_to(key: Key, bound: Values) -> Condition:
    return _compared(key, bound, "<", "<=")


def _compared(key: Key, bound: Values, sign: str, last: str) -> Condition:
    texts, values = [], []
    for n, (name, kind) in enumerate(key):
        before = [f"{expression(*column)} = %s" for column in key[:n]]
        here = f"{expression(name, kind)} {last if n == len(key) - 1 else sign} %s"
        texts.append(" AND ".join([*before, here]))
        values += [value(of[1], text) for of, text in zip(key[: n + 1], bound, strict=False)]
    return " OR ".join(f"({text})" for text in texts), values


def value(kind: MysqlKind, text: str) -> Any:
    """Of a JSON text: what the server compares that column with."""
    told = json.loads(text)
    name = kind.name
    if name in {"bytes", "binary"}:
        return b64decode(told)
    if name == "decimal":
        return _decimal(int.from_bytes(b64decode(told), "big", signed=True), kind.scale)
    if name == "bit":
        return int(told) if kind.size == 1 else int.from_bytes(b64decode(told), "little")
    if name == "date":
        return utc_text(told * MICROS_PER_DAY)[:10]
    if name == "datetime":
        return utc_text(told if kind.scale > 3 else told * 1000)
    if name == "timestamp":
        return told.rstrip("Z").replace("T", " ")
    if name == "time":
        return _time(told)
    if name == "enum":
        return kind.allowed.index(told) + 1 if told else 0
    if name == "set":
        return sum(1 << kind.allowed.index(word) for word in told.split(",") if word)
    if name in {"json", "geometry", "point"}:
        raise UsageError(f"a key of the type {name} cannot be read by ranges")
    return told


def _decimal(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if unscaled < 0 else text


def _time(micros: int) -> str:
    seconds, fraction = divmod(abs(micros), 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
    return f"-{text}" if micros < 0 else text
