"""The codec's part in compaction, in Python. Part of `_pure`; `compacting` says what the functions are for.

A batch is walked over twice: first to see that all of it can be read, then to use it. What cannot be read stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import MalformedBatch, UsageError
from tidelog.record import fault as faults
from tidelog.record._pure_decode import _varint, _Wrong
from tidelog.record._pure_encode import _put_varint
from tidelog.record._pure_headers import HEADER, header_of, seal, view_of, wrap
from tidelog.record.fault import batch_fault, record_fault
from tidelog.record.header import (
    APPEND_TIME_BIT,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    DROP,
    HEADER_SIZE,
    KEEP,
    LENGTH_END,
    MAGIC,
    MAX_BATCH_SIZE,
    MIN_RECORD_SIZE,
    REMEMBER_BIT,
    SET_HORIZON_BIT,
    TRANSACTIONAL_BIT,
    VERDICT_KINDS,
    BatchHeader,
)

if TYPE_CHECKING:
    from tidelog.record.header import Buffer, Compress, Decompress, Filtered, Gap

MAX_KEYS = 1 << 30
_KIND_BITS = APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
_NONE = -1


class KeyMap:
    """Python's own dictionary needs no secret: it compares the keys themselves."""

    def __init__(self, capacity: int) -> None:
        if not 0 < capacity <= MAX_KEYS:
            raise UsageError(f"a map of {capacity} keys; 1 to {MAX_KEYS} are possible")
        self.capacity = capacity
        self.next: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self.next)

    def put(self, key: bytes, offset: int) -> bool:
        """False: there is no room for another key."""
        if key not in self.next and len(self.next) >= self.capacity:
            return False
        self.next[key] = max(self.next.get(key, 0), offset + 1)
        return True


class _Found(NamedTuple):
    record: memoryview  # all of it, with its length
    times: int  # where in it the timestamp delta begins,
    rest: int  # and what follows that
    timestamp: int
    delta: int
    key: bytes | None
    has_value: bool


def _sized(data: memoryview, at: int, end: int, least: int) -> tuple[int, int]:
    """Where a key, value or part of a header ends, and its size."""
    size, at = _varint(data, at, end, 32)
    if size < least or size > end - at:
        raise _Wrong(faults.WRONG_RECORD_LENGTH)
    return at + max(size, 0), size


def _find(data: memoryview, at: int, header: BatchHeader, last_delta: int) -> tuple[_Found, int]:
    start = at
    size, at = _varint(data, at, len(data), 32)
    if size < 1 or size > len(data) - at:
        raise _Wrong(faults.WRONG_RECORD_LENGTH)
    end, times = at + size, at + 1
    timestamp, rest = _varint(data, times, end, 64)
    delta, at = _varint(data, rest, end, 32)
    if not last_delta < delta <= header.last_offset_delta:
        raise _Wrong(faults.WRONG_OFFSET_DELTA)
    at, key_size = _sized(data, at, end, -1)
    key = data[at - key_size : at].tobytes() if key_size >= 0 else None
    at, value_size = _sized(data, at, end, -1)
    count, at = _varint(data, at, end, 32)
    if count < 0 or count > (end - at) // 2:
        raise _Wrong(faults.WRONG_HEADER_COUNT)
    for _ in range(count):
        at, _size = _sized(data, at, end, 0)
        at, _size = _sized(data, at, end, -1)
    if at != end:
        raise _Wrong(faults.RECORD_NOT_FILLED)
    return _Found(data[start:end], times - start, rest - start, timestamp, delta, key, value_size >= 0), end


def _records(header: BatchHeader, data: memoryview) -> list[_Found] | None:
    """None when they cannot be read."""
    if header.count < 0:
        return None
    found = []
    at, delta = 0, -1
    try:
        for _ in range(header.count):
            record, at = _find(data, at, header, delta)
            delta = record.delta
            found.append(record)
    except _Wrong:
        return None
    return found if at == len(data) else None


