"""Erasing a data subject from stores: its key is destroyed, and copies in clear that a store has made are cleared up.

Steps; each can be done again, and a run that was cut short is done again from its beginning:

    destroy    the key, in the store of keys: from here on nothing can be decrypted any more. And that of the stores'
               digests, so that nobody finds a value by trying (`digests.py`)
    wait       until every process has forgotten the key
    find       the events that have a text under this key: their entities are concerned
    forget     snapshots of these entities, in the name of their partitions' owners (`control/owner.py`): whoever owned
               one is fenced, and loads anew. A null for each snapshot, and a checkpoint at the beginning, in one
               transaction: so the states are folded from the events again, by everybody
    purge      the records of these entities that may be in clear are taken out of the broker's files: old snapshots,
               and the commands and replies that went by topic (`client/admin/excisions.py`). Apache Kafka cannot, so
               there the outcome says what is left. Read models are built anew (`purging.py`). Then whatever is given
               as `purges`
    prove      a record in `NAME.erasures`: which key, when, why, how much; and nobody's name

Rules:
- Events stay: their versions count, and a command's id is still known. Only their personal fields read as ERASED.
- A command that is not answered yet is not purged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from tidelog.client.admin import excisions, groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer, Record
from tidelog.control.owner import Owner
from tidelog.control.reading import read, span
from tidelog.record.columns import Row
from tidelog.sourcing.command_record import TOGETHER
from tidelog.sourcing.erasure.cipher import CACHE_S
from tidelog.sourcing.erasure.digest_keys import destroy_newest
from tidelog.sourcing.erasure.keys import Destroyed, KeyStore
from tidelog.sourcing.erasure.purging import REBUILT_S, PurgedModels, purge_read_models
from tidelog.sourcing.loading import PREFIX, checkpoint_record, snapshot_name
from tidelog.sourcing.store_topics import StoreTopics
from tidelog.views.stores.allowing import Allowed, allowed_stores

SETTLE_S = CACHE_S + 5.0
ERASURES = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
OFFSETS_AT_ONCE = 50_000

Purge = Callable[[Collection[str]], str]  # takes entities, says what it did


class ErasureOutcome(NamedTuple):
    """Of one store."""

    store: str
    key: str
    events: int
    entities: int
    purged: Mapping[str, int]  # records, by topic
    left: Sequence[str]  # what the operator must still do
    rebuilt: Sequence[str] = ()  # read models


def erase(
    cluster: Cluster,
    stores: Sequence[str],
    subject: str,
    keys: KeyStore,
    *,
    reason: str,
    settle_s: float = SETTLE_S,
    purges: Sequence[Purge] = (),
    rebuilt_s: float = REBUILT_S,
    allowed: Allowed = allowed_stores,
    sleep: Callable[[float], None] = time.sleep,
) -> list[ErasureOutcome] | None:
    """None where the subject never had a key: then nothing of it was encrypted here. `rebuilt_s`: how long to wait for
    the programs that build read models anew.
    """
    destroyed = keys.destroy(subject, reason)
    if destroyed is None:
        return None
    for name in stores:
        destroy_newest(keys, name, reason)
    sleep(settle_s)
    outcomes = []
    for name in stores:
        models = partial(purge_read_models, cluster, StoreTopics(name).events, within_s=rebuilt_s, allowed=allowed)
        outcomes.append(_erase_from(cluster, StoreTopics(name), destroyed, keys.left_to_do(), models, purges))
    return outcomes


def _erase_from(
    cluster: Cluster,
    named: StoreTopics,
    destroyed: Destroyed,
    left: list[str],
    models: Callable[[], PurgedModels],
    purges: Sequence[Purge],
) -> ErasureOutcome:
    mark = f'"{_prefix(destroyed.id)}'.encode()
    concerned: dict[str, set[int]] = {}
    count = 0
    for at, row in _rows(cluster, named.events):
        if row.value is not None and mark in row.value:
            count += 1
            concerned.setdefault((row.key or b"").decode(errors="replace"), set()).add(at.partition)
    purged, more = _purge(cluster, named, concerned, destroyed)
    rebuilt = models() if concerned else PurgedModels([], [])
    left = [*left, *more, *rebuilt.left, *(purge(concerned) for purge in purges)]
    outcome = ErasureOutcome(named.name, destroyed.id, count, len(concerned), purged, left, rebuilt.done)
    _prove(cluster, named, outcome, destroyed)
    return outcome


def _prefix(key_id: str) -> str:
    return f"1.{key_id}."


def _rows(cluster: Cluster, topic: str) -> Iterator[tuple[TopicPartition, Row]]:
    """Committed ones, of all partitions."""
    spans = {at: there for at in cluster.partitions(topic) if (there := span(cluster, at, committed=True)) is not None}
    begins = {at: there.start for at, there in spans.items()}
    return read(cluster, begins, {at: there.end for at, there in spans.items()})


# Purging --------------------------------------------------------------------------------------------------------------


def _purge(
    cluster: Cluster, named: StoreTopics, concerned: Mapping[str, Collection[int]], destroyed: Destroyed
) -> tuple[dict[str, int], list[str]]:
    if not concerned:
        return {}, []
    by_partition: dict[int, list[str]] = {}
    for entity, partitions in concerned.items():
        for partition in partitions:
            by_partition.setdefault(partition, []).append(entity)
    for partition, entities in by_partition.items():
        _forget_snapshots(cluster, named, partition, entities)
    answered = {at: one.offset for at, one in groups.committed(cluster, named.group).items()}
    wanted = {
        named.snapshots: _places(
            cluster, named.snapshots, lambda _at, row: row.value is not None and snapshot_name(row) in concerned
        ),
        named.commands: _places(
            cluster, named.commands, lambda at, row: row.offset < answered.get(at, 0) and _is_of(row, concerned)
        ),
        named.replies: _places(cluster, named.replies, lambda _at, row: _is_of(row, concerned)),
    }
    if not cluster.is_tidelog():
        return {}, _left_on_kafka(wanted)
    reason = f"erasure of key {destroyed.id}"
    for topic, places in wanted.items():
        for index, offsets in places.items():
            for start in range(0, len(offsets), OFFSETS_AT_ONCE):
                some = offsets[start : start + OFFSETS_AT_ONCE]
                excisions.excise(cluster, topic, {index: _runs(some)}, reason)
    return {topic: sum(map(len, places.values())) for topic, places in wanted.items()}, []


def _forget_snapshots(cluster: Cluster, named: StoreTopics, partition: int, entities: Sequence[str]) -> None:
    owner = Owner(cluster, named.transactional_id(partition))
    owner.begin()
    there = span(cluster, TopicPartition(named.events, partition))
    assert there is not None, "an event was read from it"
    now_ms = time.time_ns() // 1_000_000
    nulls: list[Record] = [(f"{PREFIX}{entity}".encode(), None, (), now_ms) for entity in entities]
    with owner.transaction() as outgoing:
        outgoing.send(TopicPartition(named.snapshots, partition), [*nulls, checkpoint_record(there.start, now_ms)])


def _places(cluster: Cluster, topic: str, is_wanted: Callable[[TopicPartition, Row], bool]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for at, row in _rows(cluster, topic):
        if is_wanted(at, row):
            found.setdefault(at.partition, []).append(row.offset)
    return found


def _is_of(row: Row, entities: Mapping[str, object]) -> bool:
    """Also of several commands that count together: their record has the key of the first alone."""
    if (row.key or b"").decode(errors="replace") in entities:
        return True
    kinds = {data for name, data in row.headers if name == "type"}
    if TOGETHER.encode() not in kinds or row.value is None:
        return False
    try:
        return any(one["entity"] in entities for one in json.loads(row.value))
    except (KeyError, TypeError, ValueError, RecursionError):
        return False  # anybody may write there, and no owner took it for commands


def _runs(offsets: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset - 1:
            runs[-1] = runs[-1][0], offset
        else:
            runs.append((offset, offset))
    return runs


def _left_on_kafka(wanted: Mapping[str, Mapping[int, Sequence[int]]]) -> list[str]:
    counts = {topic: sum(map(len, places.values())) for topic, places in wanted.items()}
    told = "Apache Kafka cannot take single records out"
    return [
        f"{topic}: {count} records may have fields in clear, and {told};"
        " delete the topic's records up to its end (tidelog topics truncate), or wait for its retention"
        for topic, count in counts.items()
        if count
    ]


def _prove(cluster: Cluster, named: StoreTopics, outcome: ErasureOutcome, destroyed: Destroyed) -> None:
    topic = f"{named.name}.erasures"
    topics.ensure(cluster, topic, partitions=1, configs=ERASURES)
    told = {
        "v": 1,
        "key": destroyed.id,
        "destroyed_ms": destroyed.at_ms,
        "reason": destroyed.reason,
        "events": outcome.events,
        "entities": outcome.entities,
        "purged": dict(outcome.purged),
        "rebuilt": list(outcome.rebuilt),
    }
    with Producer(cluster) as producer:
        producer.send(topic, json.dumps(told, separators=(",", ":")).encode(), key=destroyed.id.encode())
