"""Excision: single records of one partition are taken out of its files for good. Their offsets stay, as gaps.

Steps, and who does each; a crash at any of them leaves a whole log, and doing all of it again ends where it would have:

    resting     compaction ends what it is at: of two that write one segment anew, one would bring the record back
    rolling     if the segment that grows has such a record, the next one begins: now, or with the next batch
    writing     segment by segment, in the background: its batches without these records, under a new generation
    naming      the new file gets its name, durably, and takes the old one's place (compaction/rewrite.py)
    clearing    whatever else is in the folder and may have a copy is removed, and the folder synced

Each batch keeps its header (record/excising.py), so producers, sequences and transactions are folded as before.
Clearing takes away segments that do not count any more and what recovery has cut aside (`.cut`): a batch that was torn
and sent again is there, too. A reader that has the old file open goes on in it, and its bytes are on the disk until it
lets go; what reads from then on finds the new file.

A segment with a hole is not written anew: what is in the hole cannot be told from what must stay.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.log.appending import Appending
from tidelog.log.commit import Committer, storage_error
from tidelog.log.compaction.rewrite import Rewrite, Rewritten, publish, remove_old, take_back
from tidelog.log.compaction.window import BadBatch, read_window
from tidelog.log.files import remove_files
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.index import BatchStart
from tidelog.log.reading import Reading
from tidelog.log.recovery import CUT_SUFFIX
from tidelog.log.segment import CLEANED_SUFFIX, DELETED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, Name, Segment
from tidelog.log.upkeep import Upkeep
from tidelog.record.compacting import Filtered
from tidelog.record.excising import excise_records

LOOK_AGAIN_S = 0.005
ROLLS = 3
TRIES = 10  # to find a segment as it was, while retention deletes


class ExcisionRefused(StorageError):
    """Nothing was taken out, and trying again would not help."""


class WantedExcision(NamedTuple):
    """What is to be done: offsets in order, each once."""

    offsets: Sequence[int]
    now_ms: int
    interval: int  # of the index


Told = Callable[[int, StorageError | None], None]  # how many records went; why not all that were asked for


class Excising:
    """One excision under way. The loop's thread, but for `_write` and `_clear`."""

    def __init__(
        self,
        committer: Committer,
        reading: Reading,
        upkeep: Upkeep,
        appending: Appending,
        offline: Callable[[], StorageError | None],
        wanted: WantedExcision,
        told: Told,
    ) -> None:
        self._committer = committer
        self._reading = reading
        self._upkeep = upkeep
        self._appending = appending
        self._offline = offline
        self._wanted = wanted
        self._told = told
        self._removed = 0
        self._next = wanted.offsets[0]  # below it all is done
        self._tries = self._rolls = 0

    def begin(self) -> None:
        """Ends the segment that grows, if it has one of the offsets; goes on when it is complete."""
        if (offline := self._offline()) is not None:
            self._told(0, offline)
            return
        visible = self._reading.visible
        if visible is None or self._wanted.offsets[-1] >= visible.offset:
            self._told(0, ExcisionRefused(f"offset {self._wanted.offsets[-1]} is not there yet"))
            return
        last = self._wanted.offsets[-1]
        if visible.segment.base_offset > last:
            self._go_on()
            return
        if self._reading.segments[-1].base_offset <= last:
            self._rolls += self._appending.idle  # a second one: the disk has refused the first
            if self._rolls > ROLLS:
                self._told(0, StorageError(f"a new segment cannot be made in {self._upkeep.folder}; is the disk full?"))
                return
            self._appending.roll_soon(self._wanted.now_ms)
        self._committer.background.submit(self._wait)

    def _wait(self) -> None:
        """In the background: a commit takes a moment, and nothing tells of a segment that is made without a batch."""
        time.sleep(LOOK_AGAIN_S)
        self._committer.tell(self.begin)

    def _go_on(self) -> None:
        """To the next segment with an offset that is wanted."""
        offsets = self._wanted.offsets
        at = bisect_left(offsets, self._next)
        if at == len(offsets):
            self._upkeep.submit(self._clear, self._cleared)
            return
        first = self._reading.segments[0].base_offset
        if offsets[at] < first:  # deleted with its segment; clearing sees to the file
            self._next = first
            self._go_on()
            return
        segment = self._reading.segment_of(offsets[at])
        end = self._reading.end_of(segment).offset
        here = offsets[at : bisect_left(offsets, end)]
        self._committer.background.submit(partial(self._write, segment, end, here))

    def _write(self, segment: Segment, end: int, here: Sequence[int]) -> None:
        """In the background."""
        damaged = [hole for hole in self._reading.holes.known if hole.segment == segment.base_offset]
        try:
            if damaged:
                raise ExcisionRefused(_says_damage(segment, damaged[0].base_offset, damaged[0].end_offset))
            made, removed = write_without(self._reading, self._committer, segment, end, here, self._wanted)
        except BadBatch as error:
            self._reading.found_bad(error.segment, error.place, error.fault)
            self._fail(ExcisionRefused(_says_damage(segment, error.place.offset, end)))
        except FileNotFoundError:  # deleted meanwhile
            self._committer.tell(self._again, end)
        except OSError as error:
            self._fail(storage_error(error))
        except StorageError as error:
            self._fail(error)
        else:
            self._committer.tell(self._written, made, removed, end)

    def _fail(self, error: StorageError) -> None:
        self._committer.tell(self._told, self._removed, error)

    def _again(self, _end: int) -> None:
        self._tries += 1
        if self._tries > TRIES:
            self._told(self._removed, StorageError("segments were removed while they were rewritten; try again"))
            return
        self._go_on()

    def _written(self, made: Rewritten | None, removed: int, end: int) -> None:
        if made is None:  # there was nothing to take out: another try has done it, or compaction
            self._done_up_to(end, removed)
            return
        named = partial(self._named, made, removed)
        self._upkeep.submit(lambda: _name(self._upkeep, made), named)

    def _named(self, made: Rewritten, removed: int, error: StorageError | None) -> None:
        if error is not None:
            # It may have its name or not: the partition must be listed anew, and then all of this is done again.
            self._told(self._removed, error)
            return
        if not self._reading.replace(made.old, made.new):
            self._upkeep.submit(lambda: take_back(made), lambda failed: self._taken_back(made, failed))
            return
        for segment in made.old:
            self._committer.index_cache.forget(segment)
        self._committer.index_cache.note(made.new)
        self._upkeep.submit(lambda: remove_old(made), partial(self._old_gone, made.end_offset, removed))

    def _taken_back(self, made: Rewritten, error: StorageError | None) -> None:
        if error is not None:
            self._told(self._removed, error)
        else:
            self._again(made.end_offset)

    def _old_gone(self, end: int, removed: int, error: StorageError | None) -> None:
        if error is not None:
            self._told(self._removed, error)
        else:
            self._done_up_to(end, removed)

    def _done_up_to(self, end: int, removed: int) -> None:
        self._removed += removed
        self._next, self._tries = end, 0
        self._go_on()

    def _clear(self) -> None:
        """In the background. The folder is listed first: what is made meanwhile is known by then, and stays."""
        files, folder = self._committer.files, self._upkeep.folder
        names = [entry.name for entry in files.list(folder)]
        known = {segment.path.rpartition("/")[2] for segment in self._reading.segments}
        remove_files(files, [f"{folder}/{name}" for name in names if _may_have_a_copy(name, known)])
        files.sync_folder(folder)

    def _cleared(self, error: StorageError | None) -> None:
        self._told(self._removed, error)


