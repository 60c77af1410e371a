"""The work on a partition's folder that no append waits for: facts, snapshots, index blocks, deletions.

Methods are called in the loop's thread and do their work in the background pool, one at a time for each partition; what
follows from it is told to the loop's thread. A snapshot or an index that cannot be written is no more than a longer
recovery; facts that cannot be saved are told to whoever waits for them. Facts change in memory at once
(`reading.facts`) and the file follows: each time with the newest, so that the last one to be saved is never an older
one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.log import facts as facts_file
from tidelog.log import snapshot
from tidelog.log.commit import Committer, storage_error
from tidelog.log.facts import Facts, Hole
from tidelog.log.files import Files, remove_files
from tidelog.log.index import Covered, Index
from tidelog.log.index_file import save_index
from tidelog.log.pending import Done
from tidelog.log.reading import Reading
from tidelog.log.segment import DELETED_SUFFIX, Segment
from tidelog.log.snapshot import Snapshot
from tidelog.log.transactions import NO_TRANSACTIONS


class Plan(NamedTuple):
    """What to save once everything below `snapshot.offset` is synced: the fold up to there, and a block of an index."""

    snapshot: Snapshot
    segment: Segment
    built: Index
    entries: int
    covered: Covered


class Upkeep:
    __slots__ = (
        "_committer",
        "_doomed",
        "_files",
        "_folder",
        "_jobs",
        "_lock",
        "_newest_plan",
        "_on_trouble",
        "_reading",
        "_running",
        "_saved_facts",
        "_snapshot_offset",
        "saved_transactions",
    )

    def __init__(self, folder: str, committer: Committer, reading: Reading, on_trouble: Callable[[str], None]) -> None:
        self._folder = folder
        self._files = committer.files
        self._committer = committer
        self._reading = reading
        self._on_trouble = on_trouble
        self._jobs: deque[tuple[Callable[[], None], Done]] = deque()
        self._running = False
        self._lock = threading.Lock()
        self._snapshot_offset = -1  # of the newest snapshot that is durable
        self._newest_plan: Plan | None = None
        self.saved_transactions = NO_TRANSACTIONS  # those that the newest snapshot may know
        self._saved_facts = reading.facts
        self._doomed: deque[tuple[Segment, int]] = deque()  # and the offset behind each

    @property
    def folder(self) -> str:
        return self._folder

    def begin(self, plan: Plan | None) -> None:
        """The partition was recovered. Its snapshot may not be durable; the plan is for when one must be."""
        self._snapshot_offset = -1
        self._newest_plan = plan
        if plan is not None:
            self.saved_transactions = plan.snapshot.transactions
        self._doomed.clear()
        self._saved_facts = self._facts()

    # Facts ------------------------------------------------------------------------------------------------------------

    def change_facts(self, facts: Facts, done: Done) -> None:
        self._reading.facts = facts
        self.submit(self._save_facts, done)

    def remember(self, hole: Hole) -> None:
        """A hole was come upon."""
        offsets = f"offsets {hole.base_offset} to {hole.end_offset - 1}"
        self._on_trouble(f"{self._folder}: {offsets} are damaged ({hole.reason})")
        self.change_facts(self._reading.facts, nobody_waits)

    def pass_holes(self) -> tuple[Hole, ...]:
        """Lets readers pass every hole from now on, durably, in this thread. Returns those that were open."""
        holes = self._reading.holes.pass_all()
        self._save_facts()
        return holes

    def _save_facts(self) -> None:
        facts = self._facts()
        facts_file.save(self._files, self._folder, facts)
        self._saved_facts = facts

    def _facts(self) -> Facts:
        return self._reading.facts._replace(holes=self._reading.holes.known)

    # Snapshots and indexes --------------------------------------------------------------------------------------------

    def save(self, plan: Plan) -> None:
        self._newest_plan = plan
        self.submit(lambda: self.write(plan), nobody_waits)
        if plan.covered.complete:
            self._committer.index_cache.note(plan.segment)

    def write(self, plan: Plan, *, durable: bool = True) -> None:
        """In this thread."""
        save_index(plan.segment, plan.built, plan.entries, plan.covered)
        self._write_snapshot(plan, durable=durable)

    def _write_snapshot(self, plan: Plan, *, durable: bool = True) -> None:
        snapshot.write(self._files, self._folder, plan.snapshot, durable=durable)
        if durable:
            self._snapshot_offset = plan.snapshot.offset
            self.saved_transactions = plan.snapshot.transactions
            snapshot.remove_older(self._files, self._folder, [entry.name for entry in self._files.list(self._folder)])

    def make_sure_of_snapshot(self, offset: int) -> None:
        """In this thread: headers below the offset are about to go, and the fold over them must last without them."""
        plan = self._newest_plan
        if self._snapshot_offset < offset and plan is not None:
            self._write_snapshot(plan)

    def close(self, plan: Plan | None) -> None:
        """Leaves nothing undone, in this thread; the plan is for what has no snapshot yet."""
        if self._saved_facts != self._facts() or self._doomed:
            self._delete_doomed()
        if plan is not None:
            self.write(plan, durable=False)

    # Deleting ---------------------------------------------------------------------------------------------------------

    def delete(self, count: int, start_offset: int, done: Done) -> None:
        """Moves the start offset, and takes away as many of the oldest segments."""
        reading = self._reading
        gone, reading.segments = reading.segments[:count], reading.segments[count:]
        reading.facts = reading.facts._replace(start_offset=start_offset)
        for segment in gone:
            self._committer.index_cache.forget(segment)
            self._doomed.append((segment, reading.segments[0].base_offset))
        self.submit(self._delete_doomed, done)

    def _delete_doomed(self) -> None:
        """Segments may go, in any order, once nobody needs them: the fold over their headers is in a snapshot, and the
        start offset behind them is saved. Their indexes go first: on a full disk that makes room for both.
        """
        doomed = list(self._doomed)
        remove_files(self._files, [segment.index_path for segment, _ in doomed])
        if doomed:
            self.make_sure_of_snapshot(doomed[-1][1])
        self._save_facts()
        for segment, _ in doomed:
            segment.remove()
            self._doomed.popleft()

    def destroy(self, done: Done) -> None:
        """The whole folder: first it is gone for everyone who looks, then it goes file by file."""
        for segment in self._reading.segments:
            segment.close()
        self.submit(lambda: remove_folder(self._files, self._folder), done)

    # The background ---------------------------------------------------------------------------------------------------

    def submit(self, work: Callable[[], None], done: Done) -> None:
        """In the background, after what is queued for this partition; `done` in the loop's thread."""
        with self._lock:
            self._jobs.append((work, done))
            if self._running:
                return
            self._running = True
        self._committer.background.submit(self._run)

    def _run(self) -> None:
        """What there is to do for this partition, in order."""
        while True:
            with self._lock:
                if not self._jobs:
                    self._running = False
                    return
                work, done = self._jobs.popleft()
            failed: StorageError | None = None
            try:
                work()
            except OSError as error:
                failed = storage_error(error)
            self._committer.tell(self._finished, failed, done)

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
