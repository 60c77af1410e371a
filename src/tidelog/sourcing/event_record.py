"""An event as a record of `NAME.events`, and back. The one way in and out of a history; `docs/formats/events.md`.

    EventRecord      what a record says beside its event: whose, which version, by which command, who, why
    encode           an event, to (key, value, headers, timestamp)
    parse            a row's headers; a row that no store wrote is a `HistoryFault`
    decode           a row, to the events that it is by now: upcast, in clear where the cipher has the key

Rules:
- Every reader of histories (load, read models, time travel, checks) reads by `decode`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tidelog.errors import HistoryFault
from tidelog.record.columns import Row
from tidelog.sourcing.event_types import CLOSED, EventTypes
from tidelog.sourcing.personal import Cipher

REQUIRED = ("type", "schema", "version", "id", "command", "digest")
TEXT_MAX = 10_000  # bytes of who, correlation and causation; of metadata as JSON

Headers = list[tuple[str, bytes | None]]
NOTHING: Mapping[str, Any] = {}


class CommandContext(NamedTuple):
    """What a command carries on to its events."""

    correlation: str | None = None  # the command's id where it is None
    causation: str | None = None
    who: str | None = None
    metadata: Mapping[str, Any] = NOTHING

    def headers(self) -> Headers:
        found: Headers = []
        for name in ("correlation", "causation", "who"):
            text = getattr(self, name)
            if text is not None:
                found.append((name, text.encode()))
        if self.metadata:
            found.append(("metadata", json.dumps(self.metadata, separators=(",", ":"), ensure_ascii=False).encode()))
        return found


NO_CONTEXT = CommandContext()


class EventRecord(NamedTuple):
    entity: str
    type: str
    schema: int
    version: int
    id: str
    command: str
    digest: str
    closes: bool
    timestamp_ms: int
    offset: int
    context: CommandContext

    @property
    def correlation(self) -> str:
        return self.context.correlation or self.command


def headers_of(
    type: str,
    schema: int,
    version: int,
    command: str,
    number: int,
    digest: str,
    context: Headers,
    *,
    closes: bool = False,
) -> Headers:
    found: Headers = [
        ("type", type.encode()),
        ("schema", b"%d" % schema),
        ("version", b"%d" % version),
        ("id", b"%s.%d" % (command.encode(), number)),
        ("command", command.encode()),
        ("digest", digest.encode()),
    ]
    found += context
    if closes:
        found.append(("closed", b"1"))
    return found


def parse(row: Row) -> EventRecord:
    """Most records have the headers of `headers_of` and no others: for them it is a third of the work."""
    offset, timestamp, key, value, headers = row
    if len(headers) == len(REQUIRED) and key is not None and value is not None:
        pairs: Any = headers
        (n1, type), (n2, schema), (n3, version), (n4, id), (n5, command), (n6, digest) = pairs
        if (n1, n2, n3, n4, n5, n6) == REQUIRED:
            try:
                name = type.decode()
                told = (key.decode(), name, int(schema), int(version), id.decode(), command.decode(), digest.decode())
                return tuple.__new__(EventRecord, (*told, name == CLOSED, timestamp, offset, NO_CONTEXT))
            except (AttributeError, TypeError, ValueError):
                pass  # the long way says what is wrong
    return _parse_any(row)


def _parse_any(row: Row) -> EventRecord:
    try:
        found: dict[str, Any] = {name: (data or b"").decode() for name, data in row.headers}
        missing = [name for name in REQUIRED if name not in found]
        if row.key is None or row.value is None or missing:
            lacks = [*missing, *(["a key"] if row.key is None else []), *(["a value"] if row.value is None else [])]
            raise HistoryFault(
                f"the record at offset {row.offset} is not an event of a store: it lacks {', '.join(lacks)}"
            )
        metadata = json.loads(found["metadata"]) if "metadata" in found else NOTHING
        if not isinstance(metadata, Mapping):
            raise ValueError(f"metadata is {metadata!r}")
        return EventRecord(
            row.key.decode(),
            found["type"],
            int(found["schema"]),
            int(found["version"]),
            found["id"],
            found["command"],
            found["digest"],
            found.get("closed") == "1" or found["type"] == CLOSED,
            row.timestamp,
            row.offset,
            CommandContext(found.get("correlation"), found.get("causation"), found.get("who"), metadata),
        )
    except (ValueError, RecursionError) as error:  # of int, UTF-8 and JSON
        raise HistoryFault(f"the record at offset {row.offset} is not an event of a store: {error}") from error


def decode(row: Row, types: EventTypes, cipher: Cipher | None = None) -> tuple[EventRecord, list[Any]]:
    """None of the events where the record only closes its history."""
    record = parse(row)
    return record, events_of(record, row, types, cipher)


def events_of(record: EventRecord, row: Row, types: EventTypes, cipher: Cipher | None = None) -> list[Any]:
    """Of a row that was parsed."""
    assert row.value is not None, "parse has seen it"
    if record.type == CLOSED:
        return []
    return types.decode(record.type, record.schema, row.value, record.entity, record.version, cipher)