def write_without(
    reading: Reading, committer: Committer, segment: Segment, end: int, here: Sequence[int], wanted: WantedExcision
) -> tuple[Rewritten | None, int]:
    """The segment written anew, still without its name, and how many records went; None when none was there.

    Its generation is one above what compaction could give: a file of the same name may be being removed.
    """
    generation = 2 + max(one.generation for one in reading.segments)
    name = Name(segment.base_offset, end, generation)
    rewrite = Rewrite(segment.files, committer.open_files, [segment], name, wanted.interval, wanted.now_ms)
    removed = 0
    place = BatchStart(HEADER_BLOCK, segment.base_offset)
    try:
        while place.position < segment.end:
            window = read_window(segment, place, reading.facts.epochs)
            found = excise_records(window.data, window.headers, here)
            if found.unreadable:
                raise ExcisionRefused(
                    f"offset {found.unreadable[0]} lies in a batch whose records cannot be read; name all of its"
                    " offsets, and the whole batch goes"
                )
            rewrite.put(window.data, Filtered(found.data, None, len(window.headers), len(window.headers), 0, 0))
            while rewrite.catch_up():
                pass
            removed += found.removed
            place = window.end
        return rewrite.finish(), removed
    except BaseException:
        rewrite.abandon()
        raise


def _name(upkeep: Upkeep, made: Rewritten) -> None:
    upkeep.make_sure_of_snapshot(made.end_offset)
    publish(made)


def _may_have_a_copy(name: str, known: set[str]) -> bool:
    if name.endswith((CUT_SUFFIX, CLEANED_SUFFIX, DELETED_SUFFIX)):
        return True
    return any(
        name.endswith(suffix) and Name.parse(name, suffix) is not None and name.removesuffix(suffix) not in known
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX)
    )


def _says_damage(segment: Segment, start: int, end: int) -> str:
    return (
        f"segment {segment.base_offset} is damaged at offsets {start} to {end - 1}, and is not rewritten;"
        " truncate the topic behind it (tidelog topics truncate), or restore it from a backup"
    )
