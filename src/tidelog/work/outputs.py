"""What a function returns goes to a topic, once: the results and a *done-record* of the job are one transaction, and
the job is accepted after it.

    __tidelog.done.GROUP.TOPIC      done-records, in the partition that has the job's number
    key                             the job's offset
    value, JSON                     {"v": 1, "topic": ID, "job": "TIMESTAMP-CRC", "at": MS}

Whoever commits for a partition is its owner (`control/owner.py`): he takes the transactional id, which fences the last
one and ends his transaction, and then reads which jobs are done. So of two workers who have both done a job, since the
lock of the first ran out or its acceptance was lost, one commits; the other finds the done-record, and drops what it
has. This rests on no lock and no clock. Processes take the id from each other as they commit: one process with many
workers does not.

Rules:
- A job is recognised by its topic's id, its offset, and a checksum of its record: an offset that is used again, for the
  topic was made anew or lost its end, is another job.
- A job is looked up before the function is called, in what is known of its partition. That is read up to its end for a
  job that was delivered before, and once a session: what a crash of the broker ended comes again as if never delivered.
- Done-records below the start of the queue are of no use any more, and are deleted.
- What cannot be written (a result that is too large) is the error of its own job alone.
"""

from __future__ import annotations

import json
import random
import re
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from tidelog.client.admin import share_groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Record
from tidelog.control.owner import Owner
from tidelog.control.reading import read, span
from tidelog.errors import BrokerError, Disconnected, OutcomeUnknown, ProducerFenced, TidelogError, UsageError
from tidelog.record.columns import Row
from tidelog.record.partitioner import partition_of
from tidelog.work.job import Job

PREFIX = "__tidelog.done."
OWNER_PREFIX = "tidelog.work."
SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1"}
VERSION = 1
JOB_ID = "tidelog-job-id"  # the header of a result: of which job it is
NAME_MAX = 200
TRIES = 12  # to commit, with others who commit for the same partition
WAIT_S = 0.02  # at most, after the first try
TRIM_EVERY = 1_000  # done-records


class Result(NamedTuple):
    """What a function may return, or a list of them, where it returns more than the value. No key: the job's key."""

    value: bytes | str | None
    key: bytes | str | None = None
    headers: Mapping[str, bytes] | None = None


class DoneJob(NamedTuple):
    """A job whose function has returned, and its results."""

    job: Job
    records: list[Record]


def results_of(job: Job, returned: Any, now_ms: int) -> list[Record]:
    """Raises UsageError for what cannot be written."""
    if returned is None:
        return []
    many = returned if isinstance(returned, list | tuple) and not isinstance(returned, Result) else [returned]
    return [_record(job, one, now_ms) for one in many]


def _record(job: Job, one: Any, now_ms: int) -> Record:
    result = one if isinstance(one, Result) else Result(one)
    value, key = (_bytes(part) for part in (result.value, result.key))
    headers = [*(result.headers or {}).items(), (JOB_ID, job.id.encode())]
    return job.key if key is None else key, value, headers, now_ms


def _bytes(given: Any) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    raise UsageError(
        f"a function with an output returned {type(given).__name__}; return bytes, text, tidelog.Result, a list of"
        " these, or nothing"
    )


def done_topic(group: str, topic: str) -> str:
    """Another for each pair. A group's id may have any characters, and any length; a topic's name may not."""
    name = f"{PREFIX}{group}.{topic}"
    if len(name) <= NAME_MAX and re.fullmatch(r"[A-Za-z0-9-]+", group):
        return name
    return f"{PREFIX}{sha256(f'{group}/{topic}'.encode()).hexdigest()[:32]}"


def stamp(job: Job) -> str:
    """Of its record: what is done is this one, and not another with its offset."""
    return f"{job.timestamp_ms}-{zlib.crc32((job.key or b'') + b'/' + (job.value or b'')):08x}"


@dataclass(slots=True)
class DonePartition:
    """The jobs of a partition that are known to be done, and up to where their records were read."""

    at: TopicPartition
    owner: Owner
    position: int = 0
    is_owned: bool = False
    done: dict[int, tuple[str, int]] = field(default_factory=dict)  # by offset: its stamp, and where its record stands
    since_trim: int = 0
    session: int = 0  # of the reader of the jobs, in which it was last read for the sake of a delivery

    def has(self, job: Job) -> bool:
        known = self.done.get(job.offset)
        return known is not None and known[0] == stamp(job)

    def note(self, row: Row, topic_id: str) -> None:
        try:
            told = json.loads(row.value or b"")
            if told["v"] <= VERSION and told["topic"] == topic_id:
                self.done[int(row.key or b"")] = told["job"], row.offset
        except (ValueError, KeyError, TypeError):
            return  # not ours


