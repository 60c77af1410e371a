"""One pass of compaction, piece by piece. Any thread, one at a time; waits for the disk.

    planning     what is dirty, and is it time?                        -> IDLE when it is not
    noting       the keys of the dirty part, as many as fit            -> MORE
    rewriting    group by group, from the oldest on                    -> MORE; READY when one is to take its place
    over                                                               -> OVER: records below `end` are clean

Keys that do not fit the memory end the noting: the pass then cleans up to the first record that did not fit, and the
next one goes on from there. Groups are replaced in order, so a tombstone gets its horizon no sooner than what it covers
has gone; and `end` counts only after the last group, so a pass that is cut short is done again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple

from tidelog.log.compaction.plan import Dirt, Piece, find_dirt, in_groups, is_due
from tidelog.log.compaction.rewrite import Rewrite, Rewritten, discard
from tidelog.log.compaction.verdicts import Verdicts
from tidelog.log.compaction.window import Window, read_window
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.index import NO_TIMESTAMP, BatchStart
from tidelog.log.open_files import OpenFiles
from tidelog.log.producers import ProducerState
from tidelog.log.reading import Reading
from tidelog.log.segment import Name, Segment, Step
from tidelog.log.settings import NO_LAG, LogSettings
from tidelog.log.transactions import Aborted
from tidelog.record.compacting import BYTES_PER_KEY, CompactionRule, KeyMap, filter_records, note_keys


class CleaningOutcome(Enum):
    IDLE = "idle"
    MORE = "more"
    READY = "ready"
    OVER = "over"


class Beginning(NamedTuple):
    """What the loop's thread knows when a pass begins. `stable_up_to` is the last stable offset."""

    segments: tuple[Segment, ...]
    ends: tuple[int, ...]  # the offset behind each
    first_dirty: int
    stable_up_to: int
    producers: Mapping[int, ProducerState]
    aborted: list[Aborted]
    named: Collection[tuple[int, int]]  # markers, by producer and offset, of transactions that clients may be told of
    settings: LogSettings
    now_ms: int
    key_bytes: int


class CleaningTally(NamedTuple):
    """What a pass has done so far."""

    read_bytes: int = 0
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    keyless: int = 0
    unreadable: int = 0


