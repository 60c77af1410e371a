"""The growing end of one partition, as the committer's threads see it.

`written` is how far the file has been written, `synced` how far that is known to be durable; both are (segment,
position, offset) and replaced whole, so any thread may read them. States of a tail, and who sets them:

    writing    `parked` None      writer: buffers go to the file as they come
    parked     `parked` a list    writer, at the first buffer for a segment that is not made yet; a pool thread makes it
                                  and hands back
    failed     `failed` >= the generation of a buffer: it is dropped. Writer, after a failed write; the loop then takes
               the appends back and goes on with the next generation
    doubtful   `_name_in_doubt`: a new segment was taken back, and no descriptor was left to sync the folder. Its name
               may come back after a power cut, so nothing is written before the folder is synced
    offline    after a failed sync: nothing is written or synced any more (a sync is never tried twice, because the
               kernel may have dropped the pages and would say "fine"). Also when the file has lost its name: somebody
               has removed or moved the folder, and what is written is for nobody. It is looked at before every ack

A process, or a machine, without descriptors left is not a broken disk: the write is refused and tried again later.

`lock` is held by whoever syncs, so that a roll and a commit never use the slots of a segment at once. `_recorded` is
what the newest slot says: a slot is not written again for what one says already, so no two are ever on their way.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from errno import EIO, EMFILE, ENFILE, ENOENT
from typing import NamedTuple, Protocol

from tidelog.errors import StorageError
from tidelog.log import identity as identity_file
from tidelog.log.files import Buffer, Files, OpenFile, write_fully
from tidelog.log.header_block import HEADER_BLOCK, SLOT_AT, Slot, owner_by, pack_block, pack_slot
from tidelog.log.identity import Identity
from tidelog.log.segment import Segment

IOV_MAX = 1024  # buffers that one pwritev takes
FIRST_SLOT = 2  # a new segment has slots 0 and 1
NO_DESCRIPTORS = (EMFILE, ENFILE)


class Extent(NamedTuple):
    """Everything before `position` of `segment`, which is everything below `offset`, and all earlier segments."""

    segment: Segment
    position: int
    offset: int


class TailListener(Protocol):
    """What the loop's thread is told of a tail, when it drains the committer."""

    def committed(self, extent: Extent) -> None: ...
    def write_failed(self, extent: Extent | None, error: StorageError) -> None: ...
    def went_offline(self, error: StorageError) -> None: ...
    def standing(self) -> tuple[int, int]:
        """Any thread: its start offset and its leader epoch."""
        ...


class Append(NamedTuple):
    """A buffer on its way to the file: it ends at `end`, after which the next offset is `next_offset`.

    `sync`: it counts when it is synced, also where others count when they are written. Markers do: what they end must
    not be open again after a power cut, when nobody would end it.
    """

    tail: Tail
    segment: Segment
    buffer: Buffer
    end: int
    next_offset: int
    generation: int
    sync: bool = False


class Dirty(NamedTuple):
    """A tail that has been written and not yet synced; holds the file open until it is."""

    tail: Tail
    segment: Segment
    file: OpenFile


class CannotTakeBack(OSError):
    """A failed write left bytes behind that could not be cut off."""


class SyncFailed(OSError):
    """The kernel could not bring to the disk what it had taken; what the disk has is unknown."""


class FileGone(SyncFailed):
    """The file that grows has no name any more, or another file has it: nobody will find what is written to it."""

    def __init__(self) -> None:
        super().__init__(ENOENT, "its files were removed or moved while the broker runs")


