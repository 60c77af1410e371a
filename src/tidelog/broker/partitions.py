"""Which partitions are open, and how they come, go and are left.

A partition's log is opened on its first use. After a clean stop that touches no file: the folder's mark says what
is in it. After any other stop it is recovered then, and the log says what that took. A partition whose topic is
deleted loses its folder when the topic's end is on disk; folders that a crash left behind are removed at the next
start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial

from tidelog.broker.logger import Logger
from tidelog.broker.partition import Partition
from tidelog.broker.settings.topic_config import TopicConfig
from tidelog.broker.topics import Topic
from tidelog.errors import StorageError
from tidelog.log.commit import Committer
from tidelog.log.files import Files
from tidelog.log.folder import DataFolder, partition_name
from tidelog.log.log import CleanMark, Log
from tidelog.log.upkeep import remove_folder

FIRST_EPOCH = 0


class Partitions:
    """Loop thread only."""

    def __init__(self, folder: DataFolder, files: Files, committer: Committer, logger: Logger) -> None:
        self._folder = folder
        self._files = files
        self._committer = committer
        self._logger = logger
        self._open: dict[tuple[str, int], Partition] = {}
        self._marks: dict[str, CleanMark] = {}
        self._unknown: set[tuple[bytes, int]] = set()  # there since an unclean stop, and not opened yet

    def begin(self) -> None:
        self._marks = self._folder.take_marks()
        if not self._marks:
            self._unknown = set(self._folder.partitions())

    def find(self, name: str | None, index: int) -> Partition | None:
        """The partition, if it is open."""
        return self._open.get((name, index))  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._open.values()))

    def leader_epoch(self, topic: Topic, index: int) -> int | None:
        """Without opening it: of an open partition, from its mark, or that of a new one. None: it must be opened."""
        partition = self._open.get((topic.name, index))
        if partition is not None:
            return partition.log.leader_epoch if partition.log.offline is None else None
        mark = self._marks.get(partition_name(topic.topic_id, index))
        if mark is not None:
            return mark.leader_epoch
        return None if (topic.topic_id, index) in self._unknown else FIRST_EPOCH

    def open(self, topic: Topic, index: int, config: TopicConfig) -> Partition:
        path = self._folder.partition(topic.topic_id, index)
        mark = self._marks.pop(partition_name(topic.topic_id, index), None)
        log = Log.open(path, self._files, config.log, self._committer, clean=mark)
        partition = Partition(topic.name, topic.topic_id, index, log, config)
        log.on_trouble = lambda line: self._logger.warning("trouble", topic=topic.name, partition=index, what=line)
        if log.recovery is not None:
            for line in log.recovery.lines():
                self._logger.warning("recovered", topic=topic.name, partition=index, what=line)
        self._open[topic.name, index] = partition
        self._unknown.discard((topic.topic_id, index))
        return partition

    def drop(self, topic: Topic, index: int, decided_in: Log) -> None:
        """Its folder goes when the topic's end is on disk: a power cut before that must find the topic whole."""
        partition = self._open.pop((topic.name, index), None)
        mark = self._marks.pop(partition_name(topic.topic_id, index), None)
        path = self._folder.partition(topic.topic_id, index)
        if partition is not None:
            partition.drop()

        def destroy(error: StorageError | None) -> None:
            if error is not None:
                self._restore(topic, index, partition, mark)
            elif partition is not None:
                partition.log.destroy()
            else:
                self._committer.background.submit(partial(self._remove, path))

        decided_in.when_visible(decided_in.end_offset, destroy)

    def _restore(self, topic: Topic, index: int, partition: Partition | None, mark: CleanMark | None) -> None:
        """The topic's end could not be written. Its log may have appends under way: a second one would not know."""
        if partition is not None:
            partition.dropped = False
            self._open[topic.name, index] = partition
        if mark is not None:
            self._marks[partition_name(topic.topic_id, index)] = mark

    def keep_only(self, names: Collection[str]) -> None:
        """Forgets those of other topics, without touching their folders."""
        for partition in self:
            if partition.topic not in names:
                self._open.pop((partition.topic, partition.index)).drop()

    def remove_orphans(self, found: Iterable[tuple[bytes, int]], topic_ids: Collection[bytes]) -> None:
        """Folders of topics that are no more: a crash came between the topic's end and theirs.

        `found` was listed before `topic_ids` is looked at, here on the loop: a topic that came meanwhile is safe.
        """
        for topic_id, index in found:
            if topic_id not in topic_ids:
                path = self._folder.partition(topic_id, index)
                self._logger.info("left-over folder removed", path=path)
                self._committer.background.submit(partial(self._remove, path))

    def _remove(self, path: str) -> None:
        try:
            remove_folder(self._files, path)
        except OSError as error:
            self._logger.error("folder not removed", path=path, error=error)

    def leave(self) -> None:
        """After the committer has stopped: marks how each partition was left, also those that were never opened."""
        marks = dict(self._marks)
        for partition in self:
            mark = partition.log.close()
            if mark is not None:
                marks[partition_name(partition.topic_id, partition.index)] = mark
        self._folder.leave(marks)
