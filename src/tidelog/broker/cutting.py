"""Telling a backup where every partition ends: looked for once a second, answered when all of it is on disk.

    idle      nobody wants a cut
    loading   somebody does, and partitions that were left uncleanly are recovered first, in a worker thread
    syncing   the cut is made; the appends that were under way are on their way to the disk
    writing   the file is written, in a worker thread
    given     until whoever asked has taken the file away, or REST_S has passed: compaction rests. A pass that began
              behind the cut could take out a record because of a newer one that is not in it

The format and the reason are in backup/cut.py.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.errors import StorageError
from tidelog.log.files import read_file, remove_files, replace_file

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.cleaner import Cleaner
    from tidelog.log.clean_mark import CleanMark
    from tidelog.log.log import Log

WANTED, GIVEN = "cut.wanted", "cut"
REST_S = 180.0


class Cutting:
    """The loop's thread."""

    def __init__(self, broker: Broker, cleaner: Cleaner) -> None:
        self._broker = broker
        self._cleaner = cleaner
        self._rest_until_s = 0.0
        self._files = broker.files
        self._folder = broker.config.texts("log.dirs")[0]
        self._busy = False
        self._left = 0
        self._error: StorageError | None = None

    def turn(self) -> None:
        """Once a second. A look for a name that is not there waits for no disk: the kernel remembers folders."""
        if self._busy:
            return
        try:
            wanted = read_file(self._files, f"{self._folder}/{WANTED}")
            if self._cleaner.rests and read_file(self._files, f"{self._folder}/{GIVEN}") is None:
                self._cleaner.rests = False
        except OSError as error:
            self._broker.logger.seldom("a wanted cut cannot be read", error=error)
            return
        if self._now_s() > self._rest_until_s:
            self._cleaner.rests = False
        if wanted is not None:
            self._busy = True
            with suppress(OSError):
                remove_files(self._files, [f"{self._folder}/{WANTED}"])
            self._load(wanted.decode(errors="replace").strip())

    def _now_s(self) -> float:
        return self._broker.now().monotonic_ms / 1000

    def _load(self, word: str) -> None:
        """First what has not been looked at since an unclean stop; a log that loads does not change the broker."""
        if None not in self._broker.partition_marks().values():
            self._make(word, None)
            return
        logs: list[Log] = []
        try:
            for name, index in self._broker.partition_names():
                partition = self._broker.find_partition(name, index)
                if partition is not None and not partition.log.known:
                    logs.append(partition.log)
        except (OSError, StorageError) as error:
            self._make(word, error)
            return

        def load() -> None:
            for log in logs:
                log.load()

        self._broker.scheduler.in_thread(load, lambda _result, error: self._make(word, error))

    def _make(self, word: str, error: BaseException | None) -> None:
        """The cut itself: all ends in one go, and then the wait for those that are not synced."""
        from tidelog.broker.backup.cut import Cut, pack, pack_error

        if error is not None:
            text = str(error)
            self._write(lambda: pack_error(word, text))
            return
        self._cleaner.rests, self._rest_until_s = True, self._now_s() + REST_S
        broker = self._broker
        names = {topic.topic_id.hex(): topic.name for topic in broker.topics.by_name.values()}
        cut = Cut(broker.now().wall_ms, names, self._marks())
        self._left, self._error = 1, None

        def synced(error: StorageError | None) -> None:
            self._left -= 1
            failed = self._error = self._error or error
            if self._left == 0:
                self._write(lambda: pack(word, cut) if failed is None else pack_error(word, str(failed)))

        for partition in broker.open_partitions():
            log = partition.log
            if log.high_watermark < log.end_offset:
                self._left += 1
                log.when_visible(log.end_offset, synced)
        synced(None)

    def _marks(self) -> dict[str, CleanMark]:
        from tidelog.log.clean_mark import NO_POSITION
        from tidelog.log.names import partition_name

        broker = self._broker
        marks = broker.partition_marks()
        there = (
            partition_name(topic.topic_id, index)
            for topic in broker.topics.by_name.values()
            for index in range(topic.partitions)
        )
        found = {name: mark for name in there if (mark := marks.get(name)) is not None}
        return {name: mark for name, mark in found.items() if mark.position != NO_POSITION}

    def _write(self, content: Callable[[], bytes]) -> None:
        """In a worker thread, also the making of the text: it is long where there are many partitions."""
        path = f"{self._folder}/{GIVEN}"
        self._broker.scheduler.in_thread(
            lambda: replace_file(self._files, path, content(), durable=False), self._written
        )

    def _written(self, _result: object, error: BaseException | None) -> None:
        self._busy = False
        if error is not None:
            self._broker.logger.error("a wanted cut was not written", error=error)
