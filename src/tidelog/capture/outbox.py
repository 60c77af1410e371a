"""The outbox: a table whose rows are messages, each routed to a topic by one of its columns.

    id               becomes the header `id`, by which a consumer recognises a message that it has seen
    aggregatetype    the topic: PREFIX.aggregatetype, or as `topic` says it
    aggregateid      the key
    type             becomes the header `eventType`
    payload          the value; null is a tombstone

Rules (as Debezium's outbox event router):
- An insert is a message. A delete is ignored: whoever writes may delete the row in the same transaction. An update is
  an error: what was sent cannot be changed.
- Rows of a snapshot are messages too.
- The value is the payload's text as it is, of a column of bytes its bytes.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.capture.change import CREATE, DELETE, READ, TRUNCATE, RowChange, SourceTable
from tidelog.capture.topics import legal
from tidelog.errors import UsageError

Routed = tuple[str, bytes | None, bytes | None, Sequence[tuple[str, bytes]]]


class Outbox(NamedTuple):
    table: str  # "public.outbox"
    topic: str  # "outbox.event.{}"
    id: str = "id"
    route_by: str = "aggregatetype"
    key: str = "aggregateid"
    type: str = "type"
    payload: str = "payload"

    def is_for(self, table: SourceTable) -> bool:
        return table.full_name == self.table

    def route(self, row: RowChange) -> Routed | None:
        """Topic, key, value and headers; None for what is no message."""
        if row.op in (DELETE, TRUNCATE):
            return None
        if row.op not in (CREATE, READ) or row.after is None:
            raise UsageError(
                f"a row of the outbox {self.table} was updated, and what was sent cannot be changed; insert another row"
            )
        route, key, payload = (self._bytes(row, name) for name in (self.route_by, self.key, self.payload))
        if not route:
            raise UsageError(f"a row of the outbox {self.table} has nothing in {self.route_by}, which names its topic")
        headers = [(name, found) for name, found in self._headers(row) if found is not None]
        return legal(self.topic.replace("{}", route.decode())), key, payload, headers

    def _headers(self, row: RowChange) -> list[tuple[str, bytes | None]]:
        return [("id", self._bytes(row, self.id)), ("eventType", self._bytes(row, self.type))]

    def _decoded(self, name: str, found: str) -> bytes:
        try:
            return b64decode(found, validate=True)
        except ValueError:
            raise UsageError(
                f"a row of the outbox {self.table} has a text in {name}, a column of bytes; declare it as one of text"
            ) from None

    def _bytes(self, row: RowChange, name: str) -> bytes | None:
        assert row.after is not None
        for column, text in zip(row.table.columns, row.after, strict=True):
            if column.name != name:
                continue
            found = json.loads(text)
            if found is None:
                return None
            if isinstance(found, str) and column.connect.get("type") == "bytes":
                return self._decoded(name, found)
            return found.encode() if isinstance(found, str) else text.encode()
        raise UsageError(f"the outbox {self.table} has no column {name!r}")
