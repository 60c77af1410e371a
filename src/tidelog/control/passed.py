"""Records that an output passes: named by `tidelog pass`, kept in the catalog, left out at the source from then on.

    key      {"v":1,"kind":"pass","name":OUTPUT}
    value    {"app":A,"records":{TOPIC:{"0":[17,29]}},"at_ms":MS}

Rules:
- One record in the catalog has all that an output passes. Who writes it holds the output's transactional id.
- A record is passed by every generation, by `--batch`, and for good: what it had in it is not in the view.
- Versions that do not know this kind pass it over.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.catalog import CATALOG, OWNER_PREFIX, VERSION, ensure_catalog
from tidelog.control.owner import Owner
from tidelog.control.reading import read_all, span
from tidelog.errors import BrokerError, UsageError

PASS = "pass"
RECORDS_MAX = 10_000  # of an output


class RecordPlace(NamedTuple):
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


def place_of(text: str) -> RecordPlace:
    """TOPIC:PARTITION:OFFSET."""
    topic, _, rest = text.strip().partition(":")
    partition, _, offset = rest.partition(":")
    if not (topic and all(one.isascii() and one.isdigit() for one in (partition, offset))):
        raise UsageError(f"{text!r} is not the place of a record; write TOPIC:PARTITION:OFFSET, as orders:0:17")
    return RecordPlace(topic, int(partition), int(offset))


def passed_by(cluster: Cluster, output: str) -> frozenset[RecordPlace]:
    found: frozenset[RecordPlace] = frozenset()
    for row in read_all(cluster, CATALOG):
        if (told := _told(row.key, row.value, output)) is not None:
            found = told
    return found


def pass_record(cluster: Cluster, output: str, app: str, place: RecordPlace) -> bool:
    """Whether it is news. The record has to be there: a misspelt place would wait for its record for ever."""
    _check_there(cluster, place)
    ensure_catalog(cluster)
    owner = Owner(cluster, OWNER_PREFIX + output)
    owner.begin()
    before: frozenset[RecordPlace] = frozenset()
    for row in owner.rows(CATALOG):
        if (told := _told(row.key, row.value, output)) is not None:
            before = told
    if place in before:
        return False
    if len(before) >= RECORDS_MAX:
        raise UsageError(
            f"{output} passes {len(before)} records already, and {RECORDS_MAX} are the most; declare"
            " on_error='dead_letter' for the input"
        )
    now_ms = int(time.time() * 1000)
    value = {"app": app, "records": _fields({*before, place}), "at_ms": now_ms}
    with owner.transaction() as outgoing:
        outgoing.send(CATALOG, [(_key(output), json.dumps(value, separators=(",", ":")).encode(), (), now_ms)])
    return True


def _check_there(cluster: Cluster, place: RecordPlace) -> None:
    at = TopicPartition(place.topic, place.partition)
    try:
        there = at in cluster.partitions(place.topic)
    except BrokerError as error:
        if error.code not in UNKNOWN_TOPIC:
            raise
        there = False
    held = span(cluster, at) if there else None
    if held is None:
        raise UsageError(f"topic {place.topic} does not have a partition {place.partition}; was it misspelt?")
    if not held.start <= place.offset < held.end:
        raise UsageError(
            f"offset {place.offset} is not in {at}: it begins at {held.start}, and its next record will have offset"
            f" {held.end}"
        )


def _key(output: str) -> bytes:
    return json.dumps({"v": VERSION, "kind": PASS, "name": output}, separators=(",", ":")).encode()


def _told(key: bytes | None, value: bytes | None, output: str) -> frozenset[RecordPlace] | None:
    """None for a record that says nothing of this output."""
    try:
        named = json.loads(key or b"")
        if (named["kind"], named["name"]) != (PASS, output):
            return None
        records: Mapping[str, Any] = {} if value is None else json.loads(value)["records"]
        return frozenset(
            RecordPlace(str(topic), int(partition), int(offset))
            for topic, partitions in records.items()
            for partition, offsets in partitions.items()
            for offset in offsets
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _fields(places: Iterable[RecordPlace]) -> dict[str, dict[str, list[int]]]:
    made: dict[str, dict[str, list[int]]] = {}
    for topic, partition, offset in sorted(places):
        made.setdefault(topic, {}).setdefault(str(partition), []).append(offset)
    return made
