"""A partition for tests: a log on a disk with a committer whose rounds the test runs by hand, and batches to put in."""

from __future__ import annotations

from pathlib import Path

from tidelog.errors import StorageError
from tidelog.log.appending import Appended
from tidelog.log.clean_mark import CleanMark
from tidelog.log.commit import Committer
from tidelog.log.files import Files, RealFiles
from tidelog.log.log import Log
from tidelog.log.settings import LogSettings
from tidelog.record import codec
from tidelog.record.columns import Columns, decode, encode

NOW = 1_700_000_000_000


def batch(
    *values: bytes,
    timestamp: int = NOW,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytearray:
    producer_id, epoch, sequence = producer
    rows = [(None, value, (), timestamp + index) for index, value in enumerate(values)]
    stamps = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return encode(rows, **stamps, transactional=transactional)


class UnsyncedFiles(RealFiles):
    """The real disk without its syncs: for tests that do not cut the power, and need not wait for one."""

    __slots__ = ()

    def sync(self, fd: int) -> None:
        pass

    def sync_all(self, path: str) -> None:
        pass

    def sync_folder(self, path: str) -> None:
        pass


class Partition:
    """`visible` collects what was told of each append, by its offset: None is an ack."""

    def __init__(
        self,
        folder: Path,
        files: Files | None = None,
        settings: LogSettings | None = None,
        clean: CleanMark | None = None,
        open_files_limit: int = 100,
    ) -> None:
        self.folder = folder
        self.files: Files = files or UnsyncedFiles()
        self.committer = Committer(self.files, lambda: None, threads=False, open_files_limit=open_files_limit)
        self.settings = settings or LogSettings()
        self.visible: list[tuple[int, StorageError | None]] = []
        self.trouble: list[str] = []
        self.log = Log.open(str(folder), self.files, self.settings, self.committer, clean=clean)
        self.log.on_trouble = self.trouble.append

    def append(self, data: bytearray, now_ms: int = NOW) -> Appended:
        view = memoryview(data)
        done = self.log.append(view, codec.check(view), now_ms)
        self.log.when_visible(done.last_offset + 1, lambda error: self.visible.append((done.base_offset, error)))
        return done

    def mark(self, producer_id: int, epoch: int = 0, *, commit: bool) -> Appended:
        return self.log.append_marker(producer_id, epoch, commit, 0, NOW)

    def commit(self) -> None:
        self.committer.settle()

    def reopen(self, *, settings: LogSettings | None = None, clean: bool = False) -> Partition:
        """The same folder in another life; not clean is as after kill -9."""
        mark = self.log.close() if clean else None
        assert not clean or mark is not None
        return Partition(self.folder, self.files, settings or self.settings, mark)

    def values(self) -> list[bytes | None]:
        """Everything that can be read, as a consumer reads it: checked, from the first offset on."""
        found: list[bytes | None] = []
        offset = self.log.start_offset
        while (piece := self.log.read(offset, 3000)) is not None:
            piece.warm()
            for row in decode(piece.read(), partial=False).rows():
                if row.offset >= offset:
                    found.append(row.value)
                    offset = row.offset + 1
            piece.release()
        return found

    def put(self, *values: bytes, timestamp: int = NOW) -> Appended:
        done = self.append(batch(*values, timestamp=timestamp))
        self.commit()
        return done

    def rows(self, offset: int, max_bytes: int = 1 << 20) -> Columns | None:
        """What a consumer at this offset gets, decoded and checked."""
        found = self.log.read(offset, max_bytes)
        return None if found is None else decode(found.read())
