"""Names and values of a view as PostgreSQL has them, and back. Pure.

text     without character 0: that is 1 1 there, and 1 is 1 2. Order and difference stay
json     as text that PostgreSQL checks
names    quoted; of at most 63 bytes, and none that every table has: others are cut, with a piece of their hash
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from tidelog.errors import UsageError
from tidelog.schema.column_types import JSON, STORED, STRING
from tidelog.schema.declaration import Column, Declaration, Key, Value
from tidelog.schema.expression.checking import check
from tidelog.schema.expression.to_sql import LIKE, POSTGRES, to_sql
from tidelog.schema.expression.tree import Scalar
from tidelog.views.changes import Change
from tidelog.views.stores.store import Ask

NAME_BYTES_MAX = 63
SYSTEM_COLUMNS = {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}  # which every table has
ZERO, ONE = "\x00", "\x01"


def quoted(name: str) -> str:
    """For a statement that has parameters: a percent sign is doubled for psycopg."""
    text = cut(name).replace('"', '""').replace("%", "%%")
    return f'"{text}"'


def cut(name: str) -> str:
    text = name.encode()
    if len(text) <= NAME_BYTES_MAX and name not in SYSTEM_COLUMNS:
        return name
    piece = hashlib.sha256(text).hexdigest()[:8]
    return f"{text[: NAME_BYTES_MAX - 9].decode(errors='ignore')}~{piece}"


def columns_of(declared: Declaration) -> str:
    columns = (f"{quoted(name)} {STORED[kind].postgres}" for name, kind in declared.columns)
    key = ", ".join(quoted(name) for name in declared.key)
    return ", ".join([*columns, f"PRIMARY KEY ({key})"])


def key_columns(declared: Declaration) -> tuple[Column, ...]:
    return declared.columns[: len(declared.key)]


def key_values(declared: Declaration, key: Key) -> list[Any]:
    if len(key) != len(declared.key):
        raise UsageError(f"the key is {', '.join(declared.key)}, and {len(key)} values were given")
    return [to_postgres(kind, value) for (_, kind), value in zip(key_columns(declared), key, strict=True)]


def asked(declared: Declaration, ask: Ask) -> tuple[list[str], list[Any]]:
    """Conditions and their values."""
    conditions, values = ["true"], []
    if ask.after is not None:
        names = ", ".join(quoted(name) for name, _ in key_columns(declared))
        bounds = ", ".join(bound(kind) for _, kind in key_columns(declared))
        conditions.append(f"({names}) > ({bounds})")
        values += key_values(declared, ask.after)
    if ask.where is not None:
        text, parameters = to_sql(check(ask.where, declared.columns), DIALECT)
        conditions.append(f"({text})")
        values += parameters
    return conditions, values


def bound(kind: str) -> str:
    return f"%s::{STORED[kind].copied}"


def rows_of(declared: Declaration, changes: Iterable[Change]) -> Iterator[list[Any]]:
    """For COPY: the columns, and whether the row is gone."""
    nothing = [None] * len(declared.rest)
    steps = [(name, kind if kind in (STRING, JSON) else None) for name, kind in declared.columns]
    for change in changes:
        after = change.after
        if after is None:
            yield [*key_values(declared, change.key), *nothing, True]
        else:
            row = [after.get(name) if kind is None else to_postgres(kind, after.get(name)) for name, kind in steps]
            row.append(False)
            yield row


def to_postgres(kind: str, value: Value) -> Any:
    if value is None:
        return None
    if kind == STRING:
        assert isinstance(value, str)
        return value.replace(ONE, ONE + "\x02").replace(ZERO, ONE + ONE) if _is_low(value) else value
    return json.dumps(value) if kind == JSON else value


def _scalar(value: Scalar) -> Any:
    return to_postgres(STRING, value) if isinstance(value, str) else value


def _is_low(text: str) -> bool:
    return ZERO in text or ONE in text


def from_postgres(kind: str, value: Any) -> Value:
    if kind == STRING and value is not None and ONE in value:
        return str(value).replace(ONE + ONE, ZERO).replace(ONE + "\x02", ONE)
    return value  # type: ignore[no-any-return]


DIALECT = POSTGRES._replace(
    column=quoted, bound=_scalar, pattern=LIKE._replace(escaped=lambda one: _scalar(LIKE.escaped(one)))
)
