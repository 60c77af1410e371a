"""What compaction does to batches: find the last record of every key, and take out what is no longer needed.

    keys = KeyMap(capacity)
    note_keys(keys, window, verdicts, start)      a first walk over whole batches: where was each key last?
    filter_records(keys, window, verdicts, rule)  a second one: the same batches without the records that had successors

A *verdict* is the caller's word on a batch, one byte for each: FILTER (each record by its key), KEEP (a mark of a
transaction's end), DROP (aborted, or a mark nobody needs); with REMEMBER_BIT a batch that is left without records stays
as an empty batch of its own, because its producer is remembered by it, and with SET_HORIZON_BIT it gets a delete
horizon as if it had a tombstone.

What holds for every record that stays: its offset, timestamp, key, value and headers, and its place. What holds for
every batch: base offset, last offset, leader epoch, producer, sequence, compression. Offsets stay dense: batches
without records become one empty batch that spans them (a *gap*, which goes on from window to window).

A tombstone that stays gets a *delete horizon*, as in Kafka: attribute bit 6, and the base timestamp says when it may
go. Kafka also gives one to a tombstone whose key is not in the map yet, so that it may go as soon as what it covers:
here its time begins then. A batch whose records cannot be read is left as it is: nobody looked into it when it came.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.record import codec
from tidelog.record.codec import KeyMap as KeyMap
from tidelog.record.columns import MAX_DECOMPRESSED
from tidelog.record.compression import compress, decompress
from tidelog.record.header import Buffer, Gap

BYTES_PER_KEY = 27  # 24 in a slot, and one slot in ten is free


class CompactionRule(NamedTuple):
    """`known_up_to`: keys of records at and above it are not in the map, so they all stay."""

    known_up_to: int
    now_ms: int
    horizon_ms: int  # for tombstones that have none yet
    discard: bool  # tombstones whose horizon has come


class Filtered(NamedTuple):
    """`gap` is not in `data` yet: the next window may go on with it, else `empty_batch` makes it one."""

    data: Buffer
    gap: Gap | None
    seen: int  # records before,
    left: int  # and after
    keyless: int  # of those that went: no key, so that nothing could ever follow on them
    unreadable: int  # batches


class Keyless(NamedTuple):
    plain_size: int  # of the batch's records, decompressed
    total: int  # of those without a key
    numbers: list[int]  # where they stand in the batch, the first of them


def find_keyless(batch: Buffer, most: int, limit: int) -> Keyless:
    """The records of a batch that has been checked that have no key; nothing of them is taken out of it.

    OversizedBatch when it has more than `limit` bytes when it is decompressed, MalformedBatch when a record cannot be
    read.
    """
    return Keyless(*codec.find_keyless(batch, most, decompress, limit))


def note_keys(keys: KeyMap, buffer: Buffer, verdicts: Buffer, start: int) -> int:
    """Notes the keys of records from offset `start` on. The offset of the first that did not fit; -1 when all did."""
    return codec.note_keys(keys, buffer, verdicts, start, decompress, MAX_DECOMPRESSED)


def filter_records(
    keys: KeyMap, buffer: Buffer, verdicts: Buffer, rule: CompactionRule, gap: Gap | None = None
) -> Filtered:
    found = codec.filter_records(keys, buffer, verdicts, *rule, gap, decompress, compress, MAX_DECOMPRESSED)
    return Filtered(*found)


def empty_batch(base_offset: int, next_offset: int, leader_epoch: int) -> bytearray:
    """A batch without records from one offset up to another, of nobody and of no time."""
    from tidelog.record import _pure_compact

    return _pure_compact.empty_batch(base_offset, next_offset, leader_epoch)
