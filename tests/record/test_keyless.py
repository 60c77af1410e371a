"""Records without a key are found without anything being taken out of the batch, within a limit on what it becomes."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given

from proving import proves
from record.twins import COMPRESSIONS, TWINS, rows
from tidelog.errors import MalformedBatch, OversizedBatch, TruncatedBatch
from tidelog.record import _codec, _pure
from tidelog.record.columns import encode
from tidelog.record.compacting import find_keyless
from tidelog.record.compression import code_of, compress, decompress
from tidelog.record.header import HEADER_SIZE

LIMIT = 1 << 20
EVERY = 1 << 20


@proves("T5")
@given(rows=rows)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_twins_find_the_records_that_have_no_key(rows, compression: str):
    batch = encode(rows, compression=compression)
    expected = [number for number, row in enumerate(rows) if row[0] is None]
    plain = len(encode(rows)) - HEADER_SIZE
    for codec in (_codec, _pure):
        assert codec.find_keyless(batch, EVERY, decompress, LIMIT) == (plain, len(expected), expected)
        assert codec.find_keyless(batch, 1, decompress, LIMIT) == (plain, len(expected), expected[:1])


@proves("T5")
@given(rows=rows)
def test_of_any_byte_changed_the_twins_say_the_same(rows):
    batch = encode(rows)
    for at in range(0, len(batch), max(1, len(batch) // 40)):
        broken = bytearray(batch)
        broken[at] ^= 0x81
        assert outcome(_codec, broken) == outcome(_pure, broken)
        assert outcome(_codec, batch[:at]) == outcome(_pure, batch[:at])


def outcome(codec: ModuleType, batch: bytes | bytearray) -> object:
    try:
        return codec.find_keyless(batch, EVERY, decompress, LIMIT)
    except MalformedBatch as error:
        return type(error), str(error)


@proves("T5")
@TWINS
def test_a_batch_that_is_cut_or_has_a_record_that_cannot_be_read_is_refused(codec: ModuleType):
    batch = encode([(b"key", b"value", (), 0)] * 3)
    with pytest.raises(TruncatedBatch):
        codec.find_keyless(batch[:-1], EVERY, decompress, LIMIT)
    batch[-1] ^= 0xFF  # the number of headers
    with pytest.raises(MalformedBatch, match="record 2 of the batch at byte 0 cannot be read"):
        codec.find_keyless(batch, EVERY, decompress, LIMIT)


@proves("T5")
@pytest.mark.parametrize("compression", COMPRESSIONS[1:])
def test_what_becomes_larger_than_the_limit_is_told_apart_from_what_is_broken(compression: str):
    rows = [(b"key", bytes(10_000), (), 0)] * 10
    batch = encode(rows, compression=compression)
    plain = len(encode(rows)) - HEADER_SIZE
    assert find_keyless(batch, EVERY, plain).total == 0
    with pytest.raises(OversizedBatch):
        find_keyless(batch, EVERY, plain - 1)
    with pytest.raises(MalformedBatch) as broken:
        decompress(code_of(compression), memoryview(b"garbage" * 10), LIMIT)
    assert broken.type is MalformedBatch


@proves("T5")
@pytest.mark.parametrize("compression", ["gzip", "snappy", "zstd"])
def test_what_says_that_it_does_not_fit_is_refused_before_it_is_decompressed(compression: str, monkeypatch):
    import cramjam

    packed = compress(code_of(compression), memoryview(bytes(100_000)))

    def never(*_: object) -> int:
        raise AssertionError("it was decompressed")

    for name in ("decompress_into", "decompress_raw_into"):
        monkeypatch.setattr(getattr(cramjam, compression), name, never, raising=False)
    with pytest.raises(OversizedBatch, match="becomes 100000 bytes, more than 99999"):
        decompress(code_of(compression), packed, 99_999)
