"""A logged row, a JSON array, to the JSON texts of its columns: the other half of `statements.logged`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tidelog.capture.change import SourceColumn, SourceTable, Values
from tidelog.capture.sources.mysql.kinds import (
    Converter,
    MysqlKind,
    bits_text,
    from_text,
    parse,
    timestamp_text,
)
from tidelog.capture.sources.mysql.triggers.changelog import LoggedRows, texts_of
from tidelog.errors import PeerError


def table_of(database: str, name: str, described: str) -> SourceTable:
    told = json.loads(described)
    columns = tuple(SourceColumn(column, connect, declared) for column, declared, connect in told["columns"])
    return SourceTable(database, name, columns, tuple(told["key"]))


def logged_rows(table: SourceTable) -> LoggedRows:
    converters = [converter(parse(column.declared, column.connect["optional"])) for column in table.columns]

    def read(row: str) -> Values:
        values = texts_of(row)
        if len(values) != len(converters):
            raise PeerError(
                f"a row of {table.full_name} has {len(values)} values, and its table {len(converters)} columns"
            )
        pairs = zip(converters, values, strict=True)
        return tuple(["null" if value is None else convert(value) for convert, value in pairs])

    return table, read


def converter(kind: MysqlKind) -> Converter:
    """Of a value as the trigger wrote it."""
    name = kind.name
    if name == "bit":
        return lambda value: bits_text(int(value), kind.size)
    if name == "timestamp":
        return lambda value: _timestamp(value, kind)
    plain: Callable[[Any], str] = from_text(kind)
    if name in {"bytes", "binary", "geometry", "point"}:
        return lambda value: plain(bytes.fromhex(value))
    return plain


def _timestamp(value: str, kind: MysqlKind) -> str:
    seconds, _, fraction = value.partition(".")
    return timestamp_text(int(seconds), int(fraction.ljust(6, "0")[:6]), kind.scale, kind.nullable)
