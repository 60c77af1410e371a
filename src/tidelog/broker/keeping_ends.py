"""Keeping the file `ends` (log/ends.py) true: which partitions have moved is written down once a second.

    begin     what the file says, and the marks of a clean stop, which are newer; what is wrong with the file is told
    turn      the loop, once a second: if anything has moved since, a worker thread writes one line and syncs it
    forget    a topic is deleted
    leave     a clean stop: the whole table, before the folder is marked clean

A turn also looks whether the files that were written to still have their names: somebody may have put another folder
in the place of one that is in use. That is seldom, and costs more than to look whether there is a name at all, which
every commit does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidelog.errors import StorageError
from tidelog.log.clean_mark import CleanMark
from tidelog.log.commit import Committer
from tidelog.log.ends import ENDS_NAME, End, EndsFile
from tidelog.log.files import Files
from tidelog.log.tail import Tail
from tidelog.logger import Logger

InThread = Callable[[Callable[[], object], Callable[[object, BaseException | None], None]], None]


class KeepingEnds:
    """The loop's thread, but for `_write`."""

    def __init__(self, folder: str, files: Files, committer: Committer, logger: Logger) -> None:
        self._folder = folder
        self._committer = committer
        self._logger = logger
        self._file = EndsFile(folder, files)
        self._busy = False

    def begin(self, marks: Mapping[str, CleanMark | None], *, clean: bool) -> None:
        """After a clean stop the marks name every partition: what the file has beside them is deleted."""
        fault = self._file.load()
        if fault is not None and marks:
            self._logger.warning(
                "ends of partitions are not known",
                file=f"{self._folder}/{ENDS_NAME}",
                why=f"{fault}; an older Tidelog does not have it",
                next="if files of a partition were removed, this start does not notice; the file is created again",
            )
        for name, mark in marks.items():
            if mark is not None:
                self._file.note(name, End.of(mark))
        if clean:
            for name in [name for name in self._file.names() if name not in marks]:
                self._file.forget(name)

    def find(self, name: str) -> End | None:
        """What the partition with this folder must have at least."""
        return self._file.find(name)

    def names(self) -> list[str]:
        return self._file.names()

    def forget(self, name: str) -> None:
        self._file.forget(name)

    def turn(self, in_thread: InThread) -> None:
        if not self._busy and (self._committer.moved or self._file.is_due):
            self._busy = True
            in_thread(self._write, self._written)

    def _write(self) -> None:
        moved = self._committer.moved
        for tail in _taken(moved):
            if tail.is_replaced():
                self._committer.replaced(tail)
            else:
                self._note(tail)
        self._file.save()

    def _note(self, tail: Tail) -> None:
        synced = tail.synced
        if synced is not None:
            start_offset, leader_epoch = tail.owner.standing()
            self._file.note(tail.name, End(start_offset, synced.offset, leader_epoch))

    def _written(self, _result: object, error: BaseException | None) -> None:
        self._busy = False
        if isinstance(error, OSError | StorageError):
            self._logger.seldom("ends of partitions are not written", file=f"{self._folder}/{ENDS_NAME}", error=error)
        elif error is not None:
            raise error

    def leave(self, marks: Mapping[str, CleanMark | None]) -> None:
        """Not synced here: the mark of a clean stop stands behind a sync of everything."""
        for tail in _taken(self._committer.moved):
            self._note(tail)
        for name, mark in marks.items():
            if mark is not None:
                self._file.note(name, End.of(mark))
        self._file.save(whole=True, durable=False)


def _taken(moved: set[Tail]) -> Iterable[Tail]:
    """Those that are there now: others add to it meanwhile."""
    for _ in range(len(moved)):
        try:
            yield moved.pop()
        except KeyError:
            return
