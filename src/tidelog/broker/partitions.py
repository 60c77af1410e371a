"""Which partitions are open, and how they come, go and are left.

A partition's log is opened on its first use, which touches no file. What a clean stop has marked is known without
looking. What it has not is recovered when it is loaded, and the log says what that took: in a worker thread where many
partitions are asked about, else by whoever needs it. A partition whose topic is deleted loses its folder when the
topic's end is on disk, and gets one not before the topic's record is; folders without a topic are for `orphans`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from tidelog.broker.keeping_ends import KeepingEnds
from tidelog.broker.partition import Partition
from tidelog.broker.settings.topic_config import TopicConfig
from tidelog.broker.topics import Topic
from tidelog.errors import StorageError
from tidelog.log import identity as identity_file
from tidelog.log.clean_mark import CleanMark
from tidelog.log.commit import Committer
from tidelog.log.files import Files
from tidelog.log.folder import DataFolder
from tidelog.log.identity import Identity
from tidelog.log.log import Log
from tidelog.log.missing import MissingRecords
from tidelog.log.names import partition_name
from tidelog.log.recovery import RecoveryReport
from tidelog.log.upkeep import remove_folder
from tidelog.logger import Logger

FIRST_EPOCH = 0


class Partitions:
    """Loop thread only."""

    def __init__(self, folder: DataFolder, files: Files, committer: Committer, logger: Logger) -> None:
        self._folder = folder
        self._files = files
        self._committer = committer
        self._logger = logger
        self._open: dict[tuple[str, int], Partition] = {}
        self._marks: dict[str, CleanMark | None] = {}  # of those that are not open; None: it must be recovered
        self.ends = KeepingEnds(folder.path, files, committer, logger)
        self.on_unfinished: Callable[[Partition], None] | None = None  # called with one that has open transactions

    def begin(self) -> None:
        self._marks = self._folder.take_marks()
        clean = bool(self._marks)
        if not clean:
            self._marks = dict.fromkeys(partition_name(*one) for one in self._folder.partitions())
        self.ends.begin(self._marks, clean=clean)
        if not clean:  # also those whose folder is not there any more: they must not look new
            self._marks.update(dict.fromkeys(self.ends.names()))

    def forget_ends(self, topic_ids: Collection[bytes]) -> None:
        """Of topics that are no more: a crash came before that was written."""
        for name in self.ends.names():
            if bytes.fromhex(name.partition("-")[0]) not in topic_ids:
                self.ends.forget(name)
                self._marks.pop(name, None)

    @property
    def left_uncleanly(self) -> bool:
        """There are partitions that must be recovered; False again when all of them have been opened."""
        return any(mark is None for mark in self._marks.values())

    def find(self, name: str | None, index: int) -> Partition | None:
        """The partition, if it is open."""
        return self._open.get((name, index))  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._open.values()))

    def is_there(self, topic: Topic, index: int) -> bool:
        """Whether it has a folder from before this start."""
        return partition_name(topic.topic_id, index) in self._marks

    def leader_epoch(self, topic: Topic, index: int) -> int | None:
        """Without looking at the disk: of an open partition, by its mark, or of a new one. None: it must be loaded."""
        partition = self._open.get((topic.name, index))
        if partition is not None:
            return partition.log.leader_epoch if partition.log.known and partition.log.offline is None else None
        name = partition_name(topic.topic_id, index)
        if name not in self._marks:
            return FIRST_EPOCH
        mark = self._marks[name]
        return mark.leader_epoch if mark is not None else None

    def open(self, topic: Topic, index: int, config: TopicConfig, undecided: Log | None = None) -> Partition:
        """Its log may not be `known` yet: then it must be loaded before anybody looks at its offsets.

        `undecided` is the log of topics while it may still lose the topic: a new partition gets no folder before that
        is on disk.
        """
        path = self._folder.partition(topic.topic_id, index)
        name = partition_name(topic.topic_id, index)
        is_new = name not in self._marks
        mark = self._marks.pop(name, None)
        log = Log.open(
            path,
            self._files,
            config.log,
            self._committer,
            clean=mark,
            end=self.ends.find(name),
            wait=is_new,
            identity=identity_of(topic),
        )
        if is_new and undecided is not None:
            log.hold_until_decided(undecided)
        partition = Partition(topic.name, topic.topic_id, index, log, config)
        log.on_trouble = partial(self._tell, "trouble", partition)
        log.on_lost = partial(self._tell_lost, partition)
        log.on_recovered = partial(self._tell_recovery, partition)
        log.on_deleted = partial(self._tell_deletion, partition)
        self._open[topic.name, index] = partition
        return partition

    def _tell(self, event: str, partition: Partition, line: str) -> None:
        if not partition.dropped:  # what goes wrong with a folder that is being removed is of no interest
            self._logger.warning(event, topic=partition.topic, partition=partition.index, what=line)

    def _tell_lost(self, partition: Partition, error: StorageError) -> None:
        if partition.dropped:
            return
        topic, index, folder = partition.topic, partition.index, partition.log.folder
        told: dict[str, object] = {"missing": error}
        if isinstance(error, MissingRecords):
            told = {"expected": error.expected, "found": error.found, "missing": error.what}
            told["next"] = f"put the files back, or restore a backup, or: {repair_command(folder, topic, index)}"
        self._logger.error("records are missing", topic=topic, partition=index, folder=folder, **told)

    def _tell_recovery(self, partition: Partition, report: RecoveryReport) -> None:
        for line in report.lines():
            self._tell("recovered", partition, line)
        if self.on_unfinished is not None and partition.log.open_transactions():
            self.on_unfinished(partition)

    def _tell_deletion(self, partition: Partition, segments: int) -> None:
        topic, index, start = partition.topic, partition.index, partition.log.start_offset
        self._logger.info("segments deleted", topic=topic, partition=index, segments=segments, start_offset=start)

    def drop(self, topic: Topic, index: int, decided_in: Log) -> None:
        """Its folder goes when the topic's end is on disk: a power cut before that must find the topic whole."""
        partition = self._open.pop((topic.name, index), None)
        name = partition_name(topic.topic_id, index)
        marks = {name: self._marks.pop(name)} if name in self._marks else {}
        path = self._folder.partition(topic.topic_id, index)
        if partition is not None:
            partition.drop()

        def destroy(error: StorageError | None) -> None:
            if error is not None:
                self._marks.update(marks)
                if partition is not None:
                    self._restore(partition)
                return
            self.ends.forget(name)
            if partition is not None:
                partition.log.destroy()
            else:
                self._committer.background.submit(partial(self._remove, path))

        decided_in.when_visible(decided_in.end_offset, destroy)

    def _restore(self, partition: Partition) -> None:
        """The topic's end could not be written. Its log may have appends under way: a second one would not know."""
        partition.dropped = False
        self._open[partition.topic, partition.index] = partition

    def keep_only(self, topic_ids: Collection[bytes]) -> None:
        """Forgets those of other topics, without touching their folders. A topic made anew is another one."""
        for partition in self:
            if partition.topic_id not in topic_ids:
                self._open.pop((partition.topic, partition.index)).drop()

    def forget(self, name: str) -> None:
        """A folder that is gone, or has another name now."""
        self._marks.pop(name, None)

    def identify(self, topic: Topic) -> None:
        """Has the folders of a topic that has other settings say so, in the background: those that are open. The others
        do when they are opened.
        """
        identity = identity_of(topic)
        wanted = [self._open[at] for index in range(topic.partitions) if (at := (topic.name, index)) in self._open]
        folders = [partition.log.folder for partition in wanted if partition.log.identify(identity)]
        if folders:
            self._committer.background.submit(partial(self._save_identity, folders, identity))

    def _save_identity(self, folders: list[str], identity: Identity) -> None:
        try:
            identity_file.save_all(self._files, folders, identity)
        except OSError as error:
            self._logger.warning("folders have a topic's old settings", topic=identity.topic, error=error)

    def _remove(self, path: str) -> None:
        try:
            remove_folder(self._files, path)
        except OSError as error:
            self._logger.error("folder not removed", path=path, error=error)

    def marks(self) -> dict[str, CleanMark | None]:
        """Where each one ends now, by the name of its folder; None: it must be loaded to know."""
        marks = dict(self._marks)
        for partition in self:
            name = partition_name(partition.topic_id, partition.index)
            marks[name] = partition.log.mark() if partition.log.known else None
        return marks

    def leave(self) -> None:
        """After the committer has stopped: marks how each partition was left, also those that were never opened."""
        marks = dict(self._marks)
        for partition in self:
            marks[partition_name(partition.topic_id, partition.index)] = partition.log.close()
        self.ends.leave(marks)
        self._folder.leave(marks)


def identity_of(topic: Topic) -> Identity:
    return Identity(topic.name, topic.topic_id, topic.partitions, topic.configs, topic.created_ms)


def repair_command(folder: str, topic: str, index: int) -> str:
    """What lets a partition go on without what is missing."""
    return f"tidelog repair --data {folder.rpartition('/')[0]} {topic} {index} --skip"
