r"""A row as PostgreSQL writes one, `(1,"a b",,2)`, to the JSON texts of its columns.

    (          a value, then a comma, then the next one          )
    nothing    null
    quoted     a value in which a quote or a backslash is doubled; quotes with nothing in them are an empty text
    others     the value as it is

Which columns a row has is told by its sum (`functions.py`); those that are generated are passed over, as the log does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from tidelog.capture.change import SourceTable, Values
from tidelog.capture.sources.postgres.catalog import FULL, Catalog, Known
from tidelog.capture.sources.postgres.pgoutput import FAULTS, MalformedChange, Relation, RelationColumn

_VALUE = re.compile(r'"([^"]*(?:""[^"]*)*)"(?=,|$)|([^",]*)(?=,|$)')


class LoggedTable(NamedTuple):
    rel: int
    schema: str
    name: str
    key: tuple[str, ...]  # the last that was known


class LoggedShape(NamedTuple):
    """Columns of a table at some time, and how a row that was logged then is read."""

    known: Known
    table: SourceTable
    read: Callable[[str], Values]


def shape_of(catalog: Catalog, described: str, at: LoggedTable) -> LoggedShape:
    """The catalog adds what is not in the description, where it still has the column."""
    columns = json.loads(described)
    told = tuple(RelationColumn(name, type_, modifier, True) for name, type_, modifier, kept in columns if kept)
    known, _ = catalog.known(Relation(at.rel, at.schema, at.name, FULL, told))
    if not known.table.key and {*at.key} <= {column.name for column in told}:  # it is gone by now
        known = known._replace(table=replace(known.table, key=at.key))
    return LoggedShape(known, known.table, reader_of(known, [kept for *_, kept in columns]))


def reader_of(known: Known, kept: list[bool]) -> Callable[[str], Values]:
    readers = [read for read, _ in known.readers]
    every = all(kept)

    def read(text: str) -> Values:
        fields = fields_of(text)
        if len(fields) != len(kept):
            raise MalformedChange(f"a row has {len(fields)} values, and its table {len(kept)} columns")
        if not every:
            fields = [field for field, is_kept in zip(fields, kept, strict=True) if is_kept]
        try:
            pairs = zip(readers, fields, strict=True)
            return tuple(["null" if field is None else reader(field.encode()) for reader, field in pairs])
        except FAULTS as error:
            raise MalformedChange(f"a row of {known.table.full_name} cannot be read: {error!r}") from error

    return read


def fields_of(text: str) -> list[str | None]:
    inside = text[1:-1]
    if '"' not in inside:
        return [field or None for field in inside.split(",")]
    fields: list[str | None] = []
    at = 0
    while True:
        found = _VALUE.match(inside, at)
        if found is None:
            raise MalformedChange(f"a row is malformed at character {at}")
        quoted, plain = found.groups()
        if quoted is None:
            fields.append(plain or None)
        else:
            if '""' in quoted:
                quoted = quoted.replace('""', '"')
            fields.append(quoted.replace("\\\\", "\\") if "\\" in quoted else quoted)
        at = found.end() + 1
        if at > len(inside):
            return fields
