"""What becomes of records in time: retention deletes them, a client has them deleted, compaction takes some out, and an
excision those that must not be there.

All of it moves the beginning of the log or replaces what lies behind it, and nothing here touches the segment that
grows. The loop's thread only, but for `look_up`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.errors import OffsetOutOfRange, StorageError
from tidelog.log.appending import Appending
from tidelog.log.commit import Committer
from tidelog.log.pending import Done
from tidelog.log.reading import Reading
from tidelog.log.retention import expired, is_old
from tidelog.log.settings import FOREVER
from tidelog.log.upkeep import Upkeep, nobody_waits

if TYPE_CHECKING:
    from tidelog.log.compaction.compactor import Compactor, Told
    from tidelog.log.excising import Told as ExcisionTold
    from tidelog.log.log import Log


class OldRecords:
    __slots__ = ("_appending", "_committer", "_compactor", "_excising", "_log", "_reading", "_upkeep")

    def __init__(self, log: Log, committer: Committer, reading: Reading, appending: Appending, upkeep: Upkeep) -> None:
        self._log = log  # whose start offset moves up here
        self._committer = committer
        self._reading = reading
        self._appending = appending
        self._upkeep = upkeep
        self._compactor: Compactor | None = None
        self._excising = False  # then compaction rests

    # Deleting ---------------------------------------------------------------------------------------------------------

    def retain(self, now_ms: int) -> int:
        """Deletes what has had its time, tells `on_deleted`, and says how many segments.

        What must be looked up on the disk is, in the background; then it goes on by itself.
        """
        log, settings = self._log, self._log.settings
        segments = self._reading.segment_facts()
        if not segments:
            return 0
        count = expired(segments, settings, now_ms, log.start_offset)
        if count:
            self._delete(count, segments[count].base_offset, nobody_waits)
            if log.on_deleted is not None:
                log.on_deleted(count)
        if segments[count].max_timestamp is None:
            self._committer.background.submit(lambda: self.look_up(now_ms))
        elif len(segments) == 1 and is_old(segments[0], settings, now_ms) and self._appending.idle:
            self._appending.roll(now_ms)
        return count

    def look_up(self, now_ms: int) -> None:
        """In the background: how old the oldest segments are, up to the first that stays. Then retention can go on."""
        retention_ms = self._log.settings.retention_ms
        try:
            for segment in self._reading.segments[:-1]:
                latest = self._reading.look_up_latest(segment, now_ms)
                if retention_ms == FOREVER or now_ms - latest <= retention_ms:
                    break
        except (OSError, StorageError) as error:
            self._committer.tell(self._log.trouble, f"{self._log.folder}: {error}")
        else:
            self._committer.tell(self._retain_again, now_ms)

    def _retain_again(self, now_ms: int) -> None:
        segments = self._reading.segment_facts()
        if segments and segments[0].max_timestamp is not None and self._log.offline is None:
            self.retain(now_ms)

    def delete_before(self, offset: int, done: Done) -> None:
        """Moves the start offset up to `offset`, and deletes the segments below it; `done` when that is durable."""
        start, end = self._log.start_offset, self._log.high_watermark
        if offset > end:
            raise OffsetOutOfRange(f"offset {offset} is not in {start} to {end}", start, end)
        if not self._appending.is_begun:  # there is no folder yet, and nothing to delete
            done(None)
            return
        start = max(offset, start)
        whole = [segment for segment in self._reading.segment_facts()[:-1] if segment.end_offset <= start]
        self._delete(len(whole), start, done)

    def _delete(self, count: int, start_offset: int, done: Done) -> None:
        log = self._log
        log.start_offset = max(log.start_offset, start_offset)
        self._appending.transactions.prune(log.start_offset)
        self._upkeep.delete(count, log.start_offset, done)
        self._appending.start_moved()

    # Compacting -------------------------------------------------------------------------------------------------------

    @property
    def may_be_dirty(self) -> bool:
        """Whether there is anything to compact that has not been; it may still be too early for it."""
        if not self._log.settings.compact or self._reading.visible is None:
            return False
        return self._reading.facts.first_dirty != self._log.high_watermark

    def compact(self, now_ms: int, max_bytes: int, told: Told, key_bytes: int) -> None:
        """Some compaction, in the background, if it is due; `told` is called here when it is done."""
        from tidelog.log.compaction.compactor import NOTHING_TO_DO, Compactor, Now

        log = self._log
        if log.offline is not None or not log.settings.compact or self._excising:
            self.abandon_compaction()
            told(NOTHING_TO_DO)
            return
        if self._compactor is None:
            told_of = log.trouble, self.aborted_gone
            self._compactor = Compactor(self._committer, self._reading, self._upkeep, *told_of)
        offsets = log.start_offset, log.high_watermark
        self._compactor.turn(Now(now_ms, *offsets, self._appending, log.settings, key_bytes), max_bytes, told)

    def abandon_compaction(self) -> None:
        if self._compactor is not None:
            self._compactor.abandon()

    def aborted_gone(self, offset: int) -> None:
        """No record of a transaction that was aborted below is left, and its marker may go some day."""
        if self._appending.transactions.aborted.remove_below(offset):
            self._appending.plan_snapshot()
            # At once, if nothing is under way: were it known again after a crash, and its marker gone, clients would
            # take what its producer wrote later for aborted.
            self._appending.save_plans(self._upkeep)

    # Excising ---------------------------------------------------------------------------------------------------------

    def excise(self, offsets: Sequence[int], now_ms: int, told: ExcisionTold) -> None:
        """Takes these records out of every file; `told` is called here when that is durable. One at a time."""
        from tidelog.log.excising import Excising, WantedExcision

        log = self._log
        assert not self._excising, "one excision of a partition follows the other"
        if log.offline is not None:
            told(0, log.offline)
            return
        self._excising = True

        def ended(removed: int, error: StorageError | None) -> None:
            self._excising = False
            told(removed, error)

        wanted = WantedExcision(offsets, now_ms, log.settings.index_interval_bytes)
        parts = self._committer, self._reading, self._upkeep, self._appending
        under_way = Excising(*parts, lambda: log.offline, wanted, ended)
        if self._compactor is None:
            under_way.begin()
        else:
            self._compactor.rest(under_way.begin)
