"""A backup becomes a data folder again: a new one, which a broker then opens as after a clean stop.

Every file is copied, with its checksum computed on the way; the first one that is not what the manifest says ends it,
and what was made is removed. The file `format` comes last, when all else is synced: a broker refuses a folder without
it, so a restore that was killed half-way is never taken for data. Nor is one that has not taken out again what was
excised since the backup. What was backed up with the log (`companion.py`) goes first, into a folder of its own, if
that is wanted: so a broker never has a log whose checkpoints are still on their way.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import NamedTuple

from tidelog.broker.backup import manifest as manifest_file
from tidelog.broker.backup.manifest import APPS, Apps, Kept, Manifest
from tidelog.errors import BackupError, DataFolderError
from tidelog.log.ends import ENDS_NAME, End, pack_whole
from tidelog.log.files import OWNER_ONLY_FOLDER, Files, replace_file, write_fully
from tidelog.log.folder import FORMAT, VERSION, DataFolder
from tidelog.record.codec import crc32c

COPY_WINDOW = 4 << 20

Progress = Callable[[int, int], None]


class AppsFolder(NamedTuple):
    """Where to what was backed up with the log, and what is to be done to it there."""

    folder: str
    settle: Callable[[str, Apps], None]


def restore(
    backup: str,
    data: str,
    files: Files,
    progress: Progress,
    shun: Sequence[str] = (),
    beside: AppsFolder | None = None,
) -> Manifest:
    """`shun` are places that say what was taken out since the backup (excision/shunning.py)."""
    from tidelog.broker.excision import shunning

    backup, data = backup.rstrip("/") or "/", data.rstrip("/") or "/"
    found = manifest_file.read(backup)
    if beside is not None and found.apps is None:
        raise BackupError(f"{backup} has no app: it was taken without --app; leave --app-folder out")
    shunned = [one for place in (backup, *shun) for one in shunning.read(place)]
    with _new_folder(beside.folder if beside is not None else None, files), _new_folder(data, files):
        if shunned:
            shunning.begin(data, files)
        _Restoring(backup, data, files, progress, found).run(beside)
        if shunned:
            shunning.finish(data, shunned, files)
    return found


@contextmanager
def _new_folder(path: str | None, files: Files) -> Iterator[None]:
    """Ours alone; as it was, if what follows fails."""
    if path is None:
        yield
        return
    if Path(path).exists() and (not Path(path).is_dir() or any(Path(path).iterdir())):
        raise DataFolderError(
            f"{path} is there and not empty; restore to a new folder (one that a restore left half-way can be removed)"
        )
    made = not Path(path).exists()
    try:
        files.make_folder(path)
        Path(path).chmod(OWNER_ONLY_FOLDER)
        yield
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        if not made:
            Path(path).mkdir(exist_ok=True)
        raise


class _Restoring:
    def __init__(self, backup: str, data: str, files: Files, progress: Progress, manifest: Manifest) -> None:
        self._tree = f"{backup}/{manifest.tree}"
        self._data = data
        self._files = files
        self._progress = progress
        self._manifest = manifest
        self._total = manifest.bytes
        self._done = 0

    def run(self, beside: AppsFolder | None) -> None:
        if beside is not None and self._manifest.apps is not None:
            for kept in self._manifest.apps.files:
                Path(beside.folder, kept.name).parent.mkdir(parents=True, exist_ok=True, mode=OWNER_ONLY_FOLDER)
                self._copy(APPS, kept, beside.folder)
            beside.settle(beside.folder, self._manifest.apps)
            self._files.sync_all(beside.folder)
        for one in self._manifest.partitions:
            self._files.make_folder(f"{self._data}/{one.folder}")
            for kept in one.files:
                self._copy(one.folder, kept)
        for kept in self._manifest.folds:
            self._copy(".", kept)
        marks = {one.folder: one.mark for one in self._manifest.partitions}
        ends = {one.folder: End.of(one.mark) for one in self._manifest.partitions}
        replace_file(self._files, f"{self._data}/{ENDS_NAME}", pack_whole(ends), durable=False)
        DataFolder(self._data, self._files).leave(marks)
        content = dumps({"v": VERSION, "cluster_id": self._manifest.cluster_id}) + "\n"
        replace_file(self._files, f"{self._data}/{FORMAT}", content.encode())
        self._files.sync_folder(str(Path(self._data).resolve().parent))

    def _copy(self, folder: str, kept: Kept, to: str | None = None) -> None:
        name = f"{folder}/{kept.name}"
        try:
            # A link would be somebody else's: what the backup has is a file.
            source = os.open(f"{self._tree}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP):
                raise
            raise BackupError(f"{self._tree}/{name} is missing; the backup is damaged, use another one") from None
        target = self._files.open(f"{self._data}/{name}" if to is None else f"{to}/{kept.name}", create=True)
        try:
            crc = position = 0
            while data := os.pread(source, COPY_WINDOW, position):
                write_fully(self._files, target, data, position)
                crc = crc32c(data, crc)
                position += len(data)
                self._done += len(data)
                self._progress(self._done, self._total)
        finally:
            os.close(source)
            self._files.close(target)
        if (position, crc) != (kept.size, kept.crc):
            raise BackupError(f"{self._tree}/{name} is not what was backed up; the backup is damaged, use another one")
