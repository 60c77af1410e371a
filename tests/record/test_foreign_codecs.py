"""Our batches in other codecs and theirs in ours: aiokafka's, kafka-python's and, as bytes it once wrote, Java's."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as PythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as PythonBuilder

from proving import proves
from record.java_batches import BATCHES
from record.twins import COMPRESSIONS, headers, plain, strings
from tidelog.record import _codec, _pure
from tidelog.record.columns import Columns, decode, encode
from tidelog.record.compression import decompress
from tidelog.record.header import EncodableRow

# kafka-python has no compression but gzip without further packages.
PEERS = [
    *[pytest.param(AioBatch, AioBuilder, compression, id=f"aiokafka-{compression}") for compression in COMPRESSIONS],
    *[pytest.param(PythonBatch, PythonBuilder, each, id=f"kafka-python-{each}") for each in ("none", "gzip")],
]
rows = st.lists(st.tuples(strings, strings, headers, st.integers(0, 1 << 41)), min_size=1, max_size=10)


@proves("T1")
@pytest.mark.parametrize(("reader", "builder", "compression"), PEERS)
@given(given_rows=rows, transactional=st.booleans())
def test_they_read_what_we_write(
    reader: Any, builder: Any, compression: str, given_rows: list[EncodableRow], transactional: bool
) -> None:
    batch = encode(
        given_rows,
        compression=compression,
        base_offset=41,
        transactional=transactional,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=17,
    )
    theirs = reader(bytes(batch))
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.is_transactional, theirs.is_control_batch) == (41, transactional, False)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (4711, 3, 17)
    read = [(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in theirs]
    assert read == [(41 + i, *plain(row)) for i, row in enumerate(given_rows)]


@proves("T1")
@pytest.mark.parametrize(("reader", "builder", "compression"), PEERS)
@given(given_rows=rows, transactional=st.booleans())
def test_we_read_what_they_write(
    reader: Any, builder: Any, compression: str, given_rows: list[EncodableRow], transactional: bool
) -> None:
    theirs = builder(
        magic=2,
        compression_type=COMPRESSIONS.index(compression),
        is_transactional=int(transactional),
        producer_id=4711,
        producer_epoch=3,
        base_sequence=17,
        batch_size=1 << 20,
    )
    for offset, (key, value, pairs, timestamp) in enumerate(given_rows):
        assert theirs.append(offset, timestamp=timestamp, key=key, value=value, headers=list(pairs or []))
    batch = bytes(theirs.build())
    header = _codec.check(batch)
    assert header == _pure.check(batch)
    assert header[7:10] == (4711, 3, 17)
    assert (header.is_transactional, header.count) == (transactional, len(given_rows))
    assert [tuple(row[1:]) for row in decode(batch).rows()] == [plain(row) for row in given_rows]


JAVA_ROWS = [
    (1_700_000_000_000, b"key", b"value", ()),
    (1_699_999_999_000, None, b"", (("hé", b"\1\2"), ("none", None))),
    (1_700_000_000_500, b"", None, ()),
    (1_700_000_000_500, b"key", b"x" * 300, ()),
]


@proves("T1")
@pytest.mark.parametrize("codec", [_codec, _pure], ids=["compiled", "pure"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_we_read_what_java_writes(codec: Any, compression: str) -> None:
    batch = bytes.fromhex(BATCHES[compression])
    header = codec.check(batch)
    assert (header.base_offset, header.leader_epoch, *header[7:10]) == (41, 5, 4711, 3, 17)
    columns = Columns(*codec.decode(batch, True, 1 << 20, False, decompress))
    assert [tuple(row[1:]) for row in columns.rows()] == JAVA_ROWS


@proves("T1")
def test_uncompressed_we_write_the_very_bytes_that_java_writes() -> None:
    rows = [(key, value, pairs, timestamp) for timestamp, key, value, pairs in JAVA_ROWS]
    batch = encode(rows, base_offset=41, producer_id=4711, producer_epoch=3, base_sequence=17)
    _codec.patch(batch, 41, 5)
    assert batch.hex() == BATCHES["none"]
    _codec.stamp_append_time(batch, 1_700_000_009_999)
    _codec.restamp(batch, 4711, 3, 17, True)
    assert batch.hex() == BATCHES["append_time"]
    assert set(decode(batch).timestamps) == {1_700_000_009_999}


@proves("T1")
def test_a_commit_marker_of_java_is_a_control_batch() -> None:
    columns = decode(bytes.fromhex(BATCHES["commit_marker"]))
    (header,) = columns.batches
    assert (header.is_control, header.is_transactional, columns.control) == (True, True, b"\1")
    assert next(columns.rows()).key == b"\0\0\0\1"
