"""The history of one entity, as the log has it: for time travel, audit and whoever is not its owner.

Rules:
- It is read by the way that owners read (`event_record.decode`), so old versions are upcast here as well.
- The first record of a version counts, as it does for owners; one that is not the next of its history is passed over.
- A partition is read from its start: there is no index by entity in a topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidelog.client.cluster import Cluster
from tidelog.control.reading import read_all
from tidelog.errors import HistoryFault
from tidelog.record.columns import Row
from tidelog.sourcing.declaring import partition_count
from tidelog.sourcing.event_record import EventRecord, events_of, parse
from tidelog.sourcing.event_types import EventTypes
from tidelog.sourcing.personal import Cipher
from tidelog.sourcing.store_topics import StoreTopics, place_of


def rows_of(cluster: Cluster, named: StoreTopics, entity: str) -> Iterator[tuple[EventRecord, Row]]:
    """Its records, the first version first."""
    key = entity.encode()
    at = place_of(named.events, key, partition_count(cluster, named))
    version = 0
    for row in read_all(cluster, at):
        if row.key != key:
            continue
        try:
            record = parse(row)
        except HistoryFault:
            continue  # no store wrote it
        if record.version == version + 1:
            version = record.version
            yield record, row


def read_history(
    cluster: Cluster, named: StoreTopics, entity: str, types: EventTypes, cipher: Cipher | None = None
) -> Iterator[tuple[EventRecord, list[Any]]]:
    """Records with the events that they are by now."""
    for record, row in rows_of(cluster, named, entity):
        yield record, events_of(record, row, types, cipher)
