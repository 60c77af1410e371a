"""Columns as Arrow arrays over the same memory, and Arrow tables of many kinds as batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from record.twins import plain, rows
from tidelog.errors import UsageError
from tidelog.record.arrow import arrow_to_partitions, columns_to_arrow, topic_schema
from tidelog.record.columns import decode, encode
from tidelog.record.header import EncodableRow


def batches_of(table: Any, *, timestamp_ms: int = -1) -> list[bytearray]:
    of_partitions = arrow_to_partitions(table, partitions=1, spare=0, timestamp_ms=timestamp_ms)
    return [batch for _, batch in of_partitions]


def rows_of(batches: Any) -> list[tuple[object, ...]]:
    return [tuple(row[1:]) for row in decode(b"".join(batches)).rows()]


@proves("T1")
@given(rows, st.integers(0, 12), st.integers(0, 12))
def test_a_topic_goes_through_arrow_and_back_whole_or_in_slices(
    given_rows: list[EncodableRow], start: int, count: int
) -> None:
    table = columns_to_arrow(decode(encode(given_rows, base_offset=9)))
    table.validate(full=True)
    assert table.schema == topic_schema()
    assert table.column("offset").to_pylist() == list(range(9, 9 + len(given_rows)))
    assert table.column("key").to_pylist() == [row[0] for row in given_rows]
    assert table.column("value").to_pylist() == [row[1] for row in given_rows]
    assert rows_of(batches_of(table)) == [plain(row) for row in given_rows]
    part = table.slice(start, count)
    assert rows_of(batches_of(part)) == [plain(row) for row in given_rows[start : start + count]]


@proves("T1")
def test_keys_and_values_are_not_copied() -> None:
    columns = decode(encode([(b"k" * 100, b"v" * 1_000, None, 0)] * 100))
    table = columns_to_arrow(columns)
    for name, parts in (("key", columns.parts[2]), ("value", columns.parts[3])):
        _, offsets, data = table.column(name).buffers()
        assert offsets.address == pa.py_buffer(parts[1]).address
        assert data.address == pa.py_buffer(parts[2]).address


@proves("T1")
def test_rows_of_control_batches_are_left_out_unless_asked_for() -> None:
    marker = encode([(b"\0\0\0\1", b"\0" * 6, None, 0)], control=True, transactional=True, base_offset=1)
    columns = decode(encode([(b"a", b"1", None, 0)]) + marker + encode([(b"b", b"2", None, 0)], base_offset=2))
    assert columns_to_arrow(columns).column("offset").to_pylist() == [0, 2]
    assert columns_to_arrow(columns, control=True).column("offset").to_pylist() == [0, 1, 2]


@proves("T1")
def test_header_names_that_are_not_utf8_become_the_replacement_character() -> None:
    table = columns_to_arrow(decode(encode([(None, None, [(b"\xff", b"1")], 0)])))
    table.validate(full=True)
    assert table.column("headers").to_pylist() == [[{"key": "\ufffd", "value": b"1"}]]


KINDS = {
    "text": pa.array(["a", None, "ü"]),
    "large text": pa.array(["a", None, "ü"], pa.large_string()),
    "large binary": pa.array([b"a", None, "ü".encode()], pa.large_binary()),
    "views": pa.array([b"a", None, "ü".encode()], pa.binary_view()),
    "dictionary": pa.array(["a", None, "ü"]).dictionary_encode(),
}


@proves("T1")
@pytest.mark.parametrize("values", KINDS.values(), ids=KINDS.keys())
def test_text_and_binary_of_any_kind_are_values(values: Any) -> None:
    table = pa.RecordBatch.from_arrays([values], ["value"])
    expected = [(7, None, value, ()) for value in (b"a", None, "ü".encode())]
    assert rows_of(batches_of(table, timestamp_ms=7)) == expected


@proves("T1")
def test_headers_may_be_a_map_and_nulls_are_no_headers() -> None:
    headers = pa.array([[("a", b"1"), ("b", None)], None, []], pa.map_(pa.string(), pa.binary()))
    table = pa.RecordBatch.from_arrays([headers], ["headers"])
    assert [row[3] for row in rows_of(batches_of(table))] == [(("a", b"1"), ("b", None)), (), ()]


@proves("T1")
def test_what_lies_under_a_null_is_no_header() -> None:
    """Arrow lets a null keep its values; a filter or a union in Spark may leave them there."""
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    under = pa.array([{"key": name, "value": name.encode()} for name in "abcdef"], header)
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 3, 5, 6], pa.int32()), under, mask=pa.array([False, True, False, False, True])
    )
    table = pa.RecordBatch.from_arrays([lists], ["headers"])
    expected = [(("a", b"a"),), (), (), (("d", b"d"), ("e", b"e")), ()]
    assert [row[3] for row in rows_of(batches_of(table))] == expected
    assert [row[3] for row in rows_of(batches_of(table.slice(1, 3)))] == expected[1:4]


@proves("T1")
def test_timestamps_of_any_unit_become_milliseconds() -> None:
    values = pa.array([1_500_000, None], pa.timestamp("us", "UTC"))
    table = pa.RecordBatch.from_arrays([values], ["timestamp"])
    assert [row[0] for row in rows_of(batches_of(table, timestamp_ms=-1))] == [1_500, -1]


@proves("T1")
@pytest.mark.parametrize("name", ["value", "timestamp", "headers"])
def test_columns_of_other_types_are_refused_by_name(name: str) -> None:
    table = pa.RecordBatch.from_arrays([pa.array([[1.5]])], [name])
    with pytest.raises(UsageError, match=r"list<"):
        batches_of(table)
