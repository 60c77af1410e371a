"""What a partition knows of its transactions: a fold over batch headers and markers, as the producers are.

    open       from a producer's first transactional batch to its marker. Readers of committed records stop at the first
               batch of the oldest (the last stable offset): nobody knows yet how it ends.
    committed  nothing is kept.
    aborted    (producer, first offset, offset of the marker) are kept: readers of committed records leave those out.

A partition's loop applies a batch when it is appended (`follow`), and that may be undone (`take_back`) as long as it is
not visible. A transaction whose marker is not visible still counts as open for readers, so `first_open` moves only in
`visible`, and only upward. `first_open` and `aborted` may be read by any thread.

A batch that compaction has emptied begins nothing: no record of it can be read. A marker without an open transaction
ends nothing; so a marker that is written twice does no harm.

Aborted transactions are kept in columns, ABORTED_SIZE bytes each, 27 with all that is around them (a million: 27 MB).
They are let go with their records, by retention, deletion or compaction.

Snapshot, big-endian (the file around it is drawn in snapshot.py):

     0  open         uint32    how many are open,
     4  aborted      uint32    and how many were aborted
     8  open times   int64 producer id, int64 first offset; the oldest first
        aborted times int64 each: the producer ids, then the first offsets, then the offsets of the markers, which
                     go up
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.record.control import ABORT, COMMIT
from tidelog.record.header import BatchHeader

NOTHING_OPEN = 1 << 62
BLOCK = 256  # aborted transactions that are looked at, or let go, together
ABORTED_SIZE = 24
NOT_KNOWN = -1

_COUNTS = struct.Struct(">II")
_OPEN = struct.Struct(">qq")
_COLUMNS = 3
_INT64 = 8
_SWAP = sys.byteorder == "little"


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # of the marker


class AppendChange(NamedTuple):
    """What one append did, to be undone should it fail."""

    next_offset: int
    producer_id: int
    first_offset: int
    began: bool
    aborted: bool


class PartitionTransactions:
    """`follow`, `visible`, `take_back` and `prune`: the loop's thread, or whoever recovers."""

    __slots__ = ("_changes", "aborted", "first_open", "open")

    def __init__(self, begun: FoldedTransactions) -> None:
        self.open = dict(begun.open)  # first offset by producer, the oldest first
        self.aborted = AbortedColumns(begun.blocks)
        self._changes: deque[AppendChange] = deque()  # of what is not visible
        self.first_open = NOTHING_OPEN
        self._find_first()

    def follow(self, header: BatchHeader, offset: int, control: int) -> None:
        """A batch that is not visible yet."""
        change = self.apply(header, offset, control)
        if change is not None:
            self._changes.append(change)
            if change.began and self.first_open == NOTHING_OPEN:
                self.first_open = offset

    def apply(self, header: BatchHeader, offset: int, control: int) -> AppendChange | None:
        """A transactional batch, or a control batch of type `control`, with its first record at `offset`."""
        producer_id, next_offset = header.producer_id, offset + header.last_offset_delta + 1
        first = self.open.get(producer_id)
        if not header.is_control:
            if first is None and header.count:
                self.open[producer_id] = offset
                return AppendChange(next_offset, producer_id, offset, True, False)
        elif first is not None and control in (ABORT, COMMIT):
            del self.open[producer_id]
            aborted = control == ABORT
            if aborted:
                self.aborted.add(Aborted(producer_id, first, offset), next(iter(self.open.values()), next_offset))
            return AppendChange(next_offset, producer_id, first, False, aborted)
        return None

    def visible(self, high_watermark: int) -> None:
        """Everything below is there to stay."""
        changes = self._changes
        if changes and changes[0].next_offset <= high_watermark:
            while changes and changes[0].next_offset <= high_watermark:
                changes.popleft()
            self._find_first()

    def take_back(self, end_offset: int) -> None:
        """Undoes everything above an offset, the last first."""
        changes = self._changes
        if not changes or changes[-1].next_offset <= end_offset:
            return
        while changes and changes[-1].next_offset > end_offset:
            taken = changes.pop()
            if taken.began:
                del self.open[taken.producer_id]
            else:
                self.open[taken.producer_id] = taken.first_offset
                if taken.aborted:
                    self.aborted.take_back()
        self.open = dict(sorted(self.open.items(), key=_first_offset))
        self._find_first()

    def _find_first(self) -> None:
        """As readers see it: what ended by a marker that is not visible is open."""
        first = next(iter(self.open.values()), NOTHING_OPEN)
        for change in self._changes:
            if not change.began and change.first_offset < first:
                first = change.first_offset
        self.first_open = first

    def prune(self, start_offset: int) -> None:
        """Records below are gone, and whom they belonged to is of no interest. Those that are open stay open."""
        self.aborted.prune(start_offset)

    def fold(self) -> FoldedTransactions:
        return FoldedTransactions(dict(self.open), tuple(self.aborted.blocks), len(self.aborted))


class FoldedTransactions(NamedTuple):
    """A state to be written later, by another thread: blocks only grow, so how many to take of them says which."""

    open: Mapping[int, int]
    blocks: tuple[Block, ...]
    aborted: int


NO_TRANSACTIONS = FoldedTransactions({}, (), 0)


