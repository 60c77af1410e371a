"""Rows become a batch and come back as they were, whatever is in them, by the compiled codec and its twin alike."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from record.twins import COMPRESSIONS, INT64, TWINS, decode_plain, plain, rows, seal
from tidelog.errors import MalformedBatch, TruncatedBatch, UsageError
from tidelog.record import _codec, _pure
from tidelog.record.columns import Columns, decode, encode
from tidelog.record.compression import decompress
from tidelog.record.header import EncodableRow


@proves("T1")
@given(
    rows,
    st.sampled_from(COMPRESSIONS),
    st.integers(0, 1 << 62),
    st.tuples(INT64, st.integers(-1, 32767), st.integers(-1, (1 << 31) - 1)),
    st.booleans(),
    st.booleans(),
)
def test_what_was_encoded_is_decoded(
    given_rows: list[EncodableRow],
    compression: str,
    base_offset: int,
    producer: tuple[int, int, int],
    transactional: bool,
    control: bool,
) -> None:
    batch = encode(
        given_rows,
        compression=compression,
        base_offset=base_offset,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
        control=control,
    )
    columns = decode(batch)
    assert [tuple(row[1:]) for row in columns.rows()] == [plain(row) for row in given_rows]
    assert list(columns.offsets) == list(range(base_offset, base_offset + len(given_rows)))
    assert columns.control == bytes([control]) * len(given_rows)
    (header,) = columns.batches
    assert header == _codec.check(batch) == _pure.check(batch)
    assert header[7:10] == producer
    assert (header.is_transactional, header.is_control, header.append_time) == (transactional, control, False)
    assert COMPRESSIONS[header.compression] == compression
    assert header.max_timestamp == max(row[3] for row in given_rows)


@proves("T1")
@given(rows)
def test_the_twins_write_the_same_bytes_and_read_the_same_columns(given_rows: list[EncodableRow]) -> None:
    batch = seal(_codec, given_rows)
    assert batch == seal(_pure, given_rows)
    assert decode_plain(_codec, batch) == decode_plain(_pure, batch)


@proves("T1")
@given(st.lists(st.tuples(rows, st.sampled_from(COMPRESSIONS)), min_size=1, max_size=4), st.integers(0, 60))
def test_many_batches_are_decoded_at_once_and_a_cut_one_is_left_out(
    batches: list[tuple[list[EncodableRow], str]], cut: int
) -> None:
    whole = b"".join(encode(each, compression=compression) for each, compression in batches)
    tail = encode([(b"k", b"v", None, 0)])[:cut]
    expected = [plain(row) for each, _ in batches for row in each]
    compiled, pure = (
        Columns(*codec.decode(whole + tail, True, 1 << 20, True, decompress)) for codec in (_codec, _pure)
    )
    assert compiled.batches == pure.batches
    assert compiled.parts == pure.parts
    assert [tuple(row[1:]) for row in compiled.rows()] == expected
    if cut:
        with pytest.raises(TruncatedBatch):
            decode(whole + tail, partial=False)


@proves("T1")
@given(rows, INT64)
def test_append_time_gives_every_record_the_stamp(given_rows: list[EncodableRow], stamp: int) -> None:
    batch = encode(given_rows)
    _codec.stamp_append_time(batch, stamp)
    columns = decode(batch)
    assert list(columns.timestamps) == [stamp] * len(given_rows)
    assert decode_plain(_codec, batch) == decode_plain(_pure, batch)
    newest = max(row[3] for row in given_rows)
    assert set(decode(encode(given_rows, append_time=True)).timestamps) == {newest}


@proves("T1")
@given(rows, st.integers(61, 700))
def test_columns_become_the_batches_that_their_rows_would(given_rows: list[EncodableRow], target: int) -> None:
    parts = decode(encode(given_rows)).parts
    args = len(given_rows), *parts[1:]
    batches, start = [], 0
    while start < len(given_rows):
        made, twin = (codec.encode_columns(*args, start, target, start, 0, 5, 0, start) for codec in (_codec, _pure))
        assert made == twin
        _codec.seal(made[0])
        header = _codec.check(made[0])
        assert (header.base_offset, header.base_sequence, header.producer_id) == (start, start, 5)
        assert header.size <= target or header.count == 1
        batches.append(made[0])
        start += header.count
        assert made[1] == start
    columns = decode(b"".join(batches))
    assert [tuple(row[1:]) for row in columns.rows()] == [plain(row) for row in given_rows]


@proves("T1")
@TWINS
def test_more_rows_than_are_made_at_a_time_come_in_order(codec: ModuleType) -> None:
    batch = seal(codec, [(None, b"%d" % i, None, i) for i in range(1000)])
    assert [row.value for row in decode(batch).rows()] == [b"%d" % i for i in range(1000)]


@proves("T1")
@TWINS
def test_header_names_that_are_not_utf8_survive(codec: ModuleType) -> None:
    batch = seal(codec, [(None, None, [(b"\xff\xfe", b"1"), ("ä", None)], 0)])
    (row,) = decode(batch).rows()
    assert row.headers == (("\udcff\udcfe", b"1"), ("ä", None))
    assert seal(codec, [(None, None, row.headers, 0)]) == batch


@proves("T1")
@TWINS
def test_a_batch_that_compaction_thinned_or_emptied_is_read_but_not_accepted_from_a_producer(codec: ModuleType) -> None:
    batch = seal(codec, [(b"a", b"1", None, 5), (b"b", b"2", None, 6)])
    batch[26] = 9  # last offset delta: records 2 to 9 were taken out
    codec.seal(batch)
    with pytest.raises(MalformedBatch, match="no gaps"):
        codec.check(batch)
    assert codec.scan(batch).error is None
    assert codec.scan(batch).headers[0].next_offset == 10
    assert [row.offset for row in Columns(*decode_plain(codec, batch)).rows()] == [0, 1]
    emptied = batch[:61]
    emptied[57:61] = bytes(4)
    codec.seal(emptied)
    assert codec.scan(emptied).headers[0].count == 0
    assert Columns(*decode_plain(codec, emptied)).count == 0


@proves("T1")
@TWINS
def test_nothing_to_encode_and_numbers_that_do_not_fit_are_the_callers_fault(codec: ModuleType) -> None:
    with pytest.raises(UsageError):
        codec.encode_rows([], 0, 0, -1, -1, -1)
    with pytest.raises(OverflowError):
        codec.encode_rows([(None, None, None, 1 << 63)], 0, 0, -1, -1, -1)
    with pytest.raises(TypeError):
        codec.encode_rows([("text", None, None, 0)], 0, 0, -1, -1, -1)
    with pytest.raises(UsageError, match="brotli"):
        encode([(None, None, None, 0)], compression="brotli")


@proves("T1")
def test_an_empty_buffer_has_no_rows() -> None:
    columns = decode(b"")
    assert (columns.count, columns.batches, list(columns.rows()), columns.headers) == (0, [], [], None)
