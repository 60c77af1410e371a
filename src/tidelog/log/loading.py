"""How a log comes from its folder: once, in any thread, when it is first needed.

    states        set by
    not looked    the constructor; `mark` says where the partition ends, if it was left by a clean stop
    refused       `find`, when the folder could not be read: for LOAD_AGAIN_S everybody is told so, without another look
    missing       `find`, when the folder has less than it had (`missing`): the same, and the mark is not believed
    loaded        the log itself, which then asks no more

A disk that refuses is left alone for a while: asking it may take long, and everybody who asks would wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from tidelog.errors import StorageError
from tidelog.log.clean_mark import CleanMark
from tidelog.log.commit import Committer, storage_error
from tidelog.log.ends import End
from tidelog.log.files import Files
from tidelog.log.index import BatchStart
from tidelog.log.missing import MissingRecords
from tidelog.log.open_files import OpenFiles
from tidelog.log.recovery import Recovered, recover
from tidelog.log.settings import LogSettings

LOAD_AGAIN_S = 5.0


class Loading:
    """`find` under `lock`: at most one thread looks at the folder."""

    __slots__ = ("_again_at", "_refused", "end", "lock", "mark", "missing")

    def __init__(self) -> None:
        self.mark: CleanMark | None = None
        self.end: End | None = None  # what the partition must have at least, where no mark says it
        self.missing: MissingRecords | None = None
        self.lock = threading.Lock()
        self._refused: StorageError | None = None
        self._again_at = 0.0

    def find(
        self,
        folder: str,
        files: Files,
        committer: Committer,
        settings: LogSettings,
        trouble: Callable[[str], None],
        lost: Callable[[StorageError], None],
    ) -> Recovered:
        """What the folder has; waits for the disk. What cannot be read is told as `trouble` in the loop's thread too:
        of what is wrong with its files, a client that asked for the partition hears no more than that. What is missing
        is told as `lost`, once.
        """
        if self._refused is not None and monotonic() < self._again_at:
            raise self._refused
        try:
            found = self._recover(folder, files, committer.open_files, settings)
        except (OSError, StorageError) as error:
            refused = error if isinstance(error, StorageError) else storage_error(error)
            self._refused, self._again_at = refused, monotonic() + LOAD_AGAIN_S
            if not isinstance(refused, MissingRecords):
                committer.tell(trouble, f"{folder} cannot be loaded: {refused}")
            elif self.missing is None:
                self.missing = refused
                committer.tell(lost, refused)
            raise refused from error
        self.missing = None
        return found

    def _recover(self, folder: str, files: Files, open_files: OpenFiles, settings: LogSettings) -> Recovered:
        mark = self.mark
        boundary = BatchStart(mark.position, mark.end_offset) if mark is not None else None
        end = End.of(mark) if mark is not None else self.end
        return recover(folder, files, open_files, settings, boundary, end)
