"""Bringing a partition back from its folder, after a stop of any kind.

All segments but the last were wholly synced before the next one was made. Of the last one, everything up to the *floor*
is known to have been synced: the newest of what its slots, its index file, a snapshot and a clean stop say. Then:

- Up to the floor nothing is ever cut. Headers are walked over from where the index file ends, to bring index and
  producers up to date; a bad one there is a hole, and stays one.
- Above the floor every batch is checked, and the first bad one is cut off with whatever follows. What was cut goes to
  a file `<offset>.cut`. What is kept is written once more and synced: if a sync failed in the life before, its pages
  are clean in memory and not on the disk, and a sync alone would not change that.

The folder is listed once, and only the end of the last segment is read, so the time does not depend on the size of the
log. Every step may be interrupted by another power cut, and is then done again.

Compaction writes segments anew beside the old ones, under names that say which offsets they have. Where both are there,
the new ones count: they were wholly synced before they got their names. The old ones go.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.log import facts as facts_file
from tidelog.log import snapshot
from tidelog.log.checking import check_batches
from tidelog.log.ends import End
from tidelog.log.epochs import Epoch, raised
from tidelog.log.facts import NO_FACTS, Facts, Hole
from tidelog.log.files import TEMPORARY, Files, OpenFile, read_fully, remove_files, write_fully
from tidelog.log.header_block import HEADER_BLOCK, SLOT_AT, Slot, owner_by, pack_block, unpack_block, unpack_slots
from tidelog.log.index import BatchStart, Index
from tidelog.log.index_file import load_index_up_to, walk_over
from tidelog.log.missing import NOTHING, ForeignSegment, check_beginning, check_end
from tidelog.log.names import partition_name
from tidelog.log.open_files import OpenFiles
from tidelog.log.producers import ProducerState, follow
from tidelog.log.segment import CLEANED_SUFFIX, DELETED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, Name, Segment, Step, newest
from tidelog.log.settings import LogSettings
from tidelog.log.tail import FIRST_SLOT, Extent
from tidelog.log.transactions import NO_TRANSACTIONS, PartitionTransactions
from tidelog.record.control import NO_MARKER, Marker, read_marker
from tidelog.record.header import TRANSACTION_BITS, BatchHeader

CUT_SUFFIX = ".cut"
LEFT_OVER = (TEMPORARY, DELETED_SUFFIX, CLEANED_SUFFIX)
COPY_WINDOW = 1 << 20
CUTS_KEPT = 8


class RecoveryReport(NamedTuple):
    """What recovery did beyond reading; all zeros and empty when there was nothing to do."""

    scanned_bytes: int = 0
    cut_bytes: int = 0
    cut_file: str = ""
    cut_reason: str = ""
    holes: tuple[Hole, ...] = ()
    mended: tuple[str, ...] = ()
    raised_epoch: int = -1

    def lines(self) -> list[str]:
        """For the broker's log."""
        told = [f"mended {what}" for what in self.mended]
        if self.cut_bytes:
            told.append(
                f"cut {self.cut_bytes} bytes at its end, kept in {self.cut_file} ({self.cut_reason}): a write that the"
                " stop cut short, or damage to what was acked in the last second before it"
            )
        for hole in self.holes:
            told.append(f"offsets {hole.base_offset} to {hole.end_offset - 1} are damaged ({hole.reason})")
        if self.raised_epoch >= 0:
            told.append(f"leader epoch is now {self.raised_epoch}: after an unclean stop offsets may be used again")
        return told


NOTHING_DONE = RecoveryReport()


class Recovered(NamedTuple):
    """`recorded`: a slot of the last segment says all that there is, so nothing of it is in doubt."""

    segments: tuple[Segment, ...]
    extent: Extent | None
    producers: dict[int, ProducerState]
    transactions: PartitionTransactions
    facts: Facts
    slot_sequence: int
    saved: BatchStart  # of the newest snapshot, or where one would have begun
    recorded: bool
    names: Sequence[str]  # of the files in the folder
    report: RecoveryReport


NOWHERE = 1 << 62
ANYWHERE = BatchStart(NOWHERE, NOWHERE)


def recover(
    folder: str,
    files: Files,
    open_files: OpenFiles,
    settings: LogSettings,
    clean: BatchStart | None = None,
    known: End | None = None,
) -> Recovered:
    """`clean` is where a clean stop left the last segment; `known` is what the partition must have at least."""
    recovery = Recovery(folder, files, open_files, settings)
    try:
        return recovery.run(clean, known)
    except StorageError:
        recovery.let_go()
        raise


