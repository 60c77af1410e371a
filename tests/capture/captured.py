"""What tests of captures do again and again: read what a consumer sees, and fold it into the table that it tells."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from tidelog.capture.change import CREATE, DELETE, READ, TRUNCATE, UPDATE, Event, RowChange, SourceTable
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.reading import read, span
from tidelog.record.columns import Row as Record

State = dict[tuple[Any, ...], tuple[Any, ...]]  # rows by key


def records(bootstrap: str, topic: str, *, partitions: int = 1) -> list[Record]:
    """All that are committed, by partition."""
    with Cluster(bootstrap) as cluster:
        found: list[Record] = []
        for number in range(partitions):
            at = TopicPartition(topic, number)
            there = span(cluster, at)
            assert there is not None, f"there is no topic {topic}"
            found += [row for _, row in read(cluster, {at: there.start}, {at: there.end})]
        return found


def envelopes(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    return [json.loads(one.value) for one in records(bootstrap, topic) if one.value is not None]


def folded(told: Iterable[dict[str, Any]], key: Sequence[str]) -> State:
    """The table that envelopes tell of."""
    state: State = {}
    for one in told:
        if one["op"] == TRUNCATE:
            state.clear()
        elif one["op"] == DELETE:
            state.pop(tuple(one["before"][name] for name in key), None)
        else:
            state[tuple(one["after"][name] for name in key)] = tuple(one["after"].values())
    return state


def rows_of(connection: sqlite3.Connection, table: str, columns: Sequence[str], key: Sequence[str]) -> State:
    found = connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
    return {tuple(row[list(columns).index(name)] for name in key): tuple(row) for row in found}


def applied(state: dict[str, dict[Any, Any]], events: Iterable[Event]) -> None:
    """Events of a source, to rows by key and table. A delete or an update must be of what is there."""
    for event in events:
        if not isinstance(event, RowChange):
            continue
        rows, key = state.setdefault(event.table.name, {}), keys_of(event.table)
        if event.op == TRUNCATE:
            rows.clear()
        if event.before is not None:
            gone = rows.pop(key(event.before), None)
            assert event.op == CREATE or gone == event.before[: len(gone or event.before)], (event, gone)
        if event.op in (CREATE, UPDATE, READ):
            assert event.after is not None
            if event.op == CREATE:
                assert key(event.after) not in rows, event
            rows[key(event.after)] = event.after


def keys_of(table: SourceTable) -> Any:
    names = [column.name for column in table.columns]
    return lambda values: tuple(values[names.index(name)] for name in table.key)
