"""Rows of a view as Arrow's tables, for stores whose files others read: Parquet and Delta.

    boolean    bool                 decimal    string: no precision is declared, and 12.50 stays 12.50
    long       int64                json       string: its text
    double     double               date       date32
    string     string               timestamp  timestamp[us, UTC]
    binary     binary

Beside the view's own columns a table has `_tidelog_key`, the key as bytes in its order (`key_order.py`): by it rows are
found, sorted and merged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tidelog.schema.column_types import DECIMAL, JSON, STORED, TIMESTAMP, arrow_of
from tidelog.schema.declaration import Declaration, Row, json_text

if TYPE_CHECKING:
    import pyarrow

KEY = "_tidelog_key"


def schema_of(declared: Declaration) -> pyarrow.Schema:
    import pyarrow

    fields = [(name, arrow_of(STORED[kind].files)) for name, kind in declared.columns]
    return pyarrow.schema([*fields, (KEY, pyarrow.binary())])


def table_of(declared: Declaration, rows: Mapping[bytes, Row]) -> pyarrow.Table:
    """By encoded key."""
    import pyarrow

    schema = schema_of(declared)
    columns: list[list[Any]] = []
    for name, kind in declared.columns:
        said = _SAID.get(kind)
        values = [row.get(name) for row in rows.values()]
        columns.append(values if said is None else [None if one is None else said(one) for one in values])
    columns.append(list(rows))
    arrays = [pyarrow.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def rows_of(declared: Declaration, table: pyarrow.Table) -> Sequence[tuple[bytes, Row]]:
    """A column that the table does not have is null: the file is older than it."""
    there = set(table.column_names)
    columns: list[Sequence[Any]] = []
    for name, kind in declared.columns:
        values = table.column(name).to_pylist() if name in there else [None] * table.num_rows
        read = _READ.get(kind)
        columns.append(values if read is None else [None if one is None else read(one) for one in values])
    names = [name for name, _ in declared.columns]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return list(zip(table.column(KEY).to_pylist(), rows, strict=True))


_SAID: dict[str, Callable[[Any], Any]] = {DECIMAL: str, JSON: json_text}
_READ: dict[str, Callable[[Any], Any]] = {
    DECIMAL: Decimal,
    JSON: json.loads,
    TIMESTAMP: lambda value: value.astimezone(UTC),
}
