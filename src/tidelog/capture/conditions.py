"""Which rows of a table an incremental snapshot gives: Debezium's `additional-conditions` of a signal.

    {"data-collection":"public.orders","filter":"price > 10 and item in ('tea', 'rum')"}

Debezium puts the filter into its SELECT as it stands, so that whoever may write to the signal topic runs what he likes
in the database. Here it is an expression (`schema/expression/parser.py`), which is asked of every row: all rows of the
table are read, and those are told for which it is true. Pure.

Rules:
- A filter that is no expression, or names a column that nobody is to see, is refused.
- Values are those of a view's columns: a date as '2026-01-31', a decimal by its digits. One that does not fit its
  column, as SQLite may have, is null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tidelog.capture.change import SourceTable, Values
from tidelog.errors import UsageError
from tidelog.schema.connect import from_connect
from tidelog.schema.connect_values import kind_of, said
from tidelog.schema.expression.checking import check, value_of
from tidelog.schema.expression.evaluation import predicate
from tidelog.schema.expression.parser import parse

Keeps = Callable[[Values], bool]


def conditions_of(data: Mapping[str, Any], tables: Sequence[str]) -> dict[str, str]:
    """The filter of each table, of what a signal says. ValueError for what cannot be followed."""
    for other, instead in (("additional-condition", "write additional-conditions"), ("surrogate-key", "leave it out")):
        if data.get(other):
            raise ValueError(f"{other} is not taken: tables are read by their primary key; {instead}")
    found: dict[str, str] = {}
    for one in data.get("additional-conditions") or ():
        table, text = (one.get("data-collection"), one.get("filter")) if isinstance(one, dict) else (None, None)
        if not isinstance(table, str) or not isinstance(text, str) or table not in tables or table in found:
            raise ValueError(
                f'{one!r} is not a condition; write {{"data-collection": one of data-collections, "filter": ...}},'
                " one for a table"
            )
        found[table] = text
    return found


def keeps(table: SourceTable, text: str, hidden: Collection[str]) -> Keeps:
    """Whether a row is told. `hidden` are schema.table.column."""
    forms = {
        column.name: (at, from_connect(column.connect))
        for at, column in enumerate(table.columns)
        if f"{table.full_name}.{column.name}" not in hidden
    }
    kinds = {name: kind_of(form) for name, (_, form) in forms.items()}
    try:
        holds = predicate(check(parse(text), kinds.items()))
    except UsageError as error:
        raise UsageError(f"the condition for {table.full_name} is not one: {error}") from error

    def keep(values: Values) -> bool:
        row = {}
        for name, (at, form) in forms.items():
            try:
                row[name] = value_of(kinds[name], said(form, json.loads(values[at])))
            except (ValueError, TypeError, KeyError, OverflowError):
                row[name] = None
        return holds(row) is True

    return keep