def _batches(buffer: Buffer, verdicts: Buffer) -> Iterator[tuple[BatchHeader, memoryview, int]]:
    rest = view_of(buffer, 0)
    position = 0
    for verdict in memoryview(verdicts).cast("B"):
        if not rest:
            return
        if len(rest) < HEADER_SIZE or not HEADER_SIZE <= header_of(rest).size <= len(rest):
            raise batch_fault(faults.BATCH_CUT, rest, position, len(rest))
        header = header_of(rest)
        yield header, rest[: header.size], verdict
        position += header.size
        rest = rest[header.size :]


def _plain(header: BatchHeader, batch: memoryview, decompress: Decompress, limit: int) -> memoryview | None:
    if not header.compression:
        return batch[HEADER_SIZE:]
    try:
        return memoryview(decompress(header.compression, batch[HEADER_SIZE:], limit)).cast("B")
    except MalformedBatch:
        return None


def find_keyless(buffer: Buffer, most: int, decompress: Decompress, limit: int) -> tuple[int, int, list[int]]:
    """Of one batch: its size when it is plain, how many records have no key, and the first `most` of them by number."""
    batch = view_of(buffer, 0)
    if len(batch) < HEADER_SIZE:
        raise batch_fault(faults.HEADER_CUT, batch, 0, len(batch))
    header = header_of(batch)
    if not HEADER_SIZE <= header.size <= len(batch):
        raise batch_fault(faults.BATCH_CUT, batch, 0, len(batch))
    data = batch[HEADER_SIZE : header.size]
    if header.compression:
        data = memoryview(decompress(header.compression, data, limit)).cast("B")
    if header.count < 0 or header.count * MIN_RECORD_SIZE > len(data):
        raise batch_fault(faults.TOO_MANY_RECORDS, batch, 0, len(batch))
    keyless = []
    at, delta = 0, -1
    for number in range(header.count):
        try:
            record, at = _find(data, at, header, delta)
        except _Wrong:
            raise record_fault(faults.UNREADABLE, 0, number) from None
        delta = record.delta
        if record.key is None:
            keyless.append(number)
    if at != len(data):
        raise batch_fault(faults.BATCH_NOT_FILLED, batch, 0, len(batch))
    return len(data), len(keyless), keyless[: max(0, most)]


def note_keys(keys: KeyMap, buffer: Buffer, verdicts: Buffer, start: int, decompress: Decompress, limit: int) -> int:
    """Notes the last offset of every key from offset `start` on; the first offset that did not fit, or -1."""
    for header, batch, verdict in _batches(buffer, verdicts):
        if verdict or header.count <= 0:
            continue
        plain = _plain(header, batch, decompress, limit)
        for record in (_records(header, plain) or ()) if plain is not None else ():
            offset = header.base_offset + record.delta
            if record.key is not None and offset >= start and not keys.put(record.key, offset):
                return offset
    return _NONE