class Cleaning:
    def __init__(self, reading: Reading, open_files: OpenFiles, begin: Beginning) -> None:
        self.begin = begin
        self.tally = CleaningTally()
        self.ready: Rewritten | None = None
        self.end = 0  # when it is over: the first offset that is still dirty
        self.cleaned_up_to = 0  # everything below has been written anew, but for damaged segments
        self.whole = True  # no segment was left out
        self._reading = reading
        self._open_files = open_files
        self._epochs = reading.facts.epochs
        # Those of the pass by their number; one that was written anew is let go of, or its file would take room.
        self._segments: dict[int, Segment] = {}
        self._pieces: list[Piece] = []  # and what is known of them
        self._dirt: Dirt | None = None
        self._keys: KeyMap | None = None
        self._noted = BatchStart(0, 0)  # in segment number _number
        self._number = 0
        self._groups: list[range] = []
        self._verdicts: Verdicts | None = None
        self._rewrite: Rewrite | None = None
        self._at = 0  # which of its old segments,
        self._place = BatchStart(0, 0)  # and where in it

    def run(self, max_bytes: int) -> CleaningOutcome:
        """Goes on for about so many bytes. BadBatch when a segment turns out to be damaged."""
        self.ready = None
        if self._dirt is None and not self._plan():
            return CleaningOutcome.IDLE
        stop = self.tally.read_bytes + max_bytes
        while self.tally.read_bytes < stop:
            if self._number < len(self._pieces):
                self._note_some()
            elif self._rewrite is None and not self._next_group():
                return CleaningOutcome.OVER
            elif self._write_some():
                return CleaningOutcome.READY
        return CleaningOutcome.MORE

    def abandon(self) -> None:
        if self._rewrite is not None:
            self._rewrite.abandon()
            self._rewrite = None
        if self.ready is not None:
            discard(self.ready)
            self.ready = None

    # Planning ---------------------------------------------------------------------------------------------------------

    def _plan(self) -> bool:
        begin = self.begin
        pieces = self._find_pieces()
        dirt = find_dirt(pieces, begin.first_dirty, begin.stable_up_to, begin.settings, begin.now_ms)
        segments = begin.segments[: dirt.pieces]
        if not is_due(dirt, self._oldest(dirt), begin.settings, begin.now_ms):
            return False
        self._dirt, self._segments = dirt, dict(enumerate(segments))
        self.begin = begin._replace(segments=())
        self._pieces = pieces[: dirt.pieces]
        self.whole = not any(piece.damaged for piece in self._pieces)
        self.end = self._pieces[-1].end_offset
        dirty_offsets = self.end - dirt.start
        self._keys = KeyMap(max(1, min(begin.key_bytes // BYTES_PER_KEY, dirty_offsets)))
        self._number = next(number for number, piece in enumerate(self._pieces) if piece.end_offset > dirt.start)
        self._noted = self._before(segments[self._number], dirt.start)
        self._verdicts = Verdicts(begin.aborted, begin.named, begin.producers, begin.now_ms, discard=self.whole)
        return True

    def _find_pieces(self) -> list[Piece]:
        damaged = {hole.segment for hole in self._reading.holes.known}
        pieces = []
        for segment, end_offset in zip(self.begin.segments, self.begin.ends, strict=True):
            latest = NO_TIMESTAMP
            if self.begin.settings.min_compaction_lag_ms > 0 and end_offset > self.begin.first_dirty:
                latest = self._reading.look_up_latest(segment, self.begin.now_ms)
            size = segment.end - HEADER_BLOCK
            pieces.append(Piece(segment.base_offset, end_offset, size, latest, segment.base_offset in damaged))
        return pieces

    def _oldest(self, dirt: Dirt) -> int | None:
        """The earliest time that a dirty segment begins with, if anybody asks for it."""
        if self.begin.settings.max_compaction_lag_ms == NO_LAG:
            return None
        found = []
        for segment, end_offset in zip(self.begin.segments[: dirt.pieces], self.begin.ends, strict=False):
            if end_offset > dirt.start:
                step = next(segment.walk(BatchStart(HEADER_BLOCK, segment.base_offset), segment.end), None)
                if isinstance(step, Step) and step.header.latest > NO_TIMESTAMP:
                    found.append(step.header.latest)
        return min(found, default=None)

    def _before(self, segment: Segment, offset: int) -> BatchStart:
        if offset <= segment.base_offset:
            return BatchStart(HEADER_BLOCK, segment.base_offset)
        return self._reading.index_of(segment).before_offset(offset)

    # Noting keys ------------------------------------------------------------------------------------------------------

    def _note_some(self) -> None:
        assert self._keys is not None
        assert self._dirt is not None
        assert self._verdicts is not None
        segment = self._segments[self._number]
        if self._pieces[self._number].damaged or self._noted.position >= segment.end:
            self._number += 1
            if self._number < len(self._pieces):
                self._noted = BatchStart(HEADER_BLOCK, self._segments[self._number].base_offset)
            else:
                self._begin_groups()
            return
        window = self._window(segment, self._noted)
        full = note_keys(self._keys, window.data, self._verdicts.skips(window.headers), self._dirt.start)
        self._noted = window.end
        if full >= 0:
            # Between two batches, so that all tombstones of one have the same horizon; if need be, within the first.
            batch = next(header for header in window.headers if header.next_offset > full)
            self.end = batch.base_offset if batch.base_offset > self._dirt.start else full
            self._begin_groups()

    def _window(self, segment: Segment, start: BatchStart) -> Window:
        window = read_window(segment, start, self._epochs)
        self.tally = self.tally._replace(read_bytes=self.tally.read_bytes + len(window.data))
        return window

    def _begin_groups(self) -> None:
        """Segments with a record below `end`, and those only."""
        pieces = [piece for piece in self._pieces if piece.base_offset < self.end]
        self.cleaned_up_to = pieces[-1].end_offset
        self._groups = in_groups(pieces, self.begin.settings.segment_bytes)
        self._number = len(self._pieces)

    # Writing segments anew --------------------------------------------------------------------------------------------

    def _next_group(self) -> bool:
        if not self._groups:
            return False
        group = self._groups.pop(0)
        old = [self._segments.pop(number) for number in group]
        generation = 1 + max(segment.generation for segment in self._reading.segments)
        name = Name(old[0].base_offset, self._pieces[group.stop - 1].end_offset, generation)
        interval = self.begin.settings.index_interval_bytes
        files = old[0].files
        self._rewrite = Rewrite(files, self._open_files, old, name, interval, self.begin.now_ms)
        self._at, self._place = 0, BatchStart(HEADER_BLOCK, old[0].base_offset)
        return True

    def _write_some(self) -> bool:
        """True: the group is written, and is to take its place."""
        assert self._keys is not None
        assert self._verdicts is not None
        rewrite = self._rewrite
        assert rewrite is not None
        if copied := rewrite.catch_up():
            self.tally = self.tally._replace(read_bytes=self.tally.read_bytes + copied)
            return False
        segment = rewrite.old[self._at]
        if self._place.position >= segment.end:
            self._at += 1
            if self._at < len(rewrite.old):
                self._place = BatchStart(HEADER_BLOCK, rewrite.old[self._at].base_offset)
                return False
            return self._finish(rewrite)
        window = self._window(segment, self._place)
        filtered = filter_records(self._keys, window.data, self._verdicts.of(window.headers), self._rule(), rewrite.gap)
        rewrite.put(window.data, filtered)
        self._place = window.end
        tally = self.tally
        self.tally = tally._replace(
            records_before=tally.records_before + filtered.seen,
            records_after=tally.records_after + filtered.left,
            keyless=tally.keyless + filtered.keyless,
            unreadable=tally.unreadable + filtered.unreadable,
        )
        return False

    def _rule(self) -> CompactionRule:
        begin = self.begin
        return CompactionRule(self.end, begin.now_ms, begin.now_ms + begin.settings.delete_retention_ms, self.whole)

    def _finish(self, rewrite: Rewrite) -> bool:
        self._rewrite = None
        try:
            self.ready = rewrite.finish()
        except OSError:
            rewrite.abandon()
            raise
        before = sum(segment.end for segment in rewrite.old)
        after = self.ready.new.end if self.ready is not None else before
        self.tally = self.tally._replace(
            bytes_before=self.tally.bytes_before + before, bytes_after=self.tally.bytes_after + after
        )
        return self.ready is not None
