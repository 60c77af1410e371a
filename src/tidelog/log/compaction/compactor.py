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
from tidelog.log.appending import Appending
from tidelog.log.commit import Committer, storage_error
from tidelog.log.compaction.cleaning import Beginning, Cleaning, CleaningOutcome, CleaningTally
from tidelog.log.compaction.rewrite import Rewritten, publish, remove_old, take_back
from tidelog.log.compaction.window import BadBatch
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.reading import Reading
from tidelog.log.settings import LogSettings
from tidelog.log.transactions import AbortedColumns
from tidelog.log.upkeep import Upkeep, nobody_waits


class Pass(NamedTuple):
    """A pass that is over: offsets `start` to `end` are clean now."""

    start: int
    end: int
    whole: bool
    tally: CleaningTally


class Now(NamedTuple):
    """What a log is when a turn begins."""

    wall_ms: int
    start_offset: int
    high_watermark: int
    appending: Appending
    settings: LogSettings
    key_bytes: int


class Turn(NamedTuple):
    more: bool  # another turn may follow at once
    read_bytes: int = 0
    over: Pass | None = None


NOTHING_TO_DO = Turn(more=False)
Told = Callable[[Turn], None]


class Compactor:
    """The loop's thread only, but for `_work`."""

    __slots__ = (
        "_aborted_gone",
        "_cleaning",
        "_committer",
        "_given_up",
        "_on_trouble",
        "_reading",
        "_running",
        "_upkeep",
        "_waits",
    )

    def __init__(
        self,
        committer: Committer,
        reading: Reading,
        upkeep: Upkeep,
        on_trouble: Callable[[str], None],
        aborted_gone: Callable[[int], None],
    ) -> None:
        self._committer = committer
        self._reading = reading
        self._upkeep = upkeep
        self._on_trouble = on_trouble
        self._aborted_gone = aborted_gone  # called when nothing is left of what was aborted below an offset
        self._cleaning: Cleaning | None = None
        self._running = False
        self._given_up = False
        self._waits: Callable[[], None] | None = None

    def turn(self, now: Now, max_bytes: int, told: Told) -> None:
        """A piece of work, of a new pass if none is under way. `told` is called here, later or at once."""
        if self._running or self._given_up:
            told(NOTHING_TO_DO)
            return
        if self._cleaning is None:
            beginning = self._begin(now)
            if beginning is None:
                told(NOTHING_TO_DO)
                return
            self._cleaning = Cleaning(self._reading, self._committer.open_files, beginning)
        self._running = True
        cleaning = self._cleaning
        self._committer.background.submit(lambda: self._work(cleaning, max_bytes, told))

    def _begin(self, now: Now) -> Beginning | None:
        """What there is to clean; None when nothing has come since the last pass but in the segment that grows.

        That one is ended when it is old enough, so that it is not left out for ever where nobody writes.
        """
        reading, settings, appending = self._reading, now.settings, now.appending
        visible = reading.visible
        if visible is None:
            return None
        last = reading.segments[-1]
        if last.end > HEADER_BLOCK and now.wall_ms - last.created_ms >= settings.segment_ms and appending.idle:
            appending.roll(now.wall_ms)
        stop, first_dirty = visible.segment.base_offset, reading.facts.first_dirty
        complete = [segment for segment in reading.segments if segment.base_offset < stop]
        segments = tuple(segment for segment in complete if reading.end_of(segment).offset > now.start_offset)
        ends = tuple(reading.end_of(segment).offset for segment in segments)
        if not segments or stop <= first_dirty <= now.high_watermark:
            return None
        transactions = appending.transactions
        aborted = transactions.aborted.between(now.start_offset, stop, now.high_watermark)
        stable = min(now.high_watermark, transactions.first_open)
        producers = dict(appending.producers)
        known = producers, aborted, self._named(transactions.aborted), settings
        return Beginning(segments, ends, first_dirty, stable, *known, now.wall_ms, now.key_bytes)

    def _named(self, aborted: AbortedColumns) -> set[tuple[int, int]]:
        """The markers of aborted transactions that are known, or would be after a crash."""
        blocks = (*aborted.blocks, *self._upkeep.saved_transactions.blocks)
        return {pair for block in blocks for pair in zip(block.producer_ids, block.last_offsets, strict=False)}

    def rest(self, then: Callable[[], None]) -> None:
        """Ends the pass that is under way, and calls `then` when no file is being written or named any more.

        Until the next turn, which whoever asks for rest must not ask for.
        """
        self.abandon()
        if self._running:
            self._waits = then
        else:
            then()

    def _stopped(self) -> None:
        self._running = False
        waits, self._waits = self._waits, None
        if waits is not None:
            waits()

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
        except FileNotFoundError:  # a segment was deleted meanwhile
            cleaning.abandon()
            self._committer.tell(self._failed, cleaning, None, False, told)
        except (OSError, StorageError) as error:
            cleaning.abandon()
            reason = storage_error(error) if isinstance(error, OSError) else error
            self._committer.tell(self._failed, cleaning, f"put off: {reason}", False, told)
        except MemoryError:
            cleaning.abandon()
            line = "put off: memory is too small for its keys; lower log.cleaner.dedupe.buffer.size"
            self._committer.tell(self._failed, cleaning, line, False, told)
        else:
            read_bytes = cleaning.tally.read_bytes - before
            self._committer.tell(self._worked, cleaning, outcome, read_bytes, told)

    # What follows -----------------------------------------------------------------------------------------------------

    def _failed(self, cleaning: Cleaning, line: str | None, for_good: bool, told: Told) -> None:
        self._stopped()
        self._given_up = self._given_up or for_good
        if self._cleaning is cleaning:
            self._cleaning = None
            if line is not None:
                self._on_trouble(f"compaction was {line}")
        told(NOTHING_TO_DO)

    def _worked(self, cleaning: Cleaning, outcome: CleaningOutcome, read_bytes: int, told: Told) -> None:
        if self._cleaning is not cleaning:  # abandoned meanwhile
            self._stopped()
            self._committer.background.submit(cleaning.abandon)
            told(NOTHING_TO_DO)
        elif outcome is CleaningOutcome.READY:
            assert cleaning.ready is not None
            self._publish(cleaning, cleaning.ready, read_bytes, told)
        elif outcome is CleaningOutcome.OVER:
            self._conclude(cleaning, read_bytes, told)
        else:
            self._stopped()
            if outcome is CleaningOutcome.IDLE:
                self._cleaning = None
            told(Turn(outcome is CleaningOutcome.MORE, read_bytes))

    def _publish(self, cleaning: Cleaning, made: Rewritten, read_bytes: int, told: Told) -> None:
        """First headers that are about to go must be in a snapshot."""
        name = partial(self._name, cleaning, made, read_bytes, told)
        self._upkeep.submit(lambda: self._upkeep.make_sure_of_snapshot(made.end_offset), name)

    def _name(
        self, cleaning: Cleaning, made: Rewritten, read_bytes: int, told: Told, error: StorageError | None
    ) -> None:
        if error is not None or self._cleaning is not cleaning:
            self._committer.background.submit(cleaning.abandon)
            self._failed(cleaning, f"put off: {error}", False, told)
            return
        self._upkeep.submit(lambda: publish(made), partial(self._published, cleaning, made, read_bytes, told))

    def _published(
        self, cleaning: Cleaning, made: Rewritten, read_bytes: int, told: Told, error: StorageError | None
    ) -> None:
        cleaning.ready = None
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
        self._stopped()
        told(Turn(self._cleaning is cleaning, read_bytes))

    def _taken_back(self, cleaning: Cleaning, told: Told, error: StorageError | None) -> None:
        line = f"given up until the next start: {error}" if error is not None else None
        self._failed(cleaning, line, error is not None, told)

    def _conclude(self, cleaning: Cleaning, read_bytes: int, told: Told) -> None:
        self._cleaning = None
        facts = self._reading.facts
        start, end = cleaning.begin.first_dirty, max(cleaning.end, facts.first_dirty)
        over = Pass(start, end, cleaning.whole, cleaning.tally)
        if cleaning.whole:
            self._aborted_gone(cleaning.cleaned_up_to)

        def saved(error: StorageError | None) -> None:
            self._stopped()
            told(Turn(error is None, read_bytes, over if error is None else None))

        self._upkeep.change_facts(facts._replace(first_dirty=end), saved)
