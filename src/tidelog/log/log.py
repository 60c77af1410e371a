"""One partition: appends, visibility, reads. `Log.open` brings it back from its folder; everything else here is memory.

The way of a record, and who has it:

    appending.py     a batch gets its offset, is noted, and is queued; undone if the disk says no
    commit.py        the committer's threads write it (tail.py) and sync it, with those of other partitions
    visibility.py    what is synced is visible: whoever waits for it is called, readers may have it
    reading.py       it is found by offset or by time, and leaves as a slice of its file
    old_records.py   retention deletes it, or compaction; upkeep.py does the work on the folder
    loading.py       after the next start it is found again (recovery.py), when the partition is first used

The loop's thread owns a log and calls everything but `read`, `offset_at`, `max_timestamp`, `load` and `scrub`, which
any thread may call. The offsets, and who moves them:

    start_offset      retention and delete_before: the first offset that can be read
    high_watermark    the committer, through visibility.py: everything below it is durable and visible
    end_offset        `append`: the next offset to be given

and `last_stable_offset`, below which no transaction is open: it moves with the high watermark, over visible markers.

A log that is opened with a clean mark, or without waiting, touches no file before it is first used (`loaded`); whoever
does not want to wait calls `load` in another thread. Without a mark its offsets are not `known` before that. After a
failed sync a log is `offline` until the next start: it is read as before and takes no appends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.errors import OffsetOutOfRange, OutOfOrderSequence, StaleProducerEpoch, StorageError
from tidelog.log import identity as identity_file
from tidelog.log.appending import Appended, Appending
from tidelog.log.clean_mark import NO_POSITION, CleanMark
from tidelog.log.commit import Committer
from tidelog.log.durability import Durability
from tidelog.log.ends import End
from tidelog.log.epochs import end_offset_for, epoch_at
from tidelog.log.facts import Hole
from tidelog.log.files import Buffer, Files
from tidelog.log.identity import Identity
from tidelog.log.loading import Loading
from tidelog.log.old_records import OldRecords
from tidelog.log.pending import Done, Release
from tidelog.log.producers import ProducerState, find_duplicate
from tidelog.log.reading import Reading
from tidelog.log.record_times import TIMES_BYTES_MAX
from tidelog.log.recovery import NOTHING_DONE, Recovered, RecoveryReport
from tidelog.log.retention import SegmentFacts
from tidelog.log.scrub import Scrub, Scrubbed
from tidelog.log.settings import LogSettings
from tidelog.log.slice import Cold, Slice
from tidelog.log.tail import Tail
from tidelog.log.transactions import AbortedColumns, Stable
from tidelog.log.upkeep import Upkeep, nobody_waits
from tidelog.log.visibility import Visibility
from tidelog.record.codec import peek
from tidelog.record.compacting import empty_batch
from tidelog.record.header import BatchHeader

if TYPE_CHECKING:
    from tidelog.log.backlog import Unread
    from tidelog.log.compaction.compactor import Told
    from tidelog.log.excising import Told as ExcisionTold

KEY_BYTES = 128 << 20


class Log:
    """A log that has not been used is small: most of its parts are made by `_install`, when it is loaded."""

    __slots__ = (
        "_appending",
        "_committer",
        "_durability",
        "_files",
        "_identity",
        "_loading",
        "_old",
        "_reading",
        "_scrub",
        "_tail",
        "_upkeep",
        "_visibility",
        "_waiters",
        "folder",
        "high_watermark",
        "leader_epoch",
        "loaded",
        "offline",
        "on_deleted",
        "on_lost",
        "on_recovered",
        "on_trouble",
        "on_visible",
        "recovery",
        "settings",
        "start_offset",
    )

    def __init__(
        self, folder: str, files: Files, settings: LogSettings, committer: Committer, identity: Identity | None = None
    ) -> None:
        """`identity` says whose the folder is, and is written into it; None leaves what is there."""
        self.folder = folder
        self.settings = settings
        self.start_offset = 0
        self.high_watermark = 0
        self.leader_epoch = 0
        self.offline: StorageError | None = None
        self.recovery = NOTHING_DONE
        self.on_visible: Callable[[], None] | None = None  # called when the high watermark has moved
        self.on_trouble: Callable[[str], None] | None = None  # called with a line for the broker's log
        self.on_lost: Callable[[StorageError], None] | None = None  # called when files of it are found to be gone
        self.on_recovered: Callable[[RecoveryReport], None] | None = None  # called once, when it is loaded
        self.on_deleted: Callable[[int], None] | None = None  # called when retention has deleted as many segments
        self.loaded = False
        self._files = files
        self._committer = committer
        self._identity = identity
        self._loading = Loading()

    @classmethod
    def open(
        cls,
        folder: str,
        files: Files,
        settings: LogSettings,
        committer: Committer,
        *,
        clean: CleanMark | None = None,
        end: End | None = None,
        wait: bool = True,
        identity: Identity | None = None,
    ) -> Log:
        """`end` is what it must have at least, known from elsewhere: MissingRecords when it has less."""
        log = cls(folder, files, settings, committer, identity)
        log._loading.end = end
        if clean is None and wait:
            log.load()
        elif clean is not None:
            log._loading.mark = clean
            log.start_offset, log.leader_epoch = clean.start_offset, clean.leader_epoch
            log.high_watermark = clean.end_offset
        return log

    @property
    def known(self) -> bool:
        """Whether the offsets, the epoch and the size can be believed."""
        return self.loaded or (self._loading.mark is not None and self._loading.missing is None)

    @property
    def is_short(self) -> bool:
        """Whether files of it are missing, so that it could not be loaded."""
        return self._loading.missing is not None

    def load(self) -> None:
        """Brings the partition back from its folder, if that has not been done. Any thread; waits for the disk."""
        with self._loading.lock:
            if self.loaded:
                return
            told = self.trouble, self.lost
            found = self._loading.find(self.folder, self._files, self._committer, self.settings, *told)
            self._install(found)
            self.loaded = True
            self._committer.moved.add(self._tail)
            self._committer.tell(self._tell_loaded)

    def _install(self, found: Recovered) -> None:
        committer, extent = self._committer, found.extent
        self._reading = reading = Reading(self.folder, committer.index_cache, self._found_hole)
        reading.interval = self.settings.index_interval_bytes
        reading.facts, reading.segments, reading.visible = found.facts, found.segments, extent
        reading.holes.known = found.facts.holes
        self._scrub = Scrub(reading)
        self._tail = tail = Tail(self._files, self.folder, extent, found.slot_sequence)
        tail.identity = self._identity
        tail.found(recorded=found.recorded)
        if not found.recorded:
            committer.note_idle(tail)
        self._appending = Appending(self.folder, committer, reading, tail, self.settings, found)
        plan = self._appending.plan_at_end(extent.segment) if extent is not None else None
        self._upkeep = Upkeep(self.folder, committer, reading, self.trouble)
        self._upkeep.begin(plan)
        self._durability = Durability(tail, reading, self._upkeep)
        self._old = OldRecords(self, committer, reading, self._appending, self._upkeep)
        parts = reading, self._appending, self._upkeep, self._durability, self._old
        self._visibility = tail.owner = Visibility(self, *parts)
        self._waiters = self._visibility.waiters
        self.recovery, self.leader_epoch = found.report, found.facts.epochs[-1].epoch
        first = found.segments[0].base_offset if found.segments else 0
        self.start_offset = max(found.facts.start_offset, first)
        self.high_watermark = self._appending.end_offset
        if plan is not None and max(found.saved.offset, 0) < plan.segment.base_offset:
            self._upkeep.save(plan)
        if extent is not None:
            self._write_identity(found.names)

    def _write_identity(self, names: Sequence[str]) -> None:
        """Where the folder does not say whose it is, as those of older versions, or says it as it was."""
        identity, files, folder = self._identity, self._files, self.folder
        if identity is None:
            return
        if identity_file.IDENTITY_NAME not in names:
            self._upkeep.submit(lambda: identity_file.put(files, folder, identity, durable=False), nobody_waits)
        elif not identity_file.says(identity_file.load(files, folder), identity):
            self._upkeep.submit(lambda: identity_file.save(files, folder, identity), nobody_waits)

    def _tell_loaded(self) -> None:
        self.update_settings(self.settings)  # they may have changed meanwhile
        if self.on_recovered is not None:
            self.on_recovered(self.recovery)

    # Appending --------------------------------------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        return self._appending.end_offset if self.loaded else self.high_watermark

    @property
    def producers(self) -> Mapping[int, ProducerState]:
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

    @property
    def stable_end(self) -> int:
        """The same, with what is on its way to the disk. It must be loaded."""
        return max(min(self.end_offset, self._appending.transactions.first_open), self.start_offset)

    def stable(self) -> Stable:
        """How far committed records can be read, and what of that was aborted; to be asked for before reading."""
        offset = self.last_stable_offset
        return Stable(offset, self.high_watermark, AbortedColumns(self._appending.transactions.aborted.blocks))

    def when_visible(self, offset: int, done: Done) -> None:
        """Calls `done`: with None when the high watermark has reached `offset`, with the error if it will not."""
        if self.high_watermark >= offset:
            done(None)
        elif self.offline is not None:
            done(self.offline)
        else:
            self.load()
            self._waiters.add(offset, done)

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

    def offset_at(self, timestamp_ms: int, most: int = TIMES_BYTES_MAX) -> tuple[int, int] | None:
        """The first visible record at or after a time, as (offset, timestamp); `most` bytes are decoded for it."""
        self.load()
        return self._reading.offset_at(timestamp_ms, self.start_offset, most)

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
        from tidelog.log.backlog import find_unread

        self.load()
        return find_unread(self._reading, self.start_offset, offset, now_ms)

    def kept_from(self, records: int | None, size: int | None, ms: int | None, now_ms: int) -> int:
        """The first offset from which on there is no more than that many, and nothing older; any thread, waits."""
        from tidelog.log.backlog import Most, kept_from

        self.load()
        return kept_from(self._reading, self.start_offset, Most(records, size, ms), now_ms)

    def has(self, header: BatchHeader) -> bool:
        """Whether this batch of an idempotent producer is here already. It must be loaded."""
        if header.producer_id < 0:
            return False
        try:
            return find_duplicate(self._appending.producers.get(header.producer_id), header) is not None
        except (OutOfOrderSequence, StaleProducerEpoch):
            return False  # an append says so

    def epoch_at(self, offset: int) -> int:
        self.load()
        return epoch_at(self._reading.facts.epochs, offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """KIP-320: the largest known epoch up to `epoch`, and the offset where it ended; (-1, -1) if unheard of."""
        self.load()
        return end_offset_for(self._reading.facts.epochs, epoch, self.high_watermark)

    @property
    def size_bytes(self) -> int:
        if self.loaded:
            return sum(segment.end for segment in self._reading.segments)
        return self._loading.mark.size_bytes if self._loading.mark is not None else 0

    @property
    def holes(self) -> tuple[Hole, ...]:
        return self._reading.holes.known if self.loaded else ()

    def scrub(self, max_bytes: int) -> Scrubbed:
        """Checks some more of what is visible."""
        self.load()
        return self._scrub.run(max_bytes)

    def segments(self) -> list[SegmentFacts]:
        self.load()
        return self._reading.segment_facts()

    # Old records ------------------------------------------------------------------------------------------------------

    def apply_retention(self, now_ms: int) -> int:
        """Deletes what has had its time, and says how many segments; of what must be looked up, later by itself."""
        if self.loaded:
            return self._old.retain(now_ms)
        self._committer.background.submit(lambda: self._load_and_look_up(now_ms))
        return 0

    def forget_producers(self, now_ms: int) -> None:
        """Those who have not written for `producer_expiration_ms`. Of a log that is not loaded nothing is in memory."""
        if self.loaded:
            self._appending.forget_producers(now_ms - self.settings.producer_expiration_ms)

    def _load_and_look_up(self, now_ms: int) -> None:
        with suppress(StorageError):  # which was told
            self.load()
            self._old.look_up(now_ms)

    def hide_before(self, offset: int) -> None:
        """Readers see nothing below it from now on; `delete_before` is to follow, and a crash before that undoes it."""
        self.start_offset = max(self.start_offset, min(offset, self.high_watermark))

    def delete_before(self, offset: int, done: Done = nobody_waits) -> None:
        """Moves the start offset up to `offset`, and deletes the segments below it; `done` when that is durable."""
        self.load()
        self._old.delete_before(offset, done)

    @property
    def may_be_dirty(self) -> bool:
        """Whether there is anything to compact that has not been; it may still be too early for it."""
        return self.loaded and self._old.may_be_dirty

    def compact(self, now_ms: int, max_bytes: int, told: Told, key_bytes: int = KEY_BYTES) -> None:
        """Some compaction, in the background, if it is due, with so much memory for keys; `told` is called here."""
        if self.loaded:
            self._old.compact(now_ms, max_bytes, told, key_bytes)
            return
        from tidelog.log.compaction.compactor import NOTHING_TO_DO

        told(NOTHING_TO_DO)

    def excise(self, offsets: Sequence[int], now_ms: int, told: ExcisionTold) -> None:
        """Takes records out for good (excising.py): offsets in order, each once; `told` when it is durable."""
        self.load()
        self._old.excise(offsets, now_ms, told)

    # Its life ---------------------------------------------------------------------------------------------------------

    def _found_hole(self, hole: Hole) -> None:
        self._committer.tell(self._upkeep.remember, hole)

    def trouble(self, line: str) -> None:
        if self.on_trouble is not None:
            self.on_trouble(line)

    def lost(self, error: StorageError) -> None:
        """Files of it are gone: it is offline for that."""
        if self.on_lost is not None:
            self.on_lost(error)

    def update_settings(self, settings: LogSettings) -> None:
        self.settings = settings
        if self.loaded:
            self._appending.settings = settings
            self._reading.interval = settings.index_interval_bytes
            self._durability.follow(settings.durable, self.high_watermark)

    def identify(self, identity: Identity) -> bool:
        """Its topic is another one now. Whether the folder is there, and should be told: not done here."""
        self._identity = identity
        if self.loaded:
            self._tail.identity = identity
        return self.loaded and self._appending.is_begun

    def hold_until_decided(self, decided_in: Log) -> None:
        """Nothing is written to its folder, which is not there yet, before what made its topic is on disk."""

        def decided(error: StorageError | None) -> None:
            self._appending.let_go(to_disk=error is None)
            if error is not None:
                self._visibility.write_failed(None, error)

        self._appending.hold()
        decided_in.when_visible(decided_in.end_offset, decided)

    def repair(self, *, skip: bool) -> tuple[Hole, ...]:
        """The holes that readers stop at; with `skip` they pass them from now on, and the file of facts says so.

        Behind a hole at the end comes a batch without records: who reads to the end would wait there for ever.
        """
        self.load()
        if not skip:
            return tuple(hole for hole in self.holes if not hole.passed)
        passed, end = self._upkeep.pass_holes(), self.end_offset
        if passed and passed[-1].end_offset == end:
            batch = empty_batch(end, end + 1, self.leader_epoch)
            self.append(batch, peek(batch), 0)  # it has no records, and so no time
        return passed

    def batches_in(self, hole: Hole) -> int | None:
        """How many batches a hole has taken, if what is left of them says so. Any thread; waits for the disk."""
        return self._reading.batches_in(hole)

    def mark(self) -> CleanMark:
        """Where it ends now, also what is still on its way to the disk. It must be known."""
        if not self.loaded:
            assert self._loading.mark is not None, "it must be loaded to know"
            return self._loading.mark
        segments = self._reading.segments
        position = segments[-1].end if segments else NO_POSITION
        return CleanMark(self.start_offset, self.end_offset, self.leader_epoch, self.size_bytes, position)

    def close(self) -> CleanMark | None:
        """After the committer has stopped: leaves the folder so that the next start need not look at it.

        Nothing is synced here: the mark counts only once it is itself on the disk, behind a sync of everything. None
        when the partition must be recovered.
        """
        if not self.loaded:
            return self._loading.mark  # None: nobody has looked at it
        extent = self._reading.visible
        if self.offline is not None or self.end_offset != self.high_watermark:
            return None
        if extent is not None:
            saved = self._appending.saved_offset == self.end_offset
            try:
                self._upkeep.close(None if saved else self._appending.plan_at_end(extent.segment))
                self._tail.close()
            except OSError:
                return None
        return self.mark()

    def destroy(self, done: Done = nobody_waits) -> None:
        """The partition is deleted, with its folder."""
        self.offline = StorageError("the partition was deleted")
        if not self.loaded:
            nothing = Reading(self.folder, self._committer.index_cache, self._found_hole)
            Upkeep(self.folder, self._committer, nothing, self.trouble).destroy(done)
            return
        self._tail.offline = True
        self._visibility.went_offline(self.offline)
        self._upkeep.destroy(done)
