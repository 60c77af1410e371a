"""Headers: checked, patched, stamped and scanned, by the compiled codec and its pure twin alike."""

from __future__ import annotations

from types import ModuleType

import pytest

from proving import proves
from tidelog.errors import CorruptBatch, MalformedBatch, TruncatedBatch
from tidelog.record import _codec, _pure
from tidelog.record.columns import encode
from tidelog.record.header import TRUNCATED

TWINS = pytest.mark.parametrize("codec", [_codec, _pure], ids=["compiled", "pure"])


def one_batch() -> bytearray:
    return encode([(b"key", b"value", None, 1_000), (None, b"", [("h", None)], 999)], base_offset=7)


@proves("T1")
@TWINS
def test_check_gives_the_header_of_a_good_batch_anywhere_in_a_buffer(codec: ModuleType) -> None:
    batch = one_batch()
    around = memoryview(bytearray(b"abc") + batch + b"xyz")[1:]
    header = codec.check(around, 2)
    assert header == codec.peek(batch)
    assert (header.base_offset, header.size, header.count, header.last_offset) == (7, len(batch), 2, 8)
    assert (header.base_timestamp, header.max_timestamp, header.next_offset) == (1_000, 1_000, 9)


@proves("T1")
@TWINS
def test_a_flipped_bit_under_the_checksum_is_corrupt(codec: ModuleType) -> None:
    batch = one_batch()
    for place in (22, 40, len(batch) - 1):
        bad = bytearray(batch)
        bad[place] ^= 4
        with pytest.raises(CorruptBatch):
            codec.check(bad)


@proves("T1")
@TWINS
def test_every_shorter_piece_of_a_batch_is_truncated(codec: ModuleType) -> None:
    batch = one_batch()
    for size in range(len(batch)):
        with pytest.raises(TruncatedBatch):
            codec.check(batch[:size])


@proves("T1")
@TWINS
def test_offset_and_epoch_are_patched_outside_the_checksum(codec: ModuleType) -> None:
    buffer = bytearray(5) + one_batch()
    codec.patch(memoryview(buffer)[5:], 1 << 40, 3)
    header = codec.check(buffer, 5)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 3)
    with pytest.raises(BufferError):
        codec.patch(bytes(buffer), 1, 1)


@proves("T1")
@TWINS
def test_stamps_keep_the_checksum_good(codec: ModuleType) -> None:
    batch = one_batch()
    codec.stamp_append_time(batch, 123_456)
    assert codec.check(batch).append_time
    assert codec.check(batch).max_timestamp == 123_456
    codec.restamp(batch, 9, 2, 77, True)
    header = codec.check(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (
        9,
        2,
        77,
        True,
    )
    codec.restamp(batch, 9, 2, 77, False)
    assert not codec.check(batch).is_transactional


@proves("T1")
@TWINS
def test_a_scan_walks_whole_batches_and_says_why_it_stops(codec: ModuleType) -> None:
    batch = one_batch()
    row = bytes(batch) * 3
    clean = codec.scan(row)
    assert (clean.positions, clean.end, clean.error) == ([0, len(batch), 2 * len(batch)], len(row), None)
    cut = codec.scan(row[:-1])
    assert (len(cut.headers), cut.end) == (2, 2 * len(batch))
    assert cut.error.startswith(TRUNCATED)
    bad = bytearray(row)
    bad[len(batch) + 30] ^= 1
    corrupt = codec.scan(bad)
    assert (len(corrupt.headers), corrupt.end) == (1, len(batch))
    assert "checksum" in corrupt.error
    assert codec.scan(bad, crc=False).error is None
    assert codec.scan(bad, 2 * len(batch)).positions == [2 * len(batch)]


@proves("T1")
@TWINS
def test_headers_that_contradict_themselves_are_malformed(codec: ModuleType) -> None:
    for place, value in ((16, 1), (16, 3), (8, 255), (11, 48)):
        bad = one_batch()
        if place == 11:
            bad[8:11] = bytes(3)
        bad[place] = value
        with pytest.raises(MalformedBatch):
            codec.peek(bad)
    for place, value in ((60, 3), (60, 0), (57, 255), (57, 127), (22, 5), (22, 7)):
        bad = one_batch()
        bad[place] = value
        codec.seal(bad)
        with pytest.raises(MalformedBatch):
            codec.check(bad)
