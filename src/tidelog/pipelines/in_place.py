"""A generation of a derived topic that was built aside, put into the topic of the one before, behind what it has.

    rows        where rows stand for themselves: all of them, as they are aside
    difference  where rows replace each other by key: an upsert for each key whose row is new or another one, and a
                tombstone for each that is gone

Rules (docs/decisions/derived_topics_have_generations.md, 5 to 9):
- One transaction of the new sink has all of it, and the sink's mark: its batch and what it has read stay, its ends are
  those of the topic from now on. So a mark with ends of the topic says that it is done.
- Offsets are counted: a partition that has grown by more than what was sent has somebody else's records, and the
  transaction is aborted.
- Every record has the header of its generation, also a tombstone.
- Memory is flat: rows go out as they are read, and the difference of a partition is made in a temporary file.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from tidelog.client.admin import topics
from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, READ_COMMITTED, list_offsets
from tidelog.client.producer import Record
from tidelog.control import marks
from tidelog.control.derived import DIFFERENCE, GENERATION_HEADER, ROWS, TopicGeneration
from tidelog.control.marks import Ends
from tidelog.control.owner import Owner
from tidelog.control.reading import read_all
from tidelog.errors import BrokerError, PipelineFailed
from tidelog.wire.error_code import ErrorCode

TIMEOUT_MS = 900_000  # what brokers allow a transaction at most, unless set
SEND_ROWS = 1000
SHOWN_EVERY_S = 0.02


def put(cluster: Cluster, live: TopicGeneration) -> Ends | None:
    """Where the topic ended before it; None where it was done before."""
    owner = _owner(cluster, marks.transactional_id_of(live.sink))
    mark = marks.read_mark(cluster, live.sink, marks.end_of_marks(cluster, live.sink))
    if mark is not None and any(at.topic == live.topic for at in mark.ends):
        return None
    places = cluster.partitions(live.topic)
    begins = {at: found.offset for at, found in list_offsets(cluster, dict.fromkeys(places, LATEST)).items()}
    now_ms = int(time.time() * 1000)
    with owner.transaction() as outgoing:
        sent = {}
        for at in places:
            sent[at] = 0
            for records in _in_pieces(_records(cluster, live, at, now_ms)):
                outgoing.send(at, records)
                sent[at] += len(records)
        outgoing.flush()
        ends = begins | outgoing.ends
        _check_alone(begins, sent, ends)
        if mark is not None:
            ids = {name: id_ for name, id_ in mark.ids.items() if name != live.aside}
            told = replace(mark, ends=ends, time_ms=now_ms, ids=ids)
            outgoing.send(marks.partition_of_marks(live.sink), [(*marks.encode(told), (), now_ms)])
    _wait_until_shown(cluster, ends)
    return begins


def _owner(cluster: Cluster, name: str) -> Owner:
    """With as much time as brokers allow; one that allows less has the time that is usual."""
    try:
        owner = Owner(cluster, name, timeout_ms=TIMEOUT_MS)
        owner.begin()
    except BrokerError as error:
        if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        owner = Owner(cluster, name)
        owner.begin()
    return owner


def _wait_until_shown(cluster: Cluster, ends: dict[TopicPartition, int]) -> None:
    """A commit is answered before it can be read, and who is rebuilt next reads up to where that is."""
    deadline = time.monotonic() + cluster.timeout_s
    while time.monotonic() < deadline:
        now = list_offsets(cluster, dict.fromkeys(ends, LATEST), isolation=READ_COMMITTED)
        if all(now[at].offset >= end for at, end in ends.items()):
            return
        time.sleep(SHOWN_EVERY_S)


def _in_pieces(records: Iterator[Record]) -> Iterator[list[Record]]:
    held: list[Record] = []
    for one in records:
        held.append(one)
        if len(held) == SEND_ROWS:
            yield held
            held = []
    if held:
        yield held


def _check_alone(
    begins: dict[TopicPartition, int], sent: dict[TopicPartition, int], ends: dict[TopicPartition, int]
) -> None:
    for at, begin in begins.items():
        if ends[at] != begin + sent[at]:
            raise PipelineFailed(
                f"{at} ended at {begin}, and ends at {ends[at]} after {sent[at]} records were sent: somebody else"
                " writes there; nothing was put in place. End that program, and start this again: it goes on"
            )


def _records(cluster: Cluster, live: TopicGeneration, at: TopicPartition, now_ms: int) -> Iterator[Record]:
    aside = TopicPartition(live.aside, at.partition)
    if live.in_place == DIFFERENCE:
        headers = ((GENERATION_HEADER, str(live.number).encode()),)
        for key, value in difference(cluster, at, aside):
            yield key, value, headers, now_ms
        return
    for row in read_all(cluster, aside):
        yield row.key, row.value, row.headers, row.timestamp


def difference(cluster: Cluster, before: TopicPartition, after: TopicPartition) -> Iterator[tuple[bytes, bytes | None]]:
    """What makes the last rows by key of one partition those of the other, in the order of keys."""
    with closing(sqlite3.connect("")) as held:  # a file that goes by itself; small ones stay in memory
        held.execute("CREATE TABLE rows (key BLOB PRIMARY KEY, was BLOB, now BLOB) WITHOUT ROWID")
        for column, at in (("was", before), ("now", after)):
            upsert = (
                f"INSERT INTO rows (key, {column}) VALUES (?, ?) ON CONFLICT DO UPDATE SET {column} = excluded.{column}"
            )
            held.executemany(upsert, ((row.key, row.value) for row in read_all(cluster, at) if row.key is not None))
        yield from held.execute("SELECT key, now FROM rows WHERE was IS NOT now ORDER BY key")


def delete_before(cluster: Cluster, live: TopicGeneration, begins: Ends | None) -> None:
    """What the generations before have had, where all rows came again. `begins`: where the new rows begin; None: not
    known any more. Then it is where the topic ended at the switch: a run that was not seen may have written since.
    """
    ends = {at: end for at, end in (begins or live.live or {}).items() if end}
    if live.in_place == ROWS and ends:
        topics.delete_records(cluster, ends)


def delete_aside(cluster: Cluster, live: TopicGeneration) -> None:
    try:
        topics.delete(cluster, live.aside)
    except BrokerError as error:
        if error.code not in UNKNOWN_TOPIC:
            raise
