"""Compaction of one partition as the loop's thread sees it: turn by turn, and what has been made takes its place.

A turn is a piece of work in the background and what follows from it here. States, and who sets them:

    idle         no pass under way; the next turn looks whether one is due
    under way    `_cleaning` is one; between two turns nothing happens, and nothing is held but memory
    given up     after something that no second try would mend: not again before the partition is opened anew

Where a group of segments has been written anew, its file gets its name in the background (`publish`, in the same queue
as deletions), and then the loop's thread replaces the segments. If they are not what they were by then (retention has
deleted one, the partition was recovered), the file goes again. Either way a crash leaves a whole log: see rewrite.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.log.commit import Committer, storage_error
from tidelog.log.compaction.cleaning import Beginning, Cleaning, Outcome, Tally
from tidelog.log.compaction.rewrite import Rewritten, publish, remove_old, take_back
from tidelog.log.compaction.window import BadBatch
from tidelog.log.reading import Reading
from tidelog.log.upkeep import Upkeep, nobody_waits


class Pass(NamedTuple):
    """A pass that is over: offsets `start` to `end` are clean now."""

    start: int
    end: int
    whole: bool
    tally: Tally


class Turn(NamedTuple):
    more: bool  # another turn may follow at once
    read_bytes: int = 0
    over: Pass | None = None


NOTHING_TO_DO = Turn(more=False)
Told = Callable[[Turn], None]


class Compactor:
    """The loop's thread only, but for `_work`."""

    __slots__ = (
        "_cleaning",
        "_committer",
        "_given_up",
        "_on_aborted_gone",
        "_on_trouble",
        "_reading",
        "_running",
        "_upkeep",
    )

    def __init__(
        self,
        committer: Committer,
        reading: Reading,
        upkeep: Upkeep,
        on_trouble: Callable[[str], None],
        on_aborted_gone: Callable[[int], None],
    ) -> None:
        self._committer = committer
        self._reading = reading
        self._upkeep = upkeep
        self._on_trouble = on_trouble
        self._on_aborted_gone = on_aborted_gone  # nothing of transactions that were aborted below an offset is left
        self._cleaning: Cleaning | None = None
        self._running = False
        self._given_up = False

    @property
    def under_way(self) -> bool:
        return self._cleaning is not None

    def turn(self, begin: Callable[[], Beginning | None], max_bytes: int, told: Told) -> None:
        """A piece of work; `begin` is asked when no pass is under way. `told` is called here, later or at once."""
        if self._running or self._given_up:
            told(NOTHING_TO_DO)
            return
        if self._cleaning is None:
            beginning = begin()
            if beginning is None:
                told(NOTHING_TO_DO)
                return
            self._cleaning = Cleaning(self._reading, self._committer.open_files, beginning)
        self._running = True
        cleaning = self._cleaning
        self._committer.background.submit(lambda: self._work(cleaning, max_bytes, told))

    def abandon(self) -> None:
        """The partition is not to be compacted any more, or not as it was planned."""
        cleaning, self._cleaning = self._cleaning, None
        if cleaning is not None and not self._running:
            self._committer.background.submit(cleaning.abandon)

    def _work(self, cleaning: Cleaning, max_bytes: int, told: Told) -> None:
        """In the background."""
        before = cleaning.tally.read_bytes
        try:
            outcome = cleaning.run(max_bytes)
        except BadBatch as error:
            cleaning.abandon()
            self._reading.found_bad(error.segment, error.place, error.fault)
            self._committer.tell(self._failed, cleaning, f"put off: {error}", False, told)
        except (OSError, StorageError) as error:
            cleaning.abandon()
            reason = storage_error(error) if isinstance(error, OSError) else error
            self._committer.tell(self._failed, cleaning, f"put off: {reason}", False, told)
        except MemoryError:
            cleaning.abandon()
            line = "put off: there is no memory for its keys; lower log.cleaner.dedupe.buffer.size"
            self._committer.tell(self._failed, cleaning, line, False, told)
        else:
            self._committer.tell(self._worked, cleaning, outcome, cleaning.tally.read_bytes - before, told)

    # What follows -----------------------------------------------------------------------------------------------------

    def _failed(self, cleaning: Cleaning, line: str, for_good: bool, told: Told) -> None:
        self._running = False
        self._given_up = self._given_up or for_good
        if self._cleaning is cleaning:
            self._cleaning = None
            self._on_trouble(f"compaction was {line}")
        told(NOTHING_TO_DO)

    def _worked(self, cleaning: Cleaning, outcome: Outcome, read_bytes: int, told: Told) -> None:
        if self._cleaning is not cleaning:  # abandoned meanwhile
            self._running = False
            self._committer.background.submit(cleaning.abandon)
            told(NOTHING_TO_DO)
        elif outcome is Outcome.READY:
            assert cleaning.ready is not None
            self._publish(cleaning, cleaning.ready, read_bytes, told)
        elif outcome is Outcome.OVER:
            self._conclude(cleaning, read_bytes, told)
        else:
            self._running = False
            if outcome is Outcome.IDLE:
                self._cleaning = None
            told(Turn(outcome is Outcome.MORE, read_bytes))

    def _publish(self, cleaning: Cleaning, made: Rewritten, read_bytes: int, told: Told) -> None:
        def work() -> None:
            self._upkeep.make_sure_of_snapshot(made.end_offset)
            publish(made)

        self._upkeep.submit(work, partial(self._published, cleaning, made, read_bytes, told))

    def _published(
        self, cleaning: Cleaning, made: Rewritten, read_bytes: int, told: Told, error: StorageError | None
    ) -> None:
        if error is not None:
            # It may have its name or not, and after a power cut the other way round: the partition must be listed anew.
            self._failed(cleaning, f"given up until the next start: {error}", True, told)
            return
        if not self._reading.replace(made.old, made.new):
            self._upkeep.submit(lambda: take_back(made), partial(self._taken_back, cleaning, told))
            return
        for segment in made.old:
            self._committer.index_cache.forget(segment)
        self._committer.index_cache.note(made.new)
        self._upkeep.submit(lambda: remove_old(made), nobody_waits)
        self._running = False
        told(Turn(self._cleaning is cleaning, read_bytes))

    def _taken_back(self, cleaning: Cleaning, told: Told, error: StorageError | None) -> None:
        line = (
            "put off: segments were deleted meanwhile" if error is None else f"given up until the next start: {error}"
        )
        self._failed(cleaning, line, error is not None, told)

    def _conclude(self, cleaning: Cleaning, read_bytes: int, told: Told) -> None:
        self._cleaning = None
        facts = self._reading.facts
        start, end = cleaning.begin.first_dirty, max(cleaning.end, facts.first_dirty)
        over = Pass(start, end, cleaning.whole, cleaning.tally)
        if cleaning.whole:
            self._on_aborted_gone(cleaning.cleaned_up_to)

        def saved(error: StorageError | None) -> None:
            self._running = False
            told(Turn(error is None, read_bytes, over if error is None else None))

        self._upkeep.change_facts(facts._replace(first_dirty=end), saved)
