"""What a store was made as: the event types that it has ever written, and how many partitions its entities are in. Both
are compared when it starts, and written down in `NAME.types`.

Rules:
- Types that do not fit what the log has are refused before anything is decided (`IncompatibleEvents`).
- The number of partitions never changes: with another one, entities would be elsewhere than their histories, and begin
  anew. Partitions that are added to the topics later stay empty.
- Who writes is the owner of `tidelog.store.NAME.types`. Stores that start together do so one after the other: one that
  is fenced meanwhile begins again.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any, NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.owner import Owner
from tidelog.control.reading import read_all
from tidelog.errors import BrokerError, IncompatibleEvents, ProducerFenced, UsageError
from tidelog.sourcing.event_types import EventTypes
from tidelog.sourcing.store_topics import StoreTopics

TRIES = 20

PARTITIONS = b"partitions"

log = logging.getLogger(__name__)

Schemas = dict[tuple[str, int], dict[str, Any]]


class MadeAs(NamedTuple):
    schemas: Schemas  # what was written at some time, by type and version
    partitions: int | None  # None of a store that did not write it down


def declared(cluster: Cluster, named: StoreTopics) -> MadeAs:
    schemas: Schemas = {}
    partitions = None
    for row in read_all(cluster, TopicPartition(named.types, 0)):
        name, _, version = (row.key or b"").decode().rpartition("/")
        if row.value is not None and version.isdigit():
            schemas[name, int(version)] = json.loads(row.value)
        elif row.value is not None and row.key == PARTITIONS:
            partitions = int(json.loads(row.value)["partitions"])
    return MadeAs(schemas, partitions)


def partition_count(cluster: Cluster, named: StoreTopics) -> int:
    """In which entities are. Who may not read what the store wrote down counts those of the topic."""
    there = len(cluster.partitions(named.events))
    try:
        return declared(cluster, named).partitions or there
    except BrokerError:
        return there


def check(types: EventTypes, stored: Schemas, name: str) -> None:
    faults = types.changes(stored)
    if faults:
        raise IncompatibleEvents(f"the event types of store {name} do not fit what it has: {'; '.join(faults)}")


def declare(cluster: Cluster, named: StoreTopics, types: EventTypes, partitions: int) -> int:
    """`partitions` are those of the topics; gives those of the store."""
    stored = declared(cluster, named)
    check(types, stored.schemas, named.name)
    wanted = types.schemas()
    for _ in range(TRIES):
        if stored.partitions and all(stored.schemas.get(key) == schema for key, schema in wanted.items()):
            break
        try:
            stored = _write(cluster, named, types, wanted, partitions)
        except ProducerFenced:
            time.sleep(0.05)
            stored = declared(cluster, named)
    return _same_partitions(named, stored.partitions or partitions, partitions)


def _same_partitions(named: StoreTopics, made: int, there: int) -> int:
    if made > there:
        raise UsageError(
            f"store {named.name} was made with {made} partitions, and its topics have {there}: histories are missing."
            f" Restore {named.events}; to begin with an empty store, delete {named.types} as well"
        )
    if made < there:
        text = "store %s was made with %d partitions, and its topics have %d by now: the others stay empty"
        log.warning(text, named.name, made, there)
    return made


def _write(cluster: Cluster, named: StoreTopics, types: EventTypes, wanted: Schemas, partitions: int) -> MadeAs:
    owner = Owner(cluster, f"{named.writers}types")
    owner.begin()
    stored = declared(cluster, named)
    check(types, stored.schemas, named.name)
    now_ms = int(time.time() * 1000)
    new = {key: schema for key, schema in wanted.items() if stored.schemas.get(key) != schema}
    values = {f"{name}/{version}".encode(): schema for (name, version), schema in new.items()}
    if stored.partitions is None:
        values[PARTITIONS] = {"v": 1, "partitions": partitions}
    with owner.transaction() as outgoing:
        for key, value in values.items():
            text = json.dumps(value, separators=(",", ":")).encode()
            outgoing.send(TopicPartition(named.types, 0), [(key, text, (), now_ms)])
    return MadeAs({**stored.schemas, **new}, stored.partitions or partitions)