class Outputs:
    """One process's. For one thread, and its cluster's."""

    def __init__(self, cluster: Cluster, group: str, topic: str, target: str) -> None:
        self._cluster, self._group, self._topic, self._target = cluster, group, topic, target
        self._partitions: dict[int, DonePartition] = {}

    @property
    def _topic_id(self) -> str:
        """As the reader of the jobs, whose cluster this is, has learnt it last: a topic may be made anew."""
        return self._cluster.topic(self._topic).topic_id.hex()

    def are_done(self, jobs: Iterable[Job], session: int) -> set[Job]:
        """Those that are known to be done, others' work included; by the number of the session that acquired them."""
        asked = list(jobs)
        again = {job.partition for job in asked if job.delivery_count > 1}
        for number in {job.partition for job in asked}:
            partition = self._partition(number)
            if number in again or partition.session != session:
                partition.session = session
                self._follow(partition)
        return {job for job in asked if self._partition(job.partition).has(job)}

    def commit(self, ended: Sequence[DoneJob]) -> dict[Job, bool | TidelogError]:
        """By job: True if its results are committed now, False if it was done before, or why it is not done."""
        outcome: dict[Job, bool | TidelogError] = {}
        by_partition: dict[int, list[DoneJob]] = {}
        for one in ended:
            by_partition.setdefault(one.job.partition, []).append(one)
        for number, some in by_partition.items():
            outcome |= self._commit(self._partition(number), some)
        return outcome

    def _commit(self, partition: DonePartition, some: list[DoneJob]) -> dict[Job, bool | TidelogError]:
        error: TidelogError = UsageError("nothing was tried")
        for attempt in range(TRIES):
            try:
                return self._try(partition, some)
            except (ProducerFenced, OutcomeUnknown, Disconnected) as lost:
                error = lost
            except TidelogError as refused:
                partition.is_owned = False
                if len(some) == 1:
                    return {some[0].job: refused}
                outcome: dict[Job, bool | TidelogError] = {}
                for one in some:
                    outcome |= self._commit(partition, [one])
                return outcome
            partition.is_owned = False
            time.sleep(random.uniform(0, WAIT_S * (1 + attempt)))
        return dict.fromkeys((one.job for one in some), error)

    def _try(self, partition: DonePartition, some: list[DoneJob]) -> dict[Job, bool | TidelogError]:
        if not partition.is_owned:
            partition.owner.begin()
            self._follow(partition, whole=True)
            partition.is_owned = True
        new: dict[int, DoneJob] = {}  # a job whose lock was lost may have come to this process twice
        for one in some:
            if not partition.has(one.job):
                new.setdefault(one.job.offset, one)
        if new:
            self._write(partition, list(new.values()))
        written = {one.job for one in new.values()}
        return {one.job: one.job in written for one in some}

    def _write(self, partition: DonePartition, new: list[DoneJob]) -> None:
        count = len(self._cluster.partitions(self._target))
        now_ms = int(time.time() * 1000)
        told = [(one.job, {"v": VERSION, "topic": self._topic_id, "job": stamp(one.job), "at": now_ms}) for one in new]
        done: list[Record] = [
            (str(job.offset).encode(), json.dumps(one, separators=(",", ":")).encode(), (), now_ms) for job, one in told
        ]
        with partition.owner.transaction() as outgoing:
            for one in new:
                for record in one.records:
                    key = record[0]
                    number = one.job.offset % count if key is None else partition_of(key, count)
                    outgoing.send(TopicPartition(self._target, number), [record])
            outgoing.send(partition.at, done)
        partition.position = outgoing.ends[partition.at]  # all before it is our own, since we took the id
        for place, one in enumerate(new, partition.position - len(new)):
            partition.done[one.job.offset] = stamp(one.job), place
        partition.since_trim += len(new)
        if partition.since_trim >= TRIM_EVERY:
            self._trim(partition)

    def _partition(self, number: int) -> DonePartition:
        found = self._partitions.get(number)
        if found is None:
            name = done_topic(self._group, self._topic)
            count = len(self._cluster.partitions(self._topic))
            topics.ensure(self._cluster, name, partitions=count, configs=SETTINGS)
            if len(self._cluster.partitions(name)) <= number:
                topics.add_partitions(self._cluster, name, count)
            owner = Owner(self._cluster, f"{OWNER_PREFIX}{name.removeprefix(PREFIX)}.{number}")
            found = self._partitions[number] = DonePartition(TopicPartition(name, number), owner)
        return found

    def _follow(self, partition: DonePartition, *, whole: bool = False) -> None:
        """Reads what was committed up to now; `whole`: what is being committed is waited for."""
        there = span(self._cluster, partition.at, committed=not whole)
        begin = 0 if there is None else max(partition.position, there.start)
        if there is None or begin >= there.end:
            return
        for _, row in read(self._cluster, {partition.at: begin}, {partition.at: there.end}):
            partition.note(row, self._topic_id)
        partition.position = there.end

    def _trim(self, partition: DonePartition) -> None:
        """Below the start of the queue nothing is delivered again."""
        partition.since_trim = 0
        begun = {one.at: one.start for one in share_groups.offsets(self._cluster, self._group)}
        start = begun.get(TopicPartition(self._topic, partition.at.partition), 0)
        partition.done = {offset: told for offset, told in partition.done.items() if offset >= start}
        before = min((at for _, at in partition.done.values()), default=partition.position)
        try:
            topics.delete_records(self._cluster, {partition.at: before})
        except BrokerError:
            return  # nobody gave us the right to: they stay
