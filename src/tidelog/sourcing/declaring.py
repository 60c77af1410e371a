"""The event types that a store has ever written: compared when it starts, and written down in `NAME.types`.

Rules:
- Types that do not fit what the log has are refused before anything is decided (`IncompatibleEvents`).
- Who writes is the owner of `tidelog.store.NAME.types`. Stores that start together do so one after the other: one that
  is fenced meanwhile begins again.
"""

from __future__ import annotations

import json
import time
from typing import Any

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.owner import Owner
from tidelog.control.reading import read_all
from tidelog.errors import IncompatibleEvents, ProducerFenced
from tidelog.sourcing.event_types import EventTypes
from tidelog.sourcing.store_topics import StoreTopics

TRIES = 20

Schemas = dict[tuple[str, int], dict[str, Any]]


def declared(cluster: Cluster, named: StoreTopics) -> Schemas:
    """What was written at some time, by type and version."""
    found: Schemas = {}
    for row in read_all(cluster, TopicPartition(named.types, 0)):
        name, _, version = (row.key or b"").decode().rpartition("/")
        if row.value is not None and version.isdigit():
            found[name, int(version)] = json.loads(row.value)
    return found


def check(types: EventTypes, stored: Schemas, name: str) -> None:
    faults = types.changes(stored)
    if faults:
        raise IncompatibleEvents(f"the event types of store {name} do not fit what it has: {'; '.join(faults)}")


def declare(cluster: Cluster, named: StoreTopics, types: EventTypes) -> None:
    stored = declared(cluster, named)
    check(types, stored, named.name)
    wanted = types.schemas()
    for _ in range(TRIES):
        if all(stored.get(key) == schema for key, schema in wanted.items()):
            return
        try:
            stored = _write(cluster, named, types, wanted)
        except ProducerFenced:
            time.sleep(0.05)
            stored = declared(cluster, named)


def _write(cluster: Cluster, named: StoreTopics, types: EventTypes, wanted: Schemas) -> Schemas:
    owner = Owner(cluster, f"{named.writers}types")
    owner.begin()
    stored = declared(cluster, named)
    check(types, stored, named.name)
    now_ms = int(time.time() * 1000)
    new = {key: schema for key, schema in wanted.items() if stored.get(key) != schema}
    with owner.transaction() as outgoing:
        for (name, version), schema in new.items():
            value = json.dumps(schema, separators=(",", ":")).encode()
            outgoing.send(TopicPartition(named.types, 0), [(f"{name}/{version}".encode(), value, (), now_ms)])
    return {**stored, **new}
