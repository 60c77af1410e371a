"""Single records taken out of batches, for excision; the batches stay.

What holds for every batch: base and last offset, leader epoch, both timestamps, producer, epoch and sequence,
compression. What holds for every record that stays: all of its bytes but for where they lie. A batch whose last record
goes stays as an empty one of its own: its producer is remembered by it, and offsets stay dense.

A marker of a transaction is not a record of anybody's, and is never taken out. A batch whose records cannot be read is
emptied when all of its offsets are wanted, and is left alone otherwise: which bytes of it are whose nobody can tell.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tidelog.record._pure_compact import _batch, _plain, _records
from tidelog.record.columns import MAX_DECOMPRESSED
from tidelog.record.compression import compress, decompress
from tidelog.record.header import COMPRESSION_BITS, DELETE_HORIZON_BIT, BatchHeader, Buffer


class Excised(NamedTuple):
    """`unreadable` are wanted offsets in batches whose records cannot be read."""

    data: bytes
    removed: int
    unreadable: list[int]


def excise_records(buffer: Buffer, headers: Sequence[BatchHeader], wanted: Sequence[int]) -> Excised:
    """`buffer` is whole batches that have been checked, with these headers; `wanted` are offsets in order."""
    view = memoryview(buffer).cast("B")
    out = bytearray()
    removed = position = 0
    unreadable: list[int] = []
    for header in headers:
        batch = view[position : position + header.size]
        position += header.size
        here = set(wanted[bisect_left(wanted, header.base_offset) : bisect_left(wanted, header.next_offset)])
        if not here or header.is_control or not header.count:
            out += batch
            continue
        made = _without(header, batch, here)
        if made is None:
            unreadable += sorted(here)
            out += batch
            continue
        out += made[0]
        removed += made[1]
    return Excised(bytes(out), removed, unreadable)


def _without(header: BatchHeader, batch: memoryview, wanted: Collection[int]) -> tuple[Buffer, int] | None:
    """The batch without these, and how many there were; None when its records cannot be told apart."""
    plain = _plain(header, batch, decompress, MAX_DECOMPRESSED)
    records = _records(header, plain) if plain is not None else None
    if records is None:
        return (_emptied(header), header.count) if len(wanted) == header.last_offset_delta + 1 else None
    kept = [record for record in records if header.base_offset + record.delta not in wanted]
    if len(kept) == len(records):
        return batch, 0
    if not kept:
        return _emptied(header), len(records)
    data = b"".join(record.record for record in kept)
    packed = compress(header.compression, memoryview(data)) if header.compression else data
    return _batch(header._replace(count=len(kept)), packed), len(records) - len(kept)


def _emptied(header: BatchHeader) -> bytearray:
    """Without compression: an empty text has a form of its own in each codec, and some clients choke on it."""
    attributes = header.attributes & ~(COMPRESSION_BITS | DELETE_HORIZON_BIT)
    return _batch(header._replace(attributes=attributes, count=0), b"")
