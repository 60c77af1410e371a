"""A captured table as a view that feeds follow: its topic, its capture's marks, and its envelopes in a view's words.

    /tables/shop.public.customers/changes  -->  the record of the table (`control/captures.py`)  -->  a View of one
    generation, which no catalog has and nobody rebuilds

Rules:
- Whole transactions are told, since a capture's marks stand where they end (`capture/running.py`).
- Values are what a view has of the same column: a date as text, a decimal as its digits. So expressions of feeds mean
  the same here and there.
- What was before is known where the source tells whole rows: not of PostgreSQL, whose `before` may be the key alone.
- A truncate ends all rows of its partition, and has no key.
- Values in a registry's format are read by the schemas of the same cluster (`framed.py`).
- The topic is kept for ever unless somebody said otherwise, so a cursor is good for as long as its records are there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.captures import JSON, ROW, CapturedTable, read_captures, sink_of
from tidelog.control.catalog import Generation, View
from tidelog.errors import UndecodableValue, UsageError
from tidelog.record.columns import Row as Record
from tidelog.schema.connect import ColumnType, from_connect
from tidelog.schema.connect_values import kind_of, said
from tidelog.schema.declaration import Declaration, Row, column_from_json, declare, from_json
from tidelog.views.changes import DELETE, TRUNCATE, UPDATE, Change, NoChange
from tidelog.views.framed import FramedValues

PREFIX = "table:"  # of the name by which a feed knows one; no view's name has a colon
FOR_EVER_MS = 100 * 365 * 24 * 3600 * 1000
KEYS_ALONE = ("postgresql",)  # connectors that may not tell whole rows of what was before


class CapturedForm(NamedTuple):
    """How a captured topic says what a view's columns have."""

    forms: Mapping[str, ColumnType]
    envelope: str
    tells_before: bool
    content: Callable[[bytes], Any] = json.loads  # of a key or a value


def captured_view(cluster: Cluster, topic: str) -> View:
    """`UsageError` where no capture writes such a topic, or its table has no key."""
    known = {one.topic: one for capture in read_captures(cluster).values() for one in capture.tables.values()}
    table = known.get(topic)
    if table is None:
        names = ", ".join(sorted(known)[:10]) or "none"
        raise UsageError(f"no capture writes a table to topic {topic[:200]!r}; there are: {names}")
    if not table.key:
        raise UsageError(f"{topic} has no primary key, and rows without a key cannot be followed; read the topic")
    (described,) = topics.describe(cluster, [topic])
    forms = {str(one["name"]): from_connect(one["connect"]) for one in table.columns}
    declared = declare({name: kind_of(form) for name, form in forms.items()}, table.key, FOR_EVER_MS)
    count, sink = len(described.partitions), sink_of(table.capture)
    made = Generation(1, topic, sink, "", count, declared, {}, captured=_form(cluster, table, forms))
    return View(topic, "", (), (), (made,), 1, newest=1)


def _form(cluster: Cluster, table: CapturedTable, forms: Mapping[str, ColumnType]) -> CapturedForm:
    content = json.loads if table.format == JSON else FramedValues(cluster)
    return CapturedForm(forms, table.envelope, table.connector not in KEYS_ALONE, content)


# Changes --------------------------------------------------------------------------------------------------------------


def changes_of_table(
    declared: Declaration, form: CapturedForm, at: TopicPartition, records: Iterable[Record]
) -> list[Change]:
    """Of one partition's records, in their order. A tombstone is passed over, where a delete stands before it."""
    return [change for record in records if (change := _change(declared, form, at, record)) is not None]


def _change(declared: Declaration, form: CapturedForm, at: TopicPartition, record: Record) -> Change | None:
    try:
        key, value = _payload(form, record.key), _payload(form, record.value)
        if value is None and form.envelope != ROW:
            return None
        framed = form.envelope != ROW
        op = str(value["op"]) if framed else UPDATE if value is not None else DELETE
        if op == TRUNCATE:
            return Change((), None, None, at, record.offset, record.timestamp, op)
        after, before = (value["after"], value.get("before")) if framed else (value, None)
        named = declared.columns[: len(declared.key)]
        keys = tuple(from_json(kind, said(form.forms[name], key[name])) for name, kind in named)
        return Change(
            keys,
            _row(declared, form, after),
            _row(declared, form, before) if form.tells_before else None,
            at,
            record.offset,
            record.timestamp,
            op,
        )
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, UsageError, UndecodableValue) as error:
        raise NoChange(
            f"{at}, offset {record.offset}: not a change of this table: {error!r:.200}; who else writes to its topic?"
        ) from error


def _payload(form: CapturedForm, text: bytes | None) -> Any:
    """What is inside of Connect's schemas, where they are written."""
    found = None if text is None else form.content(text)
    return found["payload"] if isinstance(found, dict) and found.keys() == {"schema", "payload"} else found


def _row(declared: Declaration, form: CapturedForm, content: Any) -> Row | None:
    """A value that the table's form of today has no place for (its type was another one then) is null."""
    if content is None:
        return None
    found: Row = {}
    for name, kind in declared.columns:
        value = content.get(name)
        try:
            (found[name],) = column_from_json(kind, [said(form.forms[name], value)])
        except (ValueError, TypeError, KeyError, ArithmeticError, UsageError):
            found[name] = None
    return found