class Tail:
    __slots__ = (
        "_files",
        "_name_in_doubt",
        "_recorded",
        "_slot_sequence",
        "durable",
        "failed",
        "folder",
        "identity",
        "lock",
        "offline",
        "owner",
        "parked",
        "sync_to",
        "synced",
        "written",
    )

    owner: TailListener  # set before the first append

    def __init__(self, files: Files, folder: str, synced: Extent | None, slot_sequence: int = FIRST_SLOT) -> None:
        self._files = files
        self.folder = folder
        self.identity: Identity | None = None  # whose the folder is, for when it is made
        self.synced = self.written = synced  # None: the partition has no folder yet
        self._slot_sequence = slot_sequence
        self._recorded: Extent | None = None
        self._name_in_doubt = False
        self.durable = True
        self.sync_to = 0  # the offset up to which acks wait for a sync although the partition is not durable
        self.failed = -1
        self.parked: list[Append] | None = None
        self.offline = False
        self.lock = threading.Lock()

    @property
    def name(self) -> str:
        """Of the partition's folder."""
        return self.folder.rpartition("/")[2]

    def check_name(self, segment: Segment) -> None:
        """Before an ack; FileGone when the file of the segment has lost its name."""
        if not self._files.is_there(segment.log_path):
            self.offline = True
            raise FileGone

    def is_replaced(self) -> bool:
        """Whether another file has the name of the one that is written; for a look now and then."""
        synced = self.synced
        file = synced.segment.find_file() if synced is not None and not self.offline else None
        if synced is None or file is None or self._files.is_same(file.fd, synced.segment.log_path):
            return False
        # Not when a roll or a deletion of the whole partition came in between.
        return self.synced is not None and self.synced.segment is synced.segment and not self.offline

    def write(self, appends: Sequence[Append]) -> Dirty:
        """Appends of one segment, in order, from `written` on. After an OSError the file is as it was before."""
        written = self.written
        assert written is not None
        if self._name_in_doubt:
            self._settle_names()
        segment, position, _ = written
        file = segment.file()
        last = appends[-1]
        try:
            done = self._files.write(file.fd, [append.buffer for append in appends[:IOV_MAX]], position)
            if position + done != last.end:
                _write_rest(self._files, file.fd, appends, position, done)
        except OSError as error:
            self._take_back(file, position, error)
            raise
        self.written = Extent(segment, last.end, last.next_offset)
        return Dirty(self, segment, file)

    def waits_for_sync(self, appends: Sequence[Append]) -> bool:
        """Whether these, just written, count only when they are synced: nothing overtakes what lies before it."""
        if self.durable:
            return True
        if any(append.sync for append in appends):
            self.sync_to = appends[-1].next_offset
        return self.synced is None or self.synced.offset < self.sync_to

    def sync(self, segment: Segment, file: OpenFile) -> Extent | None:
        """Makes durable what was written before the call, and says how far that is; None when there is nothing new."""
        with self.lock:
            written = self._record(segment, file)
            if written is None:
                return None
            try:
                self._files.sync(file.fd)
            except OSError as error:
                self.offline = True
                raise SyncFailed(*error.args) from error
            self.check_name(segment)
            self.synced = written
            return written

    def begin_sync(self, entry: Dirty) -> Extent | None:
        """For a sync of the whole file system: what it will make durable; None when there is nothing new."""
        with self.lock:
            return self._record(entry.segment, entry.file)

    def end_sync(self, extent: Extent) -> bool:
        """The sync of the whole file system is done; False when a roll has told of it meanwhile, or a sync failed."""
        with self.lock:
            synced = self.synced
            if self.offline or synced is None or synced.segment is not extent.segment:
                return False
            self.check_name(extent.segment)
            if synced.offset < extent.offset:
                self.synced = extent
            return True

    def _record(self, segment: Segment, file: OpenFile) -> Extent | None:
        """What the next sync of this segment would make durable; the slot then says what the last one did."""
        written = self.written
        if self.offline or written is None or written is self.synced or written.segment is not segment:
            return None
        if self._recorded is not self.synced:
            try:
                self._write_slot(file)
            except OSError:
                return written  # without it two commits are in doubt, and the data is what counts
        return written

    def begin_record(self) -> OpenFile | None:
        """For a tail that rests: a slot says all that was synced; None when one does, or a commit is under way."""
        with self.lock:
            synced = self.synced
            if self.offline or synced is None or synced is self._recorded or synced is not self.written:
                return None
            file = synced.segment.file()
            self._write_slot(file)
            return file

    def end_record(self, file: OpenFile) -> None:
        with self.lock:
            if self.offline:
                return
            try:
                self._files.sync(file.fd)
            except OSError as error:
                self.offline = True
                raise SyncFailed(*error.args) from error

    def found(self, *, recorded: bool) -> None:
        """After recovery: whether the newest slot says all that there is."""
        self._recorded = self.synced if recorded else None

    def _write_slot(self, file: OpenFile) -> None:
        synced = self.synced
        assert synced is not None
        sequence = self._slot_sequence
        data, at = pack_slot(Slot(sequence, synced.offset, synced.position)), SLOT_AT[sequence & 1]
        if self._files.write(file.fd, (data,), at) != len(data):
            write_fully(self._files, file.fd, data, at)
        self._slot_sequence = sequence + 1
        self._recorded = synced

    def close(self) -> None:
        """Records the last sync as well. Not synced itself: without it recovery only looks at a little more."""
        with self.lock:
            if self.synced is not None and self._recorded is not self.synced:
                self._write_slot(self.synced.segment.file())

    def finish(self) -> Extent | None:
        """The first half of a roll: the old segment is wholly synced before the new one has a name."""
        old = self.written
        return self.sync(old.segment, old.segment.file()) if old is not None else None

    def make(self, segment: Segment) -> None:
        """The other half: the new segment, durably."""
        with self.lock:
            if self.offline:
                raise SyncFailed(EIO, "an earlier sync failed")
            if self._name_in_doubt:
                self._settle_names()
            if self.written is None:
                self._make_folder()
            else:
                self.check_name(self.written.segment)
            file = self._create(segment)
            self._name(segment, file)
            self._slot_sequence = FIRST_SLOT
            self.synced = self.written = Extent(segment, HEADER_BLOCK, segment.base_offset)

    def _make_folder(self) -> None:
        """Its own name is synced here; the names in it are when the first segment is among them."""
        self._files.make_folder(self.folder)
        if self.identity is not None:
            try:
                identity_file.put(self._files, self.folder, self.identity)
            except OSError as error:
                if error.errno != EIO:
                    raise
                self.offline = True
                raise SyncFailed(*error.args) from error
        self._files.sync_folder(self.folder.rpartition("/")[0])

    def _create(self, segment: Segment) -> OpenFile:
        """The file with its header block; no trace of it is left after an OSError."""
        file = segment.create()
        try:
            block = pack_block(segment.base_offset, segment.created_ms, owner_by(self.folder))
            write_fully(self._files, file.fd, block, 0)
        except OSError as error:
            self._remove(segment, error)
            raise
        return file

    def _name(self, segment: Segment, file: OpenFile) -> None:
        """Makes the new file and its name durable."""
        try:
            self._files.sync(file.fd)
            self._files.sync_folder(self.folder)
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:  # the folder was not opened, so no sync of it has failed
                self._remove(segment, error)
                raise
            self.offline = True
            raise SyncFailed(*error.args) from error

    def _remove(self, segment: Segment, error: OSError) -> None:
        """Takes a new segment back. If it came back after a power cut, it would hide what is appended before it."""
        try:
            segment.remove()
            self._files.sync_folder(self.folder)
        except OSError as second:
            if second.errno not in NO_DESCRIPTORS:
                raise CannotTakeBack(*second.args) from error
            self._name_in_doubt = True

    def _settle_names(self) -> None:
        """Before anything else is written; raises, and the write is refused, while there is no descriptor."""
        try:
            self._files.sync_folder(self.folder)
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                raise
            raise SyncFailed(*error.args) from error
        self._name_in_doubt = False

    def _take_back(self, file: OpenFile, position: int, error: OSError) -> None:
        try:
            self._files.truncate(file.fd, position)
        except OSError as second:
            raise CannotTakeBack(*second.args) from error


def _write_rest(files: Files, fd: int, appends: Sequence[Append], position: int, done: int) -> None:
    """Goes on after a short write, or with more buffers than one call takes."""
    rest = [memoryview(append.buffer) for append in appends]
    while True:
        position += done
        while rest and done >= len(rest[0]):
            done -= len(rest.pop(0))
        if not rest:
            return
        rest[0] = rest[0][done:]
        done = files.write(fd, rest[:IOV_MAX], position)
