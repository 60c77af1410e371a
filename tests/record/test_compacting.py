"""Compaction of batches: what stays is untouched, what goes leaves no gap, and both codecs agree to the byte."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from record.twins import COMPRESSIONS, TWINS, headers, strings
from tidelog.errors import TruncatedBatch, UsageError
from tidelog.record import _codec, _pure
from tidelog.record.columns import MAX_DECOMPRESSED, Row, decode, encode
from tidelog.record.compacting import empty_batch
from tidelog.record.compression import compress, decompress
from tidelog.record.header import (
    DELETE_HORIZON_BIT,
    DROP,
    FILTER,
    HEADER_SIZE,
    KEEP,
    REMEMBER_BIT,
    SET_HORIZON_BIT,
    Filtered,
    Gap,
)

NOW = 1_700_000_000_000
DAY = 86_400_000
NEVER = 1 << 60

keys = st.sampled_from([b"a", b"b", b"", b"c" * 9, b"d" * 16, b"e" * 300, None])
record = st.tuples(keys, strings, headers, st.integers(NOW - DAY, NOW + DAY))
batches = st.lists(
    st.tuples(st.lists(record, min_size=1, max_size=6), st.sampled_from(COMPRESSIONS), st.booleans()),
    min_size=1,
    max_size=8,
)


def lay(parts: list[tuple[list[tuple], str, bool]]) -> bytes:  # type: ignore[type-arg]
    """Batches one behind the other, with dense offsets from 100 on."""
    out, offset = b"", 100
    for number, (rows, compression, append_time) in enumerate(parts):
        made = encode(
            rows,
            compression=compression,
            base_offset=offset,
            append_time=append_time,
            producer_id=number,
            producer_epoch=0,
            base_sequence=3,
        )
        out += made
        offset += len(rows)
    return out


def note(codec: ModuleType, keymap: object, data: bytes, verdicts: bytes, start: int = 0) -> int:
    full: int = codec.note_keys(keymap, data, verdicts, start, decompress, MAX_DECOMPRESSED)
    return full


def sift(
    codec: ModuleType,
    keymap: object,
    data: bytes,
    verdicts: bytes,
    *,
    known_up_to: int = NEVER,
    now: int = NOW,
    discard: bool = True,
    gap: Gap | None = None,
) -> Filtered:
    found: Filtered = codec.filter_records(
        keymap,
        data,
        verdicts,
        known_up_to,
        now,
        now + DAY,
        discard,
        gap,
        decompress,
        compress,
        MAX_DECOMPRESSED,
    )
    return found


def compacted(codec: ModuleType, data: bytes, **how: object) -> tuple[bytes, Filtered]:
    """Noted and filtered, the last gap closed."""
    keymap = codec.KeyMap(1000)
    verdicts = bytes(len(codec.scan(data).headers))
    assert note(codec, keymap, data, verdicts) == -1
    found = sift(codec, keymap, data, verdicts, **how)  # type: ignore[arg-type]
    out = bytes(found[0]) + (bytes(empty_batch(*found[1])) if found[1] is not None else b"")
    return out, found


def check_dense(codec: ModuleType, before: bytes, after: bytes) -> None:
    found = codec.scan(after)
    assert found.error is None
    old = codec.scan(before).headers
    offset = old[0].base_offset
    for header in found.headers:
        assert header.base_offset == offset
        offset = header.next_offset
    assert offset == old[-1].next_offset


def expected(rows: list[Row]) -> list[Row]:
    last = {row.key: row.offset for row in rows if row.key is not None}
    return [row for row in rows if row.key is not None and last[row.key] == row.offset]


@proves("T6", "T1", "D5")
@TWINS
@given(parts=batches)
def test_the_last_record_of_every_key_stays_as_it_was(codec: ModuleType, parts: list) -> None:  # type: ignore[type-arg]
    data = lay(parts)
    rows = list(decode(data).rows())
    out, found = compacted(codec, data)
    check_dense(codec, data, out)
    assert list(decode(out).rows()) == expected(rows)
    assert found[2:] == (len(rows), len(expected(rows)), sum(row.key is None for row in rows), 0)
    for header in codec.scan(out).headers:
        stayed = [row.timestamp for row in decode(out).rows() if header.base_offset <= row.offset <= header.last_offset]
        assert header.max_timestamp == (max(stayed) if stayed else -1)


@proves("T6", "D5")
@given(parts=batches, known=st.integers(95, 130), now=st.sampled_from([NOW, NOW + DAY, NOW + 3 * DAY]))
def test_the_compiled_codec_and_its_twin_agree(parts: list, known: int, now: int) -> None:  # type: ignore[type-arg]
    data = lay(parts)
    for _ in range(3):  # also on what they made themselves
        made = [compacted(codec, data, known_up_to=known, now=now) for codec in (_codec, _pure)]
        assert made[0][0] == made[1][0]
        assert made[0][1][1:] == made[1][1][1:]
        data, now = made[0][0], now + DAY


@proves("T6", "D5")
@TWINS
@given(parts=batches, cut=st.integers(0, 7))
def test_a_gap_goes_on_from_window_to_window(codec: ModuleType, parts: list, cut: int) -> None:  # type: ignore[type-arg]
    data = lay(parts)
    scan = codec.scan(data)
    at = [*scan.positions, len(data)][min(cut, len(scan.positions))]
    keymap = codec.KeyMap(100)
    note(codec, keymap, data, bytes(len(scan.headers)))
    first = sift(codec, keymap, data[:at], bytes(len(scan.headers)))
    second = sift(codec, keymap, data[at:], bytes(len(scan.headers)), gap=first[1])
    _, found = compacted(codec, data)
    assert bytes(first[0]) + bytes(second[0]) == bytes(found[0])
    assert second[1] == found[1]


@proves("T6", "D5")
@TWINS
def test_a_tombstone_gets_a_horizon_and_goes_when_it_has_come(codec: ModuleType) -> None:
    data = bytes(encode([(b"a", b"1", None, NOW), (b"a", None, [("h", b"v")], NOW + 7), (b"b", b"2", None, NOW + 3)]))
    once, _ = compacted(codec, data)
    (header,) = codec.scan(once).headers
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == NOW + DAY
    assert list(decode(once).rows()) == list(decode(data).rows())[1:]
    assert compacted(codec, once, now=NOW + DAY - 1)[0] == once
    assert compacted(codec, once, now=NOW + DAY, discard=False)[0] == once
    gone, _ = compacted(codec, once, now=NOW + DAY)
    assert [row.key for row in decode(gone).rows()] == [b"b"]
    check_dense(codec, data, gone)


@proves("T6", "D5")
@TWINS
def test_what_the_map_does_not_know_yet_stays(codec: ModuleType) -> None:
    rows = [(b"%d" % (number % 3), b"v", None, NOW) for number in range(9)]
    data = bytes(encode(rows[:5])) + bytes(encode(rows[5:], base_offset=5))
    keymap = codec.KeyMap(2)
    assert note(codec, keymap, data, bytes(2)) == 2
    assert len(keymap) == 2
    out = sift(codec, keymap, data, bytes(2), known_up_to=2)[0]
    assert bytes(out) == data
    assert note(codec, codec.KeyMap(3), data, bytes(2), start=4) == -1


@proves("T6", "D5")
@TWINS
def test_verdicts_keep_drop_and_remember_batches(codec: ModuleType) -> None:
    def one(offset: int, **how: object) -> bytes:
        made = encode([(b"k", b"%d" % offset, None, NOW)], base_offset=offset, **how)  # type: ignore[arg-type]
        return bytes(made)

    mark = one(1, control=True, transactional=True, producer_id=5, producer_epoch=2)
    mine = one(2, producer_id=6, producer_epoch=0, base_sequence=41, compression="zstd")
    data = one(0) + mark + mine + one(3) + one(4)
    keymap = codec.KeyMap(10)
    verdicts = bytes([FILTER, KEEP, DROP | REMEMBER_BIT, DROP, FILTER])
    note(codec, keymap, data, verdicts)
    out, gap, seen, left, *_ = sift(codec, keymap, data, verdicts)
    assert (gap, seen, left) == (None, 5, 2)
    found = codec.scan(out).headers
    assert [(header.base_offset, header.count) for header in found] == [(0, 0), (1, 1), (2, 0), (3, 0), (4, 1)]
    assert mark in bytes(out)
    assert (found[2].producer_id, found[2].base_sequence, found[2].compression) == (6, 41, 0)
    assert (found[0].producer_id, found[0].max_timestamp) == (-1, -1)
    again = sift(codec, keymap, bytes(out), bytes([FILTER, KEEP | SET_HORIZON_BIT, DROP, DROP, FILTER]))[0]
    dated = codec.scan(again).headers
    assert [(header.base_offset, header.last_offset) for header in dated] == [(0, 0), (1, 1), (2, 3), (4, 4)]
    assert dated[1].attributes & DELETE_HORIZON_BIT
    assert [row.timestamp for row in decode(again).rows()] == [NOW, NOW]


@proves("T6", "T1", "D5")
@TWINS
def test_a_batch_that_cannot_be_read_stays_and_tells_no_keys(codec: ModuleType) -> None:
    good = bytes(encode([(b"k", b"1", None, NOW)]))
    for compression in ("none", "lz4"):
        bad = encode([(b"k", b"2", None, NOW), (b"k", b"3", None, NOW)], base_offset=1, compression=compression)
        bad[61 + 2] ^= 0xFF
        codec.seal(bad)
        out, found = compacted(codec, good + bytes(bad))
        assert out == good + bytes(bad)
        assert found[5] == 1


@proves("T6", "D5")
@TWINS
def test_a_window_that_ends_inside_a_batch_is_refused(codec: ModuleType) -> None:
    data = bytes(encode([(b"k", b"1", None, NOW)]))
    for size in (30, len(data) - 1):
        with pytest.raises(TruncatedBatch):
            note(codec, codec.KeyMap(1), data[:size], bytes(1))
        with pytest.raises(TruncatedBatch):
            sift(codec, codec.KeyMap(1), data[:size], bytes(1))
    with pytest.raises(UsageError):
        codec.KeyMap(0)


@proves("T6", "D5")
@TWINS
def test_a_change_of_leader_epoch_ends_a_gap(codec: ModuleType) -> None:
    first, second, last = (encode([(b"k", b"v", None, NOW)], base_offset=offset) for offset in range(3))
    codec.patch(first, 0, 0), codec.patch(second, 1, 3), codec.patch(last, 2, 3)
    out, _ = compacted(codec, bytes(first + second + last))
    assert [(header.base_offset, header.leader_epoch) for header in codec.scan(out).headers] == [(0, 0), (1, 3), (2, 3)]


@proves("T6", "D5")
@TWINS
def test_many_keys_find_each_their_place(codec: ModuleType) -> None:
    rows = [(b"key-%d" % (number % 5000), b"%d" % number, None, NOW) for number in range(9000)]
    data = bytes(encode(rows))
    keymap = codec.KeyMap(5000)
    assert note(codec, keymap, data, bytes(1)) == -1
    assert len(keymap) == 5000
    out = sift(codec, keymap, data, bytes(1))[0]
    assert [row.offset for row in decode(out).rows()] == list(range(4000, 9000))


@proves("T6", "T1", "D5")
@given(parts=batches, flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 7)), max_size=6))
def test_bytes_that_make_no_sense_are_left_alone_by_both(parts: list, flips: list[tuple[int, int]]) -> None:  # type: ignore[type-arg]
    plain = [(rows, "none", append_time) for rows, _, append_time in parts]
    made = bytearray()
    for at, batch in enumerate(_split(lay(plain))):
        for byte, bit in flips if at % 2 else ():
            batch[HEADER_SIZE + byte % (len(batch) - HEADER_SIZE)] ^= 1 << bit
        _codec.seal(batch)
        made += batch
    data = bytes(made)
    results = [compacted(codec, data) for codec in (_codec, _pure)]
    assert results[0][0] == results[1][0]
    assert results[0][1][1:] == results[1][1][1:]
    check_dense(_codec, data, results[0][0])


@proves("T6", "T1", "D5")
def test_a_record_with_any_one_bit_changed_is_judged_alike_by_both() -> None:
    """Each of its lengths, counts and deltas is wrong once."""
    good = bytes(encode([(b"k", b"1", None, NOW)]))
    made = encode([(b"k", b"2", ((b"h", b"v"),), NOW), (b"k", b"3", None, NOW)], base_offset=1)
    unreadable = 0
    for at in range(HEADER_SIZE * 8, len(made) * 8):
        changed = bytearray(made)
        changed[at // 8] ^= 1 << at % 8
        _codec.seal(changed)
        results = [compacted(codec, good + bytes(changed)) for codec in (_codec, _pure)]
        assert results[0][0] == results[1][0]
        assert results[0][1][1:] == results[1][1][1:]
        unreadable += results[0][1][5]
    assert unreadable > 50


def _split(data: bytes) -> list[bytearray]:
    scan = _codec.scan(data)
    return [bytearray(data[at : at + header.size]) for at, header in zip(scan.positions, scan.headers, strict=True)]


@proves("T6", "D5")
@TWINS
def test_the_time_of_a_tombstone_begins_when_its_key_is_known(codec: ModuleType) -> None:
    data = bytes(encode([(b"a", None, None, NOW), (b"b", b"1", None, NOW)]))
    keymap = codec.KeyMap(10)
    note(codec, keymap, data, bytes(1))
    assert bytes(sift(codec, keymap, data, bytes(1), known_up_to=0)[0]) == data
    dated = sift(codec, keymap, data, bytes(1), known_up_to=1)[0]
    assert codec.peek(dated).attributes & DELETE_HORIZON_BIT