def nothing_found(facts: Facts) -> Recovered:
    """A partition without a segment."""
    saved = BatchStart(HEADER_BLOCK, -1)
    return Recovered(
        (), None, {}, PartitionTransactions(NO_TRANSACTIONS), facts, FIRST_SLOT, saved, True, (), NOTHING_DONE
    )


class Recovery:
    """One recovery under way; `recover` is the way in."""

    def __init__(self, folder: str, files: Files, open_files: OpenFiles, settings: LogSettings) -> None:
        self._folder = folder
        self._files = files
        self._open_files = open_files
        self._settings = settings
        self._names: list[str] = []
        self._mended: list[str] = []
        self._holes: list[Hole] = []
        self._producers: dict[int, ProducerState] = {}
        self._transactions = PartitionTransactions(NO_TRANSACTIONS)
        self._now_ms = time.time_ns() // 1_000_000
        self._folded = 0  # batches below this offset are in the producers already

    def run(self, clean: BatchStart | None, known: End | None) -> Recovered:
        segments = self._list()
        self._check_owners(segments, known)
        first = segments[0].base_offset if segments else NOTHING
        facts = self._load_facts(segments)
        check_beginning(self._folder, known, first, 0 if self._mended else facts.start_offset)
        if not segments:
            return nothing_found(facts)
        kept = snapshot.load_newest(self._files, self._folder, self._names)
        segments = self._drop_deleted(segments, min(facts.start_offset, kept.offset if kept is not None else 0))
        last = segments[-1]
        if clean is not None and clean.position != last.end:
            clean = None
        slot = self._read_head(last)
        index, indexed, _ = load_index_up_to(last, ANYWHERE)
        floor = max(_floors(last, slot, kept, clean, indexed))
        self._fold_complete(segments, kept, facts)
        self._walk_to_floor(last, index, indexed, floor, kept, facts)
        end, report = self._check_rest(last, floor, facts)
        check_end(self._folder, known, first, end.offset)
        facts, raised_epoch = self._conclude(facts, end.offset, unclean=clean is None)
        report = report._replace(holes=tuple(self._holes), mended=tuple(self._mended), raised_epoch=raised_epoch)
        sequence = slot.sequence + 1 if slot is not None else FIRST_SLOT
        extent = Extent(last, end.position, end.offset)
        saved = BatchStart(HEADER_BLOCK, -1)
        if kept is not None:
            saved = BatchStart(kept.position if kept.segment == last.base_offset else HEADER_BLOCK, kept.offset)
        transactions = PartitionTransactions(self._transactions.fold())
        transactions.prune(facts.start_offset)
        recorded = slot is not None and slot[1:] == (end.offset, end.position)
        state = self._producers, transactions, facts, sequence, saved, recorded, self._names
        return Recovered(tuple(segments), extent, *state, report)

    def let_go(self) -> None:
        """Of files that are wrong: somebody may put others in their place before the folder is looked at again."""
        for name in self._names:
            if name.endswith(LOG_SUFFIX):
                self._open_files.forget(f"{self._folder}/{name}")

    # The folder -------------------------------------------------------------------------------------------------------

    def _list(self) -> list[Segment]:
        try:
            entries = self._files.list(self._folder)
        except FileNotFoundError:
            return []
        self._names = [entry.name for entry in entries]
        self._remove([name for name in self._names if name.endswith(LEFT_OVER)])
        sizes = {name: entry.size for entry in entries if (name := Name.parse(entry.name)) is not None}
        chosen = newest(sizes)
        if len(chosen) < len(sizes):
            self._files.sync_folder(self._folder)  # the new names must last before the old ones go
            for name in sizes.keys() - set(chosen):
                Segment(self._files, self._open_files, self._folder, name, 0).remove()
        there = set(chosen)
        indexes = {name: Name.parse(name, INDEX_SUFFIX) for name in self._names}
        self._remove([name for name, of in indexes.items() if of is not None and of not in there])
        return [Segment(self._files, self._open_files, self._folder, name, sizes[name]) for name in chosen]

    def _check_owners(self, segments: list[Segment], known: End | None) -> None:
        """Somebody may have moved files: one that was made for another partition is not read as this one's."""
        mine = owner_by(self._folder)
        for segment in segments:
            data = self._files.read(segment.file().fd, HEADER_BLOCK, 0)
            head = unpack_block(data, segment.log_path)
            if mine is not None and head is not None and head.owner not in (None, mine):
                raise ForeignSegment(self._folder, known, segment.log_path, partition_name(*head.owner))

    def _remove(self, names: list[str]) -> None:
        remove_files(self._files, [f"{self._folder}/{name}" for name in names])

    def _drop_deleted(self, segments: list[Segment], needed_from: int) -> list[Segment]:
        """Finishes a deletion that was cut short: a new start offset and a snapshot behind it were saved before it."""
        while len(segments) > 1 and segments[1].base_offset <= needed_from:
            segments[0].remove()
            segments = segments[1:]
        return segments

    def _load_facts(self, segments: list[Segment]) -> Facts:
        if facts_file.FACTS_NAME not in self._names:
            return NO_FACTS
        facts = facts_file.load(self._files, self._folder)
        if facts is not None:
            return facts
        self._mended.append("the file of facts, from the headers of all batches")
        facts = Facts(segments[0].base_offset if segments else 0, not self._settings.durable)
        epochs = [facts.epochs[0]]
        for segment in segments:
            for step in segment.walk(BatchStart(HEADER_BLOCK, segment.base_offset), segment.end):
                if isinstance(step, Step) and step.header.leader_epoch > epochs[-1].epoch:
                    epochs.append(Epoch(step.header.leader_epoch, step.header.base_offset))
        facts = facts._replace(epochs=tuple(epochs))
        facts_file.save(self._files, self._folder, facts)
        return facts

    # The last segment -------------------------------------------------------------------------------------------------

    def _read_head(self, segment: Segment) -> Slot | None:
        """The newest slot. A head that is not good is made anew: the name of the file says what it must be."""
        fd = segment.file().fd
        data = read_fully(self._files, fd, HEADER_BLOCK, 0)
        head = unpack_block(data, segment.log_path)
        good = head is not None and head.base_offset == segment.base_offset
        slot = unpack_slots(data)
        segment.created_ms = head.created_ms if head is not None and good else self._now_ms
        if not good:
            self._mended.append(f"the head of segment {segment.base_offset}")
            fresh = bytes(pack_block(segment.base_offset, segment.created_ms, owner_by(self._folder)))
            if segment.end <= HEADER_BLOCK:  # it was being made when the power went: nothing has been put in it
                data, segment.end = fresh, HEADER_BLOCK
            else:
                data = fresh[: SLOT_AT[0]] + data[SLOT_AT[0] :]
        if not good or slot is None or slot.sequence < FIRST_SLOT:
            self._make_sure(fd, data)
        return unpack_slots(data)

    def _make_sure(self, fd: int, head: bytes) -> None:
        """No commit is recorded in it, so its making may have failed half-way: head and names are synced again."""
        write_fully(self._files, fd, head, 0)
        self._files.sync(fd)
        self._files.sync_folder(self._folder)
        self._files.sync_folder(self._folder.rpartition("/")[0])

    def _fold_complete(self, segments: list[Segment], kept: snapshot.Snapshot | None, facts: Facts) -> None:
        """Brings the producers from the snapshot to the beginning of the last segment."""
        if kept is not None:
            self._producers = dict(kept.producers)
            self._transactions = PartitionTransactions(kept.transactions)
            self._folded = kept.offset
        for segment, following in pairwise(segments):
            start = _fold_start(segment, kept)
            stop = BatchStart(segment.end, following.base_offset)
            if self._folded < stop.offset:
                fold = partial(self._fold, segment)
                self._holes += walk_over(segment, Index(segment.base_offset), start, stop, facts.epochs, fold)

    def _walk_to_floor(
        self,
        last: Segment,
        index: Index,
        indexed: BatchStart,
        floor: BatchStart,
        kept: snapshot.Snapshot | None,
        facts: Facts,
    ) -> None:
        if last.end < floor.position:
            self._mended.append(
                f"the length of segment {last.base_offset}: {floor.position - last.end} synced bytes are missing"
            )
            self._files.truncate(last.file().fd, floor.position)
            self._files.sync(last.file().fd)
            last.end = floor.position
        folded = _fold_start(last, kept)
        interval = self._settings.index_interval_bytes

        def note(position: int, header: BatchHeader) -> None:
            if position >= indexed.position:
                index.note(header.base_offset, position, header.latest, interval)
            self._fold(last, position, header)

        self._holes += walk_over(last, index, min(indexed, folded), floor, facts.epochs, note)
        last.index = index

    def _fold(self, segment: Segment, position: int, header: BatchHeader) -> None:
        """When it was written is not known, only what its records say; taking now for it forgets nobody too early."""
        producer_id = header.producer_id
        if producer_id >= 0 and header.base_offset >= self._folded:
            append_time = header.max_timestamp if header.append_time else -1
            producer = self._producers.get(producer_id)
            kind, by = self._marker(segment, position, header)
            self._producers[producer_id] = follow(producer, header, header.last_offset, self._now_ms, append_time, by)
            if header.attributes & TRANSACTION_BITS:
                self._transactions.apply(header, header.base_offset, kind)

    def _marker(self, segment: Segment, position: int, header: BatchHeader) -> Marker:
        """A marker is the one batch that a fold must look into."""
        if not header.is_control:
            return NO_MARKER
        return read_marker(read_fully(self._files, segment.file().fd, header.size, position))

    def _check_rest(self, last: Segment, floor: BatchStart, facts: Facts) -> tuple[BatchStart, RecoveryReport]:
        """Above the floor: what is good stays and is synced, the rest is cut."""
        file = last.file()
        size = last.end
        last.checked.own_from = last.end = floor.position
        if size == floor.position:
            return floor, NOTHING_DONE
        checked = check_batches(self._files, file.fd, floor, size, facts.epochs, keep_headers=True)
        end = checked.end
        for position, header in checked.headers:
            last.note(header.base_offset, header.size, header.latest, self._settings.index_interval_bytes)
            self._fold(last, position, header)
        report = RecoveryReport(scanned_bytes=size - floor.position)
        if checked.fault is not None:
            name = f"{end.offset:020d}{CUT_SUFFIX}"
            self._save_cut(file, end.position, size, name)
            report = report._replace(cut_bytes=size - end.position, cut_file=name, cut_reason=checked.fault)
            self._files.truncate(file.fd, end.position)
        for position in range(floor.position, end.position, COPY_WINDOW):
            data = read_fully(self._files, file.fd, min(COPY_WINDOW, end.position - position), position)
            write_fully(self._files, file.fd, data, position)
        self._files.sync(file.fd)
        return end, report

    def _save_cut(self, file: OpenFile, position: int, size: int, name: str) -> None:
        """A copy of what is about to be cut, for somebody to look at: a torn write as a rule, which nobody misses."""
        older = sorted(other for other in self._names if other.endswith(CUT_SUFFIX))
        self._remove([name, *older[: -CUTS_KEPT + 1]])
        with suppress(OSError):
            fd = self._files.open(f"{self._folder}/{name}", create=True)
            try:
                for at in range(position, size, COPY_WINDOW):
                    data = read_fully(self._files, file.fd, min(COPY_WINDOW, size - at), at)
                    write_fully(self._files, fd, data, at - position)
                self._files.sync(fd)
            finally:
                self._files.close(fd)
            self._files.sync_folder(self._folder)

    def _conclude(self, facts: Facts, end_offset: int, *, unclean: bool) -> tuple[Facts, int]:
        """Remembers new holes, and raises the epoch where acks did not wait for a sync and the stop was not clean."""
        known = {hole.base_offset for hole in facts.holes}
        self._holes = [hole for hole in self._holes if hole.base_offset not in known]
        raised_epoch = -1
        changed = facts._replace(holes=tuple(sorted([*facts.holes, *self._holes])))
        if facts.volatile and unclean:
            # What was deleted may have been visible and not yet synced: the log cannot begin behind its end.
            start_offset = min(facts.start_offset, end_offset)
            changed = changed._replace(start_offset=start_offset, epochs=raised(facts.epochs, end_offset))
            raised_epoch = changed.epochs[-1].epoch
        if changed != facts:
            facts_file.save(self._files, self._folder, changed)
        return changed, raised_epoch


def _floors(
    last: Segment, slot: Slot | None, kept: snapshot.Snapshot | None, clean: BatchStart | None, indexed: BatchStart
) -> list[BatchStart]:
    """Everything that says how much of the last segment was synced."""
    floors = [BatchStart(HEADER_BLOCK, last.base_offset), indexed]
    if slot is not None:
        floors.append(BatchStart(slot.synced_position, slot.synced_offset))
    if kept is not None and kept.segment == last.base_offset:
        floors.append(BatchStart(kept.position, kept.offset))
    if clean is not None:
        floors.append(clean)
    return floors


def _fold_start(segment: Segment, kept: snapshot.Snapshot | None) -> BatchStart:
    """Where the headers of a segment begin that a snapshot does not have in it, or before that.

    Positions of a snapshot are of the segment as it was first written.
    """
    if kept is not None and kept.segment == segment.base_offset and not segment.generation:
        return BatchStart(kept.position, kept.offset)
    return BatchStart(HEADER_BLOCK, segment.base_offset)