class _Filter:
    """Batches on their way through; `out` is what stays."""

    def __init__(self, keys: KeyMap, known_up_to: int, now: int, horizon: int, discard: bool, gap: Gap | None) -> None:
        self.keys = keys
        self.known_up_to = known_up_to
        self.now = now
        self.horizon = horizon
        self.discard = discard
        self.gap = gap
        self.out = bytearray()
        self.seen = self.left = self.keyless = self.unreadable = 0

    def take(self, header: BatchHeader, batch: memoryview, verdict: int, plain: memoryview | None) -> bytes | None:
        """The records of a batch that must be made anew (`made` has its header); None when it is dealt with."""
        records = _records(header, plain) if plain is not None else None
        if records is None:
            self.unreadable += 1
            self.put_as_it_is(batch)
            return None
        dated = header.attributes & DELETE_HORIZON_BIT != 0
        expired = self.discard and dated and self.now >= header.base_timestamp
        if verdict & VERDICT_KINDS == KEEP:
            kept = records
        else:
            kept = [record for record in records if self._is_kept(record, header.base_offset + record.delta, expired)]
        self.seen += len(records)
        self.left += len(kept)
        known = self.known_up_to - header.base_offset  # the time of a tombstone begins when what it covers has gone
        tombstones = any(not record.has_value and record.delta < known for record in kept)
        set_horizon = not dated and bool(tombstones or verdict & SET_HORIZON_BIT)
        if not kept:
            self.put_emptied(header, verdict)
        elif len(kept) == len(records) and not set_horizon:
            self.put_as_it_is(batch)
        else:
            return self._make(header, kept, set_horizon)
        return None

    def _is_kept(self, record: _Found, offset: int, expired: bool) -> bool:
        if offset >= self.known_up_to:
            return True
        if record.key is None:
            self.keyless += 1
            return False
        if self.keys.next.get(record.key, 0) > offset + 1:
            return False
        return record.has_value or not expired

    def _make(self, header: BatchHeader, kept: list[_Found], set_horizon: bool) -> bytes:
        base = self.horizon if set_horizon else header.base_timestamp
        shift = wrap(header.base_timestamp - base)
        latest = max(wrap(header.base_timestamp + record.timestamp) for record in kept)
        self.made = header._replace(
            attributes=header.attributes | (DELETE_HORIZON_BIT if set_horizon else 0),
            base_timestamp=base,
            max_timestamp=header.max_timestamp if header.append_time else latest,
            count=len(kept),
        )
        return b"".join(_copy(record, shift) for record in kept)

    def put_as_it_is(self, batch: memoryview) -> None:
        self.close_gap()
        self.out += batch

    def put_made(self, records: Buffer) -> None:
        self.close_gap()
        self.out += _batch(self.made, records)

    def put_emptied(self, header: BatchHeader, verdict: int) -> None:
        if verdict & REMEMBER_BIT:
            self.close_gap()
            attributes = header.attributes & _KIND_BITS
            self.out += _batch(header._replace(attributes=attributes, base_timestamp=_NONE, count=0), b"")
            return
        gap = self.gap
        if gap is not None and (
            gap[1] != header.base_offset
            or gap[2] != header.leader_epoch
            or header.next_offset - gap[0] > MAX_BATCH_SIZE
        ):
            self.close_gap()
            gap = None
        self.gap = (header.base_offset if gap is None else gap[0], header.next_offset, header.leader_epoch)

    def close_gap(self) -> None:
        if self.gap is not None:
            self.out += empty_batch(*self.gap)
            self.gap = None


def _copy(record: _Found, shift: int) -> bytes:
    data = record.record.tobytes()
    if not shift:
        return data
    body = bytearray(data[record.times - 1 : record.times])
    _put_varint(body, wrap(record.timestamp + shift))
    body += data[record.rest :]
    framed = bytearray()
    _put_varint(framed, len(body))
    return bytes(framed + body)


def _batch(header: BatchHeader, records: Buffer) -> bytearray:
    made = bytearray(HEADER_SIZE) + memoryview(records)
    base_offset, _, epoch, *rest = header
    HEADER.pack_into(made, 0, base_offset, HEADER_SIZE - LENGTH_END, epoch, MAGIC, 0, *rest)
    seal(made)
    return made


def empty_batch(base_offset: int, next_offset: int, leader_epoch: int) -> bytearray:
    """A batch without records that spans these offsets."""
    nobody = (_NONE,) * 5
    return _batch(BatchHeader(base_offset, 0, leader_epoch, 0, next_offset - base_offset - 1, *nobody, 0), b"")


def filter_records(
    keys: KeyMap,
    buffer: Buffer,
    verdicts: Buffer,
    known_up_to: int,
    now: int,
    horizon: int,
    discard: bool,
    gap: Gap | None,
    decompress: Decompress,
    compress: Compress,
    limit: int,
) -> Filtered:
    """The batches without what is no longer needed."""
    chosen = _Filter(keys, known_up_to, now, horizon, discard, gap)
    for header, batch, verdict in _batches(buffer, verdicts):
        kind = verdict & VERDICT_KINDS
        if kind == DROP or header.count == 0:
            chosen.seen += header.count
            chosen.put_emptied(header, verdict)
        elif kind == KEEP and not verdict & SET_HORIZON_BIT:
            chosen.seen += header.count
            chosen.left += header.count
            chosen.put_as_it_is(batch)
        else:
            records = chosen.take(header, batch, verdict, _plain(header, batch, decompress, limit))
            if records is not None:
                chosen.put_made(compress(header.compression, memoryview(records)) if header.compression else records)
    return bytes(chosen.out), chosen.gap, chosen.seen, chosen.left, chosen.keyless, chosen.unreadable
