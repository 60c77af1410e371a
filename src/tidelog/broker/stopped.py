"""A data folder whose broker does not run: its logs are opened as a start would, without sockets and without threads.

It is locked against brokers meanwhile, and left as clean as it was found. For whoever repairs it.
"""

from __future__ import annotations

import time
from pathlib import Path

from tidelog.broker import topics as fold
from tidelog.broker.internal import InternalTopic, TopicFold
from tidelog.broker.settings.describing import NO_VALUES
from tidelog.broker.settings.topic_config import topic_config
from tidelog.broker.topics import TOPICS_TOPIC, Topic
from tidelog.errors import DataFolderError
from tidelog.log.accepting import accept
from tidelog.log.clean_mark import CleanMark
from tidelog.log.commit import Committer
from tidelog.log.ends import End, EndsFile
from tidelog.log.files import Files, RealFiles
from tidelog.log.folder import FORMAT, DataFolder
from tidelog.log.identity import Identity
from tidelog.log.log import Log
from tidelog.log.missing import MissingRecords
from tidelog.log.names import partition_name
from tidelog.log.settings import FOREVER, LogSettings

CHECKED_AT_ONCE = 64 << 20
OWN_SETTINGS = LogSettings(segment_bytes=64 << 20, retention_ms=FOREVER)


class StoppedBroker:
    """`with StoppedBroker(data) as stopped`."""

    def __init__(self, data: Path, files: Files | None = None) -> None:
        if not (data / FORMAT).is_file():
            raise DataFolderError(f"{data} is not a broker's data folder; name one with --data")
        self.files: Files = files if files is not None else RealFiles()
        self.folder = DataFolder(str(data), self.files)
        self._committer = Committer(self.files, lambda: None, threads=False)
        self._logs: dict[str, Log] = {}
        self._marks: dict[str, CleanMark | None] = {}
        self._ends = EndsFile(self.folder.path, self.files)

    def __enter__(self) -> StoppedBroker:
        self.folder.open()
        self._marks = self.folder.take_marks()
        self._was_clean = bool(self._marks)
        self._ends.load()
        return self

    def __exit__(self, *_: object) -> None:
        self._committer.settle()
        if self._was_clean:
            # What could not be opened keeps its mark: without one it would seem never to have been written.
            closed = {name: log.close() for name, log in self._logs.items()}
            self.folder.leave({**self._marks, **closed})
        self.folder.close()

    def topics(self) -> InternalTopic:
        """What the log of topics says. DataFolderError when it cannot be read."""
        told = InternalTopic(TOPICS_TOPIC.name, TopicFold(fold.fresh, fold.apply, fold.to_records), lambda _error: None)
        told.recover(self.open(TOPICS_TOPIC, 0), self.folder.path, self.files)
        return told

    def has(self, topic: Topic, index: int) -> bool:
        """Whether it has records, or had some."""
        there = Path(self.folder.partition(topic.topic_id, index)).is_dir()
        return there or self._end(partition_name(topic.topic_id, index)) is not None

    def open(self, topic: Topic, index: int, identity: Identity | None = None, *, checked: bool = True) -> Log:
        """MissingRecords when it had more than it has, if that is `checked`."""
        name = partition_name(topic.topic_id, index)
        if name not in self._logs:
            settings = OWN_SETTINGS if topic.own else topic_config(topic.configs, NO_VALUES).log
            path = self.folder.partition(topic.topic_id, index)
            clean, end = (self._marks.get(name), self._end(name)) if checked else (None, None)
            log = Log.open(path, self.files, settings, self._committer, clean=clean, end=end, identity=identity)
            log.load()
            if not checked:
                return log
            self._logs[name] = log
        return self._logs[name]

    def _end(self, name: str) -> End | None:
        """What a partition must have at least."""
        mark = self._marks.get(name)
        found = End.of(mark) if mark is not None else self._ends.find(name)
        return found if found is not None and found.end_offset > 0 else None

    def accept(self, topic: Topic, index: int, missing: MissingRecords) -> None:
        """It goes on without what is missing."""
        name = partition_name(topic.topic_id, index)
        # As no clean stop left it: what it must have is known from now on by this alone.
        self._ends.note(name, missing.known)
        self._marks[name] = None
        accept(self.files, missing, time.time_ns() // 1_000_000)

    def abandon(self, topic: Topic, index: int) -> None:
        """Its folder is another one now, or has another name: what is known of the old one is forgotten."""
        name = partition_name(topic.topic_id, index)
        if self._logs.pop(name, None) is not None:
            self._committer.settle()
            self._committer = Committer(self.files, lambda: None, threads=False)
        self._marks.pop(name, None)
        self._ends.forget(name)
        self._ends.save()

    def must_recover(self, topic_id: bytes, index: int) -> None:
        """The next start looks at its files before it believes anything of it."""
        self._marks[partition_name(topic_id, index)] = None

    def settle(self) -> None:
        """What was appended is on disk, or the log that it was appended to is offline."""
        self._committer.settle()

    def check(self, log: Log) -> int:
        """Every batch; returns how many bytes they are. What is bad is then among the log's holes."""
        checked_bytes = 0
        finished = False
        while not finished:
            scrubbed = log.scrub(CHECKED_AT_ONCE)
            checked_bytes += scrubbed.checked_bytes
            finished = scrubbed.finished
        self._committer.settle()
        return checked_bytes
