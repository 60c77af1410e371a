"""Batches on their way from a task to the driver: in the task's message while they are small, else in a file where the
task runs beside the driver, else in a topic.

    file     see `stage_files.py`
    topic    __tidelog.staging.<sink>: one encoded batch to a record value, durability memory, kept for a day

Rules:
- A stage counts only if its message reached the driver. What a failed or a speculative task has staged is never looked
  at, and goes with the next cut.
- A message is up to INLINE_BYTES; beyond that all of the task's batches are staged, and the message says where. What is
  in a file when no more fits into it is moved to the topic.
- A stage that is gone, or is not what was staged (the broker lost its memory), fails the micro-batch: Spark redoes it.
- The driver reads stages in one pass a file or partition, so that it holds a few batches at a time. Batches of one task
  keep their order; there is none between tasks.
- `cut` deletes what was read, when the transaction has ended; retention deletes what nobody cuts. By then the rows are
  written: whatever goes wrong in it is only said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer, Fetched
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Delivery, Producer
from tidelog.control.marks import staging_topic_of
from tidelog.errors import BrokerError, DataLoss
from tidelog.record.codec import crc32c
from tidelog.spark import stage_files
from tidelog.spark.routing import Routed
from tidelog.spark.stage_files import Beside, FileStage, StagedBatch, UpTo, folder_of
from tidelog.wire.error_code import ErrorCode

INLINE_BYTES = 1 << 20  # of a task; more through Spark costs more than through the broker
PARTITIONS = 4  # of a staging topic: tasks write at once
FETCHES_IN_VAIN = 4  # half a second each: all of it was acked, so it is there to be read
EACH_ALONE = 1  # as batch_bytes: a record goes as it comes
SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "86400000",
    "max.message.bytes": str(64 << 20),
    "tidelog.durability": "memory",
}
DURABILITY = "tidelog.durability"

OpenCluster = Callable[[], Cluster]


class Stage(NamedTuple):
    """What a task tells the driver."""

    query_id: str
    rows: int
    inline: tuple[Routed, ...] = ()
    staging: TopicPartition | None = None  # or in a file:
    file: Path | None = None
    places: tuple[StagedBatch, ...] = ()
    up_to: UpTo | None = None  # of a task beside the driver, also of one that staged nothing: a killed one may have


def stage(
    cluster: Cluster,
    batches: Iterable[Routed],
    *,
    sink: str,
    query_id: str = "",
    task: int = 0,
    limit: int = INLINE_BYTES,
    near: Beside | None = None,
) -> Stage:
    """`task` is its number among those of the micro-batch; `near` is for one that runs beside the driver."""
    held: list[Routed] = []
    size = rows = 0
    writer: StageWriter | None = None
    try:
        for batch in batches:
            rows += batch.rows
            size += len(batch.data)
            held.append(batch)
            if writer is None and size > limit:
                writer = StageWriter(cluster, sink, task, near)
            if writer is not None:
                for one in held:
                    writer.add(one)
                held.clear()
        # Only now: a cluster that was asked for nothing does not know its id.
        up_to = None if near is None else UpTo(folder_of(near.folder, cluster.cluster_id, sink), near.batch_id)
        made = Stage(query_id, rows, tuple(held), up_to=up_to)
        return made if writer is None else writer.finish(made)
    except BaseException:
        if writer is not None:
            writer.discard()
        raise


class StageWriter:
    """Into a file as long as that goes, else into the topic."""

    def __init__(self, cluster: Cluster, sink: str, task: int, near: Beside | None) -> None:
        self._cluster, self._sink, self._task = cluster, sink, task
        self._topic: TopicStage | None = None
        self._file: FileStage | None = None
        if near is not None:
            with suppress(OSError):
                self._file = FileStage(near, cluster.cluster_id, sink, task)

    def add(self, batch: Routed) -> None:
        if self._file is not None:
            try:
                self._file.add(batch)
                return
            except OSError as error:
                self._move(self._file, error)
        self._in_topic().add(batch)

    def finish(self, made: Stage) -> Stage:
        if self._file is not None:
            self._file.finish()
            return made._replace(file=self._file.path, places=tuple(self._file.places))
        topic = self._in_topic()
        return made._replace(staging=topic.at, places=topic.finish())

    def discard(self) -> None:
        if self._file is not None:
            self._file.discard()

    def _in_topic(self) -> TopicStage:
        self._topic = self._topic or TopicStage(self._cluster, self._sink, self._task)
        return self._topic

    def _move(self, full: FileStage, error: OSError) -> None:
        import logging

        logging.getLogger(__name__).warning("a stage goes on in the topic, not in %s: %s", full.path, error.strerror)
        for batch in _in_file(full.path, full.places):
            self._in_topic().add(batch)
        full.discard()
        self._file = None


class TopicStage:
    def __init__(self, cluster: Cluster, sink: str, task: int) -> None:
        self.at = TopicPartition(staging_topic_of(sink), task % PARTITIONS)
        ensure_staging(cluster, self.at.topic)
        self._producer = Producer(cluster, batch_bytes=EACH_ALONE)
        self._waiting: deque[tuple[Routed, int, Delivery]] = deque()
        self._places: list[StagedBatch] = []

    def add(self, batch: Routed) -> None:
        data = bytes(batch.data)
        delivery = self._producer.send(self.at.topic, data, partition=self.at.partition)
        self._waiting.append((batch._replace(data=bytearray()), crc32c(data), delivery))
        self._take_acked()

    def finish(self) -> tuple[StagedBatch, ...]:
        self._producer.flush()
        self._take_acked()
        assert not self._waiting
        return tuple(self._places)

    def _take_acked(self) -> None:
        """What is acked is let go: a stage may be larger than a worker's memory."""
        while self._waiting and self._waiting[0][2].acked:
            batch, crc, delivery = self._waiting.popleft()
            if delivery.offset < 0:
                raise DataLoss(f"{self.at} does not say where a batch is staged; Spark does the task again")
            self._places.append(StagedBatch(batch.at, batch.rows, delivery.offset, crc))