class Block:
    """Some aborted transactions in a row, at least one. `lowest` is not above the first offset of any of them.

    `open_after` is the lowest offset that was open after the last of them: whoever ends later has not begun below it.
    """

    __slots__ = ("first_offsets", "last_offsets", "lowest", "open_after", "producer_ids")

    def __init__(self, producer_ids: array[int], first_offsets: array[int], last_offsets: array[int]) -> None:
        self.producer_ids = producer_ids
        self.first_offsets = first_offsets
        self.last_offsets = last_offsets
        self.lowest = min(first_offsets)
        self.open_after = NOT_KNOWN

    def add(self, aborted: Aborted) -> None:
        self.lowest = min(self.lowest, aborted.first_offset)
        self.producer_ids.append(aborted.producer_id)
        self.first_offsets.append(aborted.first_offset)
        self.last_offsets.append(aborted.last_offset)  # the last, because readers look there first

    @property
    def columns(self) -> tuple[array[int], array[int], array[int]]:
        return self.producer_ids, self.first_offsets, self.last_offsets


class AbortedColumns:
    """In order of the markers. Changed by one thread and read by any: a block grows at its end or is replaced."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: tuple[Block, ...]) -> None:
        self.blocks = blocks

    def __len__(self) -> int:
        return sum(len(block.last_offsets) for block in self.blocks)

    def add(self, aborted: Aborted, open_after: int) -> None:
        if self.blocks and len(self.blocks[-1].last_offsets) < BLOCK:
            self.blocks[-1].add(aborted)
        else:
            producer_id, first_offset, last_offset = aborted
            added = Block(array("q", [producer_id]), array("q", [first_offset]), array("q", [last_offset]))
            self.blocks = (*self.blocks, added)
        self.blocks[-1].open_after = open_after

    def take_back(self) -> None:
        """The last one was none."""
        *blocks, last = self.blocks
        if len(last.last_offsets) > 1:
            blocks.append(Block(*(column[:-1] for column in last.columns)))
        self.blocks = tuple(blocks)

    def prune(self, start_offset: int) -> None:
        """Lets go of whole blocks of those who ended below."""
        at = self._block_of(start_offset)
        if at:
            self.blocks = self.blocks[at:]

    def remove_below(self, offset: int) -> bool:
        """Lets go of those who ended below: compaction has left none of their records. False when there was none."""
        if not self.blocks or self.blocks[0].last_offsets[0] >= offset:
            return False
        at = self._block_of(offset)
        kept = self.blocks[at:]
        if kept and (gone := bisect_left(kept[0].last_offsets, offset)):
            rest = Block(*(column[gone:] for column in kept[0].columns))
            rest.open_after = kept[0].open_after
            kept = (rest, *kept[1:])
        self.blocks = kept
        return True

    def between(self, start: int, stop: int, high_watermark: int) -> list[Aborted]:
        """Those whose marker is visible and who overlap offsets start to stop, by their first offset."""
        found = []
        for block in self.blocks[self._block_of(start) :]:
            producer_ids, first_offsets, last_offsets = block.columns
            if block.lowest < stop:
                for at in range(bisect_left(last_offsets, start), bisect_left(last_offsets, high_watermark)):
                    if first_offsets[at] < stop:
                        found.append(Aborted(producer_ids[at], first_offsets[at], last_offsets[at]))
            if block.open_after >= stop:
                break
        found.sort(key=_first_of)
        return found

    def _block_of(self, offset: int) -> int:
        return bisect_left(self.blocks, offset, key=_end_of)


class Stable(NamedTuple):
    """Below `offset` every transaction has ended, visibly. Which of them were aborted stays known here."""

    offset: int
    high_watermark: int
    aborted: AbortedColumns

    def aborted_between(self, start: int, stop: int) -> list[Aborted]:
        return self.aborted.between(start, stop, self.high_watermark)


def _first_of(aborted: Aborted) -> int:
    return aborted.first_offset


def _end_of(block: Block) -> int:
    return block.last_offsets[-1]


def _first_offset(item: tuple[int, int]) -> int:
    return item[1]


# The snapshot ---------------------------------------------------------------------------------------------------------


def pack(fold: FoldedTransactions) -> bytes:
    parts = [_COUNTS.pack(len(fold.open), fold.aborted)]
    parts += [_OPEN.pack(*one) for one in fold.open.items()]
    for column in range(_COLUMNS):
        values: array[int] = array("q")
        for block in fold.blocks:
            values += block.columns[column][: fold.aborted - len(values)]
        if _SWAP:
            values.byteswap()
        parts.append(values.tobytes())
    return b"".join(parts)


def unpack(data: bytes) -> tuple[FoldedTransactions, int]:
    """The state, and how many bytes it took."""
    if len(data) < _COUNTS.size:
        raise StorageError("snapshot of transactions ends in the middle")
    opened, aborted = _COUNTS.unpack_from(data)
    size = aborted * _INT64
    columns_at = _COUNTS.size + opened * _OPEN.size
    end = columns_at + _COLUMNS * size
    if len(data) < end:
        raise StorageError(f"snapshot of {opened} open and {aborted} aborted transactions ends in the middle")
    open_now = dict(_OPEN.iter_unpack(data[_COUNTS.size : columns_at]))
    columns = [array("q", data[at : at + size]) for at in range(columns_at, end, size or 1)]
    if _SWAP:
        for column in columns:
            column.byteswap()
    return FoldedTransactions(open_now, _blocks(columns, open_now), aborted), end


def _blocks(columns: list[array[int]], open_now: dict[int, int]) -> tuple[Block, ...]:
    if not columns:
        return ()
    blocks = [Block(*(column[at : at + BLOCK] for column in columns)) for at in range(0, len(columns[0]), BLOCK)]
    lowest = min(open_now.values(), default=columns[2][-1] + 1)
    for block in reversed(blocks):
        block.open_after = lowest
        lowest = min(lowest, block.lowest)
    return tuple(blocks)
