"""One partition: appends, visibility, reads. `Log.open` brings it back from its folder; everything else here is memory.

The loop's thread owns a log and calls everything but `read`, `offset_at`, `max_timestamp`, `load` and `scrub`, which
any thread may call. The offsets, and who moves them:

    start_offset      retention and delete_before: the first offset that can be read
    high_watermark    the committer (through `committed`): everything below it is durable and visible
    end_offset        `append`: the next offset to be given

and `last_stable_offset`, below which no transaction is open: it moves with the high watermark, over visible markers.

An append is bookkeeping (appending.py). Nothing of it is visible until the committer says so through `committed`; when
it says `write_failed`, the log becomes what it was before, as if the appends had never been.

A log that is opened with a clean mark, or without waiting, touches no file before it is first used (`loaded`); whoever
does not want to wait for that calls `load` in another thread. Without a mark its offsets are not `known` before that.
After a failed sync a log is `offline`: it is read as before and takes no appends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import OfflineError, OffsetOutOfRange, StorageError
from tidelog.log.appending import Appended, Appending
from tidelog.log.commit import Committer, storage_error
from tidelog.log.epochs import end_offset_for, epoch_at
from tidelog.log.facts import NO_FACTS, Hole
from tidelog.log.files import Buffer, Files
from tidelog.log.index import Boundary
from tidelog.log.pending import Done, Release, Waiters
from tidelog.log.producers import Producer
from tidelog.log.reading import Reading
from tidelog.log.recovery import Recovered, Report, nothing_found, recover
from tidelog.log.retention import SegmentFacts, expired, is_old
from tidelog.log.scrub import Scrub, Scrubbed
from tidelog.log.settings import FOREVER, LogSettings
from tidelog.log.slice import Cold, Slice
from tidelog.log.tail import Extent, Tail
from tidelog.log.transactions import Aborted, AbortedColumns, Stable
from tidelog.log.upkeep import Upkeep, nobody_waits
from tidelog.record.header import BatchHeader

if TYPE_CHECKING:
    from tidelog.log.compaction.compactor import Compactor, Told
    from tidelog.log.unread import Unread

NO_POSITION = -1
NOTHING_DONE = Report()
LOAD_AGAIN_S = 5.0
KEY_BYTES = 128 << 20


class CleanMark(NamedTuple):
    """What a clean stop leaves, so that the next start need not look: plain numbers, fit for JSON."""

    start_offset: int
    end_offset: int
    leader_epoch: int
    size_bytes: int
    position: int  # of the end, in the last segment; -1 when there is none


class Log:
    """A log that has not been used is small: most of its parts are made by `_prepare`, when it is loaded."""

    __slots__ = (
        "_appending",
        "_clean",
        "_committer",
        "_compactor",
        "_durability_pending",
        "_files",
        "_load_again",
        "_load_error",
        "_loading",
        "_reading",
        "_refusing",
        "_scrub",
        "_tail",
        "_upkeep",
        "_waiters",
        "folder",
        "high_watermark",
        "leader_epoch",
        "loaded",
        "offline",
        "on_deleted",
        "on_recovered",
        "on_trouble",
        "on_visible",
        "recovery",
        "settings",
        "start_offset",
    )

    def __init__(self, folder: str, files: Files, settings: LogSettings, committer: Committer) -> None:
        self.folder = folder
        self.settings = settings
        self.start_offset = 0
        self.high_watermark = 0
        self.leader_epoch = 0
        self.offline: StorageError | None = None
        self.recovery = NOTHING_DONE
        self.on_visible: Callable[[], None] | None = None  # called when the high watermark has moved
        self.on_trouble: Callable[[str], None] | None = None  # called with a line for the broker's log
        self.on_recovered: Callable[[Report], None] | None = None  # called once, when it is loaded
        self.on_deleted: Callable[[int], None] | None = None  # called when retention has deleted as many segments
        self.loaded = False
        self._files = files
        self._committer = committer
        self._clean: CleanMark | None = None
        self._loading = threading.Lock()
        self._load_error: StorageError | None = None
        self._refusing = False
        self._load_again = 0.0
        self._durability_pending = False

    def _prepare(self) -> None:
        self._reading = Reading(self.folder, self._committer.index_cache, self._found_hole)
        self._upkeep = Upkeep(self.folder, self._committer, self._reading, self._trouble)
        self._scrub = Scrub(self._reading)
        self._compactor: Compactor | None = None
        self._waiters = Waiters()
        self._begin(nothing_found(NO_FACTS))

    @classmethod
    def open(
        cls,
        folder: str,
        files: Files,
        settings: LogSettings,
        committer: Committer,
        *,
        clean: CleanMark | None = None,
        wait: bool = True,
    ) -> Log:
        log = cls(folder, files, settings, committer)
        if clean is None and wait:
            log.load()
        elif clean is not None:
            log._clean = clean
            log.start_offset, log.leader_epoch = clean.start_offset, clean.leader_epoch
            log.high_watermark = clean.end_offset
        return log

    @property
    def known(self) -> bool:
        """Whether the offsets, the epoch and the size can be believed."""
        return self.loaded or self._clean is not None

    def load(self) -> None:
        """Brings the partition back from its folder, if that has not been done. Any thread; waits for the disk.

        A disk that refuses is left alone for a while: asking it may take long, and everybody who asks would wait.
        """
        with self._loading:
            if self.loaded:
                return
            if self._load_error is not None and monotonic() < self._load_again:
                raise self._load_error
            self._prepare()
            clean = self._clean
            mark = Boundary(clean.position, clean.end_offset) if clean is not None else None
            try:
                found = recover(self.folder, self._files, self._committer.open_files, self.settings, mark)
            except OSError as error:
                self._load_error, self._load_again = storage_error(error), monotonic() + LOAD_AGAIN_S
                raise self._load_error from error
            if clean is not None and clean.end_offset > (found.extent.offset if found.extent is not None else 0):
                raise StorageError(
                    f"{self.folder} was left with offsets up to {clean.end_offset} and has them no more;"
                    " restore the data folder from a backup"
                )
            self._install(found)
            self.loaded = True
            self._committer.tell(self._tell_loaded)

    def _tell_loaded(self) -> None:
        self._follow_durability()
        if self.on_recovered is not None:
            self.on_recovered(self.recovery)

    def _install(self, found: Recovered) -> None:
        reading, extent = self._reading, found.extent
        reading.interval = self.settings.index_interval_bytes
        reading.facts, reading.segments, reading.visible = found.facts, found.segments, extent
        reading.holes.known = found.facts.holes
        self.recovery = found.report
        self.leader_epoch = found.facts.epochs[-1].epoch
        first = found.segments[0].base_offset if found.segments else 0
        self.start_offset = max(found.facts.start_offset, first)
        self._begin(found)
        self.high_watermark = self._appending.end_offset
        plan = self._appending.plan_at_end(extent.segment) if extent is not None else None
        self._upkeep.begin(plan)
        if plan is not None and max(found.saved.offset, 0) < plan.segment.base_offset:
            self._upkeep.save(plan)

    def _begin(self, found: Recovered) -> None:
        tail = Tail(self, self._files, self.folder, found.extent, found.slot_sequence)
        self._tail = tail
        self._appending = Appending(self.folder, self._committer, self._reading, tail, self.settings, found)

    # Appending --------------------------------------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        return self._appending.end_offset if self.loaded else self.high_watermark

    @property
    def producers(self) -> Mapping[int, Producer]:
        return self._appending.producers if self.loaded else {}

    def append(self, batch: Buffer, header: BatchHeader, now_ms: int, release: Release | None = None) -> Appended:
        """Gives a checked batch the next offset and queues it. The buffer must stay untouched until `release`."""
        if self.offline is not None:
            raise self.offline
        if not self.loaded:
            self.load()
        return self._appending.append(batch, header, now_ms, release)

    def append_marker(
        self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> Appended:
        """Ends a producer's transaction; a duplicate is visible when everything before it is."""
        if self.offline is not None:
            raise self.offline
        self.load()
        return self._appending.append_marker(producer_id, epoch, commit, coordinator_epoch, now_ms)

    def open_transactions(self) -> Mapping[int, int]:
        """The first offset of each, by producer; also of those that are not visible yet."""
        self.load()
        return self._appending.transactions.open

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended, visibly. Any thread; waits for the disk if it is not loaded."""
        if not self.loaded:
            self.load()
        # In this order: a transaction that begins in between must not be passed over.
        high_watermark = self.high_watermark
        return max(min(high_watermark, self._appending.transactions.first_open), self.start_offset)

    def stable(self) -> Stable:
        """How far committed records can be read, and what of that was aborted; to be asked for before reading."""
        offset = self.last_stable_offset
        return Stable(offset, self.high_watermark, AbortedColumns(self._appending.transactions.aborted.blocks))

    def aborted(self, start: int, stop: int) -> list[Aborted]:
        """The aborted transactions that overlap offsets start to stop, by their first offset. Any thread."""
        return self.stable().aborted_between(start, stop)

    def when_visible(self, offset: int, done: Done) -> None:
        """Calls `done`: with None when the high watermark has reached `offset`, with the error if it will not."""
        if self.high_watermark >= offset:
            done(None)
        elif self.offline is not None:
            done(self.offline)
        else:
            self.load()
            self._waiters.add(offset, done)

    # What the committer says, in the loop's thread --------------------------------------------------------------------

    def committed(self, extent: Extent) -> None:
        offset = extent.offset
        if self.offline is not None:
            return
        self._appending.save_plans(self._upkeep)
        if offset < self.high_watermark:
            return
        if self._refusing and offset > self.high_watermark:
            self._refusing = False
            self._trouble("appends are taken again")
        self._reading.visible = extent
        if self._durability_pending:
            self._follow_durability()
        if offset == self.high_watermark:
            return
        self.high_watermark = offset
        self._appending.visible(offset)
        self._waiters.reach(offset)
        if self.on_visible is not None:
            self.on_visible()

    def write_failed(self, extent: Extent | None, error: StorageError) -> None:
        self._appending.take_back(extent, self.high_watermark)
        self._waiters.fail_above(self.end_offset, error)
        if not self._refusing:  # once, and not for every try of every producer
            self._refusing = True
            self._trouble(f"appends are refused: {error}")

    def went_offline(self, error: StorageError) -> None:
        self.offline = error
        self._abandon_compaction()
        if isinstance(error, OfflineError):  # a partition that was deleted is no trouble
            self._trouble(str(error))
        self._appending.take_back(self._reading.visible, self.high_watermark)
        self._waiters.fail_above(self.high_watermark, error)

    def recover_offline(self, done: Done) -> None:
        """Brings an offline log back from what the disk really has, in another thread; `done` in the loop's."""
        if self.offline is None:
            done(None)
            return

        def work() -> None:
            try:
                for segment in self._reading.segments:
                    self._files.forget(segment.file().fd, 0, 0)
                    segment.close()
                found = recover(self.folder, self._files, self._committer.open_files, self.settings)
            except OSError as error:
                self._committer.tell(done, storage_error(error))
            else:
                self._committer.tell(self._come_back, found, done)

        # Behind what is queued: a folder is not listed while compaction gives one of its files a name.
        self._upkeep.submit(work, nobody_waits)

    def _come_back(self, found: Recovered, done: Done) -> None:
        self._install(found)
        self._follow_durability()
        self.offline = None
        done(None)

    # Reading: any thread ----------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, limit: int | None = None, min_one: bool = True, wait: bool = True
    ) -> Slice | None:
        """Batches from the one with `offset` on, up to `max_bytes` and below `limit`; None when there is nothing yet.

        None also when slow readers hold so many files that no more are opened for readers: ask again.
        The first batch comes whole, however large, unless `min_one` is False. With `wait` False it raises `Cold`
        rather than touch the disk to find the place. HoleError where the bytes are known to be bad.
        """
        if not self.loaded and (offset < self.high_watermark or not self.known):
            if not wait:
                raise Cold
            self.load()
        if offset < self.start_offset or offset > self.end_offset:
            start, end = self.start_offset, self.high_watermark
            raise OffsetOutOfRange(f"offset {offset} is not in {start} to {self.end_offset}", start, end)
        if offset >= self.high_watermark:
            return None
        return self._reading.read(offset, max_bytes, limit, min_one=min_one, wait=wait)

    def offset_at(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The first visible record at or after a time, as (offset, timestamp)."""
        self.load()
        return self._reading.offset_at(timestamp_ms, self.start_offset)

    def max_timestamp(self) -> tuple[int, int] | None:
        """The first visible record with the latest timestamp, as (offset, timestamp)."""
        self.load()
        return self._reading.max_timestamp(self.start_offset)

    def bytes_between(self, start: int, stop: int) -> int:
        """About how many bytes there are from one offset to another, without looking at the disk."""
        if not self.loaded:
            return min(stop - start, 1) * self.size_bytes
        return self._reading.bytes_between(start, stop)

    def unread(self, offset: int, now_ms: int) -> Unread:
        """What there is from an offset on, and how old. Any thread; waits for the disk."""
        from tidelog.log.unread import find_unread

        self.load()
        return find_unread(self._reading, self.start_offset, offset, now_ms)

    def epoch_at(self, offset: int) -> int:
        self.load()
        return epoch_at(self._reading.facts.epochs, offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """KIP-320: the largest known epoch up to `epoch`, and the offset where it ended; (-1, -1) if unheard of."""
        self.load()
        return end_offset_for(self._reading.facts.epochs, epoch, self.high_watermark)

    @property
    def size_bytes(self) -> int:
        if not self.loaded:
            return self._clean.size_bytes if self._clean is not None else 0
        return sum(segment.end for segment in self._reading.segments)

    @property
    def holes(self) -> tuple[Hole, ...]:
        return self._reading.holes.known if self.loaded else ()

    def scrub(self, max_bytes: int) -> Scrubbed:
        """Checks some more of what is visible; waits for the disk."""
        self.load()
        return self._scrub.run(max_bytes)

    def segments(self) -> list[SegmentFacts]:
        """The visible segments, the oldest first."""
        self.load()
        reading = self._reading
        if reading.visible is None:
            return []
        last = reading.visible.segment.base_offset
        return [
            SegmentFacts(segment.base_offset, reading.end_of(segment).offset, segment.end, reading.latest_of(segment))
            for segment in reading.segments
            if segment.base_offset <= last
        ]

    # Housekeeping -----------------------------------------------------------------------------------------------------

    def apply_retention(self, now_ms: int) -> int:
        """Deletes what has had its time, tells `on_deleted`, and says how many segments.

        What must be looked up on the disk is, in the background; then it goes on by itself.
        """
        if not self.loaded:
            self._committer.background.submit(lambda: self._look_up(now_ms))
            return 0
        self._appending.forget_producers(now_ms - self.settings.producer_expiration_ms)
        segments = self.segments()
        if not segments:
            return 0
        count = expired(segments, self.settings, now_ms, self.start_offset)
        if count:
            self.start_offset = max(self.start_offset, segments[count].base_offset)
            self._appending.transactions.prune(self.start_offset)
            self._upkeep.delete(count, self.start_offset, nobody_waits)
            if self.on_deleted is not None:
                self.on_deleted(count)
        if segments[count].max_timestamp is None:
            self._committer.background.submit(lambda: self._look_up(now_ms))
        elif len(segments) == 1 and is_old(segments[0], self.settings, now_ms) and self._appending.idle:
            self._appending.roll(now_ms)
        return count

    @property
    def may_be_dirty(self) -> bool:
        """Whether there is anything to compact that has not been; it may still be too early for it."""
        if not self.loaded or not self.settings.compact or self._reading.visible is None:
            return False
        return self._reading.facts.first_dirty != self.high_watermark

    def compact(self, now_ms: int, max_bytes: int, told: Told, key_bytes: int = KEY_BYTES) -> None:
        """Some compaction, in the background, if it is due; `told` is called here when it is done.

        `key_bytes` bounds the memory for keys.
        """
        from tidelog.log.compaction.compactor import NOTHING_TO_DO, Compactor, Now

        if not self.loaded or self.offline is not None or not self.settings.compact:
            self._abandon_compaction()
            told(NOTHING_TO_DO)
            return
        if self._compactor is None:
            told_of = self._trouble, self._aborted_gone
            self._compactor = Compactor(self._committer, self._reading, self._upkeep, *told_of)
        offsets = self.start_offset, self.high_watermark
        self._compactor.turn(Now(now_ms, *offsets, self._appending, self.settings, key_bytes), max_bytes, told)

    def _aborted_gone(self, offset: int) -> None:
        """No record of a transaction that was aborted below is left, and its marker may go some day."""
        if self._appending.transactions.aborted.remove_below(offset):
            self._appending.plan_snapshot()
            # At once, if nothing is under way: were it known again after a crash, and its marker gone, clients would
            # take what its producer wrote later for aborted.
            self._appending.save_plans(self._upkeep)

    def _abandon_compaction(self) -> None:
        if self.loaded and self._compactor is not None:
            self._compactor.abandon()

    def delete_before(self, offset: int, done: Done = nobody_waits) -> None:
        """Moves the start offset up to `offset`, and deletes the segments below it; `done` when that is durable."""
        self.load()
        if offset > self.high_watermark:
            start, end = self.start_offset, self.high_watermark
            raise OffsetOutOfRange(f"offset {offset} is not in {start} to {end}", start, end)
        if self._tail.synced is None:  # there is no folder yet, and nothing to delete
            done(None)
            return
        self.start_offset = max(offset, self.start_offset)
        self._appending.transactions.prune(self.start_offset)
        whole = [segment for segment in self.segments()[:-1] if segment.end_offset <= self.start_offset]
        self._upkeep.delete(len(whole), self.start_offset, done)

    def _look_up(self, now_ms: int) -> None:
        """In the background: how old the oldest segments are, up to the first that stays. Then retention can go on."""
        try:
            self.load()
            for segment in self._reading.segments[:-1]:
                latest = self._reading.look_up_latest(segment, now_ms)
                if self.settings.retention_ms == FOREVER or now_ms - latest <= self.settings.retention_ms:
                    break
        except (OSError, StorageError) as error:
            self._committer.tell(self._trouble, f"{self.folder}: {error}")
        else:
            self._committer.tell(self._retain_again, now_ms)

    def _retain_again(self, now_ms: int) -> None:
        segments = self.segments()
        if segments and segments[0].max_timestamp is not None and self.offline is None:
            self.apply_retention(now_ms)

    def _found_hole(self, hole: Hole) -> None:
        """Any thread."""
        self._committer.tell(self._upkeep.remember, hole)

    def _trouble(self, line: str) -> None:
        if self.on_trouble is not None:
            self.on_trouble(line)

    def update_settings(self, settings: LogSettings) -> None:
        self.settings = settings
        if self.loaded:
            self._appending.settings = settings
            self._reading.interval = settings.index_interval_bytes
            self._follow_durability()

    def _follow_durability(self) -> None:
        """Acks stop waiting for syncs only after the file of facts says so, for then an unclean stop raises the epoch.

        The other way round the file follows when all that was acked before is synced. Either may have to wait for the
        next commit.
        """
        facts, tail, volatile = self._reading.facts, self._tail, not self.settings.durable
        tail.durable = not (volatile and facts.volatile)
        synced = tail.synced
        self._durability_pending = volatile != facts.volatile
        if not self._durability_pending or synced is None or synced.offset < self.high_watermark:
            return
        self._durability_pending = False

        def saved(error: StorageError | None) -> None:
            if error is None and self._reading.facts.volatile == volatile:  # else the file is being changed again
                self._tail.durable = not volatile

        self._upkeep.change_facts(facts._replace(volatile=volatile), saved)

    def repair(self, *, skip: bool) -> tuple[Hole, ...]:
        """The holes that readers stop at; with `skip` they pass them from now on, and the file of facts says so."""
        self.load()
        if skip:
            return self._upkeep.pass_holes()
        return tuple(hole for hole in self.holes if not hole.passed)

    def mark(self) -> CleanMark:
        """Where it ends now, also what is still on its way to the disk. It must be known."""
        if not self.loaded:
            assert self._clean is not None, "it must be loaded to know"
            return self._clean
        segments = self._reading.segments
        position = segments[-1].end if segments else NO_POSITION
        return CleanMark(self.start_offset, self.end_offset, self.leader_epoch, self.size_bytes, position)

    def close(self) -> CleanMark | None:
        """After the committer has stopped: leaves the folder so that the next start need not look at it.

        Nothing is synced here: the mark counts only once it is itself on the disk, behind a sync of everything. None
        when the partition must be recovered.
        """
        if not self.loaded:
            return self._clean
        extent = self._reading.visible
        if self.offline is not None or self.end_offset != self.high_watermark:
            return None
        if extent is None:
            return CleanMark(self.start_offset, self.end_offset, self.leader_epoch, 0, NO_POSITION)
        try:
            saved = self._appending.saved_offset == self.end_offset
            self._upkeep.close(None if saved else self._appending.plan_at_end(extent.segment))
            self._tail.close()
        except OSError:
            return None
        return CleanMark(self.start_offset, self.end_offset, self.leader_epoch, self.size_bytes, extent.position)

    def destroy(self, done: Done = nobody_waits) -> None:
        """The partition is deleted, with its folder."""
        if not self.loaded:
            self._prepare()
        self._tail.offline = True
        self.went_offline(StorageError(f"partition in {self.folder} was deleted"))
        self._upkeep.destroy(done)