def ensure_staging(cluster: Cluster, topic: str) -> None:
    try:
        cluster.topic(topic)
        return
    except BrokerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return  # it is there, and will be had
    settings = SETTINGS if cluster.is_tidelog() else {k: v for k, v in SETTINGS.items() if k != DURABILITY}
    topics.ensure(cluster, topic, partitions=PARTITIONS, configs=settings)


def staged(stages: Sequence[Stage], open_cluster: OpenCluster) -> Iterator[Routed]:
    """All batches. The topic is read by a cluster of its own: a fetch that waits would hold up what is written."""
    for each in stages:
        yield from each.inline
        if each.file is not None:
            yield from _in_file(each.file, each.places)
    wanted = by_staging(stages)
    if wanted:
        with closing(open_cluster()) as cluster:
            yield from _read(cluster, wanted)


def targets_of(stages: Sequence[Stage]) -> set[str]:
    """The topics that are written to."""
    inline = {one.at.topic for each in stages for one in each.inline}
    return inline | {place.at.topic for each in stages for place in each.places}


def files_of(stages: Sequence[Stage]) -> list[Path]:
    return [each.file for each in stages if each.file is not None]


def by_staging(stages: Sequence[Stage]) -> dict[TopicPartition, dict[int, StagedBatch]]:
    wanted: dict[TopicPartition, dict[int, StagedBatch]] = {}
    for each in stages:
        if each.staging is not None and each.places:
            wanted.setdefault(each.staging, {}).update({place.offset: place for place in each.places})
    return wanted


def _in_file(path: Path, places: Sequence[StagedBatch]) -> Iterator[Routed]:
    try:
        for place, data in stage_files.read(path, places):
            yield Routed(place.at, place.rows, data)
    except OSError as error:
        raise _gone(path) from error


def _read(cluster: Cluster, wanted: dict[TopicPartition, dict[int, StagedBatch]]) -> Iterator[Routed]:
    consumer = Consumer(cluster)
    consumer.assign({at: min(places) for at, places in wanted.items()})
    in_vain = 0
    while consumer.positions:
        fetched = _fetch(consumer)
        left = {at: offset for at, offset in consumer.positions.items() if offset <= max(wanted[at])}
        consumer.assign(left)
        if left:
            consumer.ask_ahead()
        for one in fetched:
            yield from _found(one, wanted[one.at])
        in_vain = 0 if fetched else in_vain + 1
        if in_vain == FETCHES_IN_VAIN:
            raise _gone(min(left))


def _fetch(consumer: Consumer) -> list[Fetched]:
    try:
        return consumer.fetch()
    except BrokerError as error:
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise _gone(min(consumer.positions)) from error
        raise


def _found(fetched: Fetched, places: dict[int, StagedBatch]) -> Iterator[Routed]:
    there = 0
    for row in fetched.rows():
        place = places.get(row.offset)
        if place is None:
            continue
        if row.value is None or crc32c(row.value) != place.crc:
            raise _gone(fetched.at)
        there += 1
        yield Routed(place.at, place.rows, bytearray(row.value))
    if there != sum(fetched.offset <= offset < fetched.next_offset for offset in places):
        raise _gone(fetched.at)


def _gone(where: TopicPartition | Path) -> DataLoss:
    return DataLoss(
        f"what tasks had staged in {where} is not there any more; nothing was written, start the query again"
    )


def cut(cluster: Cluster, stages: Sequence[Stage]) -> None:
    """A fault is passed over: retention will do it."""
    _clean(lambda: stage_files.remove_up_to({each.up_to for each in stages if each.up_to is not None}))
    if ends := {at: max(places) + 1 for at, places in by_staging(stages).items()}:
        _clean(lambda: topics.delete_records(cluster, ends))


def drop(cluster: Cluster, stages: Sequence[Stage]) -> None:
    """Deletes the topics, where nobody else stages in them; and files."""
    _clean(lambda: stage_files.remove(files_of(stages)))
    for topic in {at.topic for at in by_staging(stages)}:
        _clean(partial(topics.delete, cluster, topic))


def _clean(act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as error:
        import logging

        logging.getLogger(__name__).warning("stages were not deleted, and stay for a day: %r", error)
