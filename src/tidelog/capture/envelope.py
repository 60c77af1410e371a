"""What a row becomes: Debezium's envelope in JSON, byte for byte, or the row alone.

    debezium    {"before":B,"after":A,"source":S,"transaction":T,"op":"c","ts_ms":..,"ts_us":..,"ts_ns":..}
                with schemas: {"schema":{...},"payload":{the same}}, of the key too
    row         {"id":1,"v":"one"}; a delete is a tombstone
                with a registry: the same in its format (`converting.py`), which is handed in as `encode`

Rules:
- Values are JSON texts already (`change.py`), so this joins texts. What all rows of a table have alike is made once
  (`EnvelopeShape`): this is the hot path.
- The key is the primary key, in the key's order. A delete is followed by a tombstone. A change of the key is a delete
  with its tombstone, whose header names the new key, and a create whose header names the old one. A row of a table
  without a key has no key. A truncate has no key, and goes to every partition.
- Columns that are left out are nowhere: neither in the row nor in its schema. Those that are masked have one text for
  every value, and no default. Neither can be part of the key.
- Fields, their order, names and versions of schemas are Debezium's. `__debezium.context.*` headers are not written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

from tidelog.capture.change import CREATE, DELETE, TRUNCATE, UPDATE, SourceColumn, SourceTable, Values
from tidelog.control.captures import AVRO, DEBEZIUM, JSON, ROW
from tidelog.errors import UsageError
from tidelog.schema.connect_avro import avro_name

NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
MASK = "****"
ENVELOPE_VERSION = 2

Headers = Sequence[tuple[str, bytes | None]]
Record = tuple[bytes | None, bytes | None, Headers]  # key, value, headers
NO_HEADERS: Headers = ()

TRANSACTION_BLOCK: Mapping[str, Any] = {
    "type": "struct",
    "fields": [
        {"type": "string", "optional": False, "field": "id"},
        {"type": "int64", "optional": False, "field": "total_order"},
        {"type": "int64", "optional": False, "field": "data_collection_order"},
    ],
    "optional": True,
    "name": "event.block",
    "version": 1,
    "field": "transaction",
}
TIMES: Sequence[Mapping[str, Any]] = [
    {"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "ts_us", "ts_ns")
]


class EnvelopeOptions(NamedTuple):
    """How rows are written, of all tables of a capture."""

    prefix: str
    envelope: str = DEBEZIUM
    schemas: bool = False
    tombstones: bool = True
    excluded: frozenset[str] = frozenset()  # "public.kv.secret"
    masked: frozenset[str] = frozenset()
    format: str = JSON

    def written(self, column: str) -> str:
        """The name by which consumers know a column."""
        return avro_name(column) if self.format == AVRO else column


Encode = Callable[[bytes], bytes]
EncodeBy = Callable[[str, Mapping[str, Any]], Encode]  # of "key" or "value", by its Connect schema


class Times(NamedTuple):
    """The end of an envelope: when it was made."""

    text: str

    @classmethod
    def at(cls, now_ns: int) -> Times:
        return cls(f'"ts_ms":{now_ns // 1_000_000},"ts_us":{now_ns // 1_000},"ts_ns":{now_ns}}}')


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class EnvelopeShape:
    """Of one table as it is now: everything about its records that is no row."""

    __slots__ = (
        *("columns", "encode_key", "encode_value", "flat", "has_key", "key", "key_end", "key_names", "key_start"),
        *("name", "options", "row", "table", "value_end", "value_start"),
    )

    def __init__(
        self,
        table: SourceTable,
        options: EnvelopeOptions,
        source_schema: Mapping[str, Any],
        encode: EncodeBy | None = None,
    ) -> None:
        self.table, self.options = table, options
        self.name = f"{options.prefix}.{table.schema}.{table.name}"
        self.columns = shown_columns(table, options)
        self.row = _row_format(table, options)
        self.flat = options.envelope == ROW
        self.has_key = bool(table.key)
        self.key_names = tuple(map(options.written, table.key))
        self.key = _key_format(table, self.key_names)  # gives its text without a schema, as headers have it
        self.encode_key: Encode | None = None
        self.encode_value: Encode | None = None
        if encode is not None:
            self.encode_value = encode("value", self._value_schema(source_schema))
            self.encode_key = encode("key", self._key_schema()) if table.key else None
        self.key_start, self.key_end, self.value_start, self.value_end = b"", b"", "", ""
        if options.schemas:
            self.key_start = f'{{"schema":{compact(self._key_schema())},"payload":'.encode()
            self.value_start = f'{{"schema":{compact(self._value_schema(source_schema))},"payload":'
            self.key_end, self.value_end = b"}", "}"

    def written_key(self, bare: str) -> bytes:
        if self.encode_key is not None:
            return self.encode_key(bare.encode())
        return self.key_start + bare.encode() + self.key_end if self.key_start else bare.encode()

    def _key_schema(self) -> dict[str, Any]:
        by_name = {column.name: column for column in self.columns}
        fields = [_field(by_name[name]) for name in self.key_names]
        return {"type": "struct", "fields": fields, "optional": False, "name": f"{_legal(self.name)}.Key"}

    def _row_schema(self) -> dict[str, Any]:
        fields = [_field(column) for column in self.columns]
        return {"type": "struct", "fields": fields, "optional": True, "name": f"{_legal(self.name)}.Value"}

    def _value_schema(self, source: Mapping[str, Any]) -> dict[str, Any]:
        row = self._row_schema()
        if self.flat:
            return row | {"optional": False}
        both: list[Mapping[str, Any]] = [{**row, "field": "before"}, {**row, "field": "after"}]
        fields = [*both, {**source, "field": "source"}, TRANSACTION_BLOCK]
        fields += [{"type": "string", "optional": False, "field": "op"}, *TIMES]
        named = {"optional": False, "name": f"{_legal(self.name)}.Envelope", "version": ENVELOPE_VERSION}
        return {"type": "struct", "fields": fields, **named}


def records(
    shape: EnvelopeShape,
    op: str,
    before: Values | None,
    after: Values | None,
    source: str,
    transaction: Callable[[], str],
    times: str,
) -> Sequence[Record]:
    """Of one row: one record, or up to three. `transaction` gives the text of the next `transaction` block."""
    if op == TRUNCATE:
        if shape.flat:
            return ()
        return ((None, _value(shape, op, None, None, source, transaction(), times), NO_HEADERS),)
    now = after if after is not None else before
    assert now is not None, "a row has something"
    key = shape.key(now) if shape.has_key else None
    if op == UPDATE and before is not None and key is not None and shape.key(before) != key:
        old = shape.key(before)
        new_header, old_header = [(NEW_KEY, key.encode())], [(OLD_KEY, old.encode())]
        deleted = _deleted(shape, shape.written_key(old), before, source, transaction, times, new_header)
        created = _value(shape, CREATE, None, now, source, transaction(), times)
        return (*deleted, (shape.written_key(key), created, old_header))
    written = shape.written_key(key) if key is not None else None
    if op == DELETE:
        return _deleted(shape, written, before, source, transaction, times, NO_HEADERS)
    return ((written, _value(shape, op, before, after, source, transaction(), times), NO_HEADERS),)


def _deleted(
    shape: EnvelopeShape,
    key: bytes | None,
    before: Values | None,
    source: str,
    transaction: Callable[[], str],
    times: str,
    headers: Headers,
) -> Sequence[Record]:
    tombstone: Sequence[Record] = ((key, None, headers),) if key is not None else ()
    if shape.flat:
        return tombstone
    event = (key, _value(shape, DELETE, before, None, source, transaction(), times), headers)
    return (event, *tombstone) if shape.options.tombstones else (event,)


def _value(
    shape: EnvelopeShape,
    op: str,
    before: Values | None,
    after: Values | None,
    source: str,
    transaction: str,
    times: str,
) -> bytes:
    new = "null" if after is None else shape.row(after)
    if shape.flat:
        made = f"{shape.value_start}{new}{shape.value_end}".encode()
    else:
        old = "null" if before is None else shape.row(before)
        made = (
            f'{shape.value_start}{{"before":{old},"after":{new},"source":{source},'
            f'"transaction":{transaction},"op":"{op}",{times}{shape.value_end}'
        ).encode()
    return made if shape.encode_value is None else shape.encode_value(made)


# Shapes ---------------------------------------------------------------------------------------------------------------


def shown_columns(table: SourceTable, options: EnvelopeOptions) -> tuple[SourceColumn, ...]:
    """As consumers see them. Refuses what would take the key away."""
    shown = []
    for column in table.columns:
        name = f"{table.full_name}.{column.name}"
        if column.name in table.key and name in options.excluded | options.masked:
            raise UsageError(f"{name} is part of the primary key; it cannot be left out or masked")
        if name in options.excluded:
            continue
        if name in options.masked:
            connect = {part: said for part, said in column.connect.items() if part != "default"}
            connect |= {} if connect.get("type") == "string" else {"optional": True}
            column = SourceColumn(column.name, connect, column.declared)
        shown.append(replace(column, name=options.written(column.name)))
    return tuple(shown)


def _row_format(table: SourceTable, options: EnvelopeOptions) -> Callable[[Values], str]:
    parts, taken = [], []
    for at, column in enumerate(table.columns):
        name = f"{table.full_name}.{column.name}"
        if name in options.excluded:
            continue
        field = compact(options.written(column.name)).replace("%", "%%")
        if name in options.masked:
            parts.append(f"{field}:" + (f'"{MASK}"' if column.connect.get("type") == "string" else "null"))
        else:
            parts.append(f"{field}:%s")
            taken.append(at)
    text = "{" + ",".join(parts) + "}"
    if len(taken) == len(table.columns):
        return text.__mod__
    pick = _picker(taken)
    return lambda values: text % pick(values)


def _key_format(table: SourceTable, written: Sequence[str]) -> Callable[[Values], str]:
    names = [column.name for column in table.columns]
    places = [names.index(name) for name in table.key]
    if len(places) == 1:
        head, (only,) = "{" + compact(written[0]) + ":", places
        return lambda values: f"{head}{values[only]}}}"
    text = "{" + ",".join(compact(name).replace("%", "%%") + ":%s" for name in written) + "}"
    pick = _picker(places)
    return lambda values: text % pick(values)


def _picker(places: Sequence[int]) -> Callable[[Values], Values]:
    if not places:
        return lambda _: ()
    if len(places) == 1:
        (only,) = places
        return lambda values: (values[only],)
    return itemgetter(*places)


def _field(column: SourceColumn) -> dict[str, Any]:
    return {**column.connect, "field": column.name}


def _legal(name: str) -> str:
    """As names of schemas are (Debezium's SchemaNameAdjuster: Avro's rules)."""
    made = "".join(c if c.isascii() and (c.isalnum() or c in "._") else "_" for c in name)
    return f"_{made}" if made[:1].isdigit() else made
