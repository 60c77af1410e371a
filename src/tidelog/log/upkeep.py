"""The work on a partition's folder that no append waits for: facts, snapshots, index blocks, deletions.

Methods are called in the loop's thread and do their work in the background pool, one at a time for each partition; what
follows from it is told to the loop's thread. A snapshot or an index that cannot be written is no more than a longer
recovery; facts that cannot be saved are told to whoever waits for them. Facts change in memory at once
(`reading.facts`) and the file follows: each time with the newest, so that the last one to be saved is never an older
one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.log import facts as facts_file
from tidelog.log import snapshot
from tidelog.log.commit import Committer, storage_error
from tidelog.log.facts import Facts, Hole
from tidelog.log.files import Files
from tidelog.log.index import Covered, Index
from tidelog.log.index_file import save_index
from tidelog.log.pending import Done
from tidelog.log.reading import Reading
from tidelog.log.segment import DELETED_SUFFIX, Segment
from tidelog.log.snapshot import Snapshot


class Plan(NamedTuple):
    """What to save once everything below `snapshot.offset` is synced: the fold up to there, and a block of an index."""

    snapshot: Snapshot
    segment: Segment
    built: Index
    entries: int
    covered: Covered


class Upkeep:
    __slots__ = ("_committer", "_files", "_folder", "_lock", "_on_trouble", "_reading")

    def __init__(self, folder: str, committer: Committer, reading: Reading, on_trouble: Callable[[str], None]) -> None:
        self._folder = folder
        self._files = committer.files
        self._committer = committer
        self._reading = reading
        self._lock = threading.Lock()
        self._on_trouble = on_trouble

    # Facts ------------------------------------------------------------------------------------------------------------

    def change_facts(self, facts: Facts, done: Done) -> None:
        self._reading.facts = facts
        self._submit(self._save_facts, done)

    def remember(self, hole: Hole) -> None:
        """A hole was come upon, perhaps not for the first time."""
        facts = self._reading.facts
        if any(known.base_offset <= hole.base_offset < known.end_offset for known in facts.holes):
            return
        offsets = f"offsets {hole.base_offset} to {hole.end_offset - 1}"
        self._on_trouble(f"{self._folder}: {offsets} are damaged ({hole.reason})")
        self.change_facts(facts._replace(holes=tuple(sorted([*facts.holes, hole]))), nobody_waits)

    def pass_holes(self) -> tuple[Hole, ...]:
        """Lets readers pass every hole from now on, durably, in this thread. Returns those that were open."""
        facts = self._reading.facts
        passed = facts._replace(holes=tuple(hole._replace(passed=True) for hole in facts.holes))
        with self._lock:
            facts_file.save(self._files, self._folder, passed)
        self._reading.facts = passed
        return tuple(hole for hole in facts.holes if not hole.passed)

    def _save_facts(self) -> None:
        facts_file.save(self._files, self._folder, self._reading.facts)

    # Snapshots and indexes --------------------------------------------------------------------------------------------

    def save(self, plan: Plan) -> None:
        self._submit(lambda: self.write(plan), nobody_waits)
        if plan.covered.complete:
            self._committer.index_cache.note(plan.segment)

    def write(self, plan: Plan, *, durable: bool = True) -> None:
        """In this thread."""
        save_index(plan.segment, plan.built, plan.entries, plan.covered)
        snapshot.write(self._files, self._folder, plan.snapshot, durable=durable)
        snapshot.remove_older(self._files, self._folder, [entry.name for entry in self._files.list(self._folder)])

    # Deleting ---------------------------------------------------------------------------------------------------------

    def delete(self, count: int, start_offset: int, done: Done) -> None:
        """Moves the start offset, and takes away as many of the oldest segments.

        The new start is saved first, so that no order in which names may vanish leaves a gap.
        """
        reading = self._reading
        gone, reading.segments = reading.segments[:count], reading.segments[count:]
        reading.facts = reading.facts._replace(start_offset=start_offset)

        def work() -> None:
            try:
                self._save_facts()
            except OSError:
                if not gone:
                    raise
                self._remove_in_order(gone)  # no room for a few lines; deleting is what makes room
            else:
                for segment in gone:
                    segment.remove()

        for segment in gone:
            self._committer.index_cache.forget(segment)
        self._submit(work, done)

    def _remove_in_order(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            segment.remove()
            self._files.sync_folder(self._folder)

    def destroy(self, done: Done) -> None:
        """The whole folder: first it is gone for everyone who looks, then it goes file by file."""
        for segment in self._reading.segments:
            segment.close()
        self._submit(lambda: remove_folder(self._files, self._folder), done)

    # The background ---------------------------------------------------------------------------------------------------

    def _submit(self, work: Callable[[], None], done: Done) -> None:
        def job() -> None:
            failed: StorageError | None = None
            with self._lock:
                try:
                    work()
                except OSError as error:
                    failed = storage_error(error)
            self._committer.tell(self._finished, failed, done)

        self._committer.background.submit(job)

    def _finished(self, error: StorageError | None, done: Done) -> None:
        if error is not None:
            self._on_trouble(f"upkeep of {self._folder}: {error}")
        done(error)


def remove_folder(files: Files, folder: str) -> None:
    """Durably: after a power cut the folder is there as it was, or not at all but for a left-over by another name."""
    gone = folder + DELETED_SUFFIX
    try:
        files.rename(folder, gone)
    except FileNotFoundError:
        return
    files.sync_folder(gone.rpartition("/")[0])
    for entry in files.list(gone):
        files.remove(f"{gone}/{entry.name}")
    files.remove_folder(gone)


def nobody_waits(error: StorageError | None) -> None:
    """For work whose end is of no interest."""
