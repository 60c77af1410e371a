"""Pieces of SQLite's statements for a view's rows. Pure: names are quoted, values are bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.errors import UsageError
from tidelog.schema.column_types import DECIMAL, quoted
from tidelog.schema.declaration import Declaration, Key
from tidelog.schema.expression.tree import Expression
from tidelog.views.stores import sqlite_values


def upsert(table: str, declared: Declaration) -> str:
    names = [quoted(name) for name, _ in declared.columns]
    sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name, _ in declared.rest)
    key = ", ".join(map(quoted, declared.key))
    then = f"DO UPDATE SET {sets}" if sets else "DO NOTHING"
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) ON CONFLICT ({key}) {then}"


def by_key(declared: Declaration) -> str:
    return " AND ".join(f"{quoted(name)} = ?" for name in declared.key)


def ordered(declared: Declaration) -> Sequence[str]:
    """What the key is ordered by."""
    of_key = declared.columns[: len(declared.key)]
    return [f"{sqlite_values.ORDER}({quoted(name)})" if kind == DECIMAL else quoted(name) for name, kind in of_key]


def bound_key(declared: Declaration, key: Key, *, ordered: bool = False) -> list[Any]:
    """`ordered`: as `_ordered` has it."""
    if len(key) != len(declared.key):
        raise UsageError(f"the key is {', '.join(declared.key)}, and {len(key)} values were given")
    converted = []
    for value, (_, kind) in zip(key, declared.columns, strict=False):
        convert = sqlite_values.to_bind(kind, of_key=True)
        if ordered and kind == DECIMAL:
            convert = sqlite_values.order_of
        converted.append(value if convert is None or value is None else convert(value))
    return converted


def condition(declared: Declaration, where: Expression) -> tuple[str, list[Any]]:
    from tidelog.schema.expression.checking import check
    from tidelog.schema.expression.to_sql import SQLITE, to_sql

    decimals = {name for name, kind in declared.columns if kind == DECIMAL}

    def column(name: str) -> str:
        return f"{sqlite_values.ORDER}({quoted(name)})" if name in decimals else quoted(name)

    dialect = SQLITE._replace(column=column, bound=sqlite_values.bound)
    return to_sql(check(where, declared.columns), dialect)
