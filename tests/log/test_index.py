"""The sparse index: where to begin walking, by offset and by time; its file, block by block."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import DataFolderError
from tidelog.log.index import HEAD_SIZE, MAGIC, BatchStart, Index, block, head, load
from tidelog.record.codec import crc32c

START = 4096
BASE = 7


class Batch(NamedTuple):
    offset: int
    position: int
    time: int


def laid_out(sizes: list[tuple[int, int, int]]) -> list[Batch]:
    """Batches of (records, bytes, time), one behind the other."""
    batches, offset, position = [], 0, START
    for records, size, time in sizes:
        batches.append(Batch(offset, position, time))
        offset += records
        position += size
    return batches


def index_of(batches: list[Batch], interval: int) -> Index:
    index = Index(BASE)
    for offset, position, time in batches:
        index.note(offset + BASE, position, time, interval)
    return index


some_batches = st.lists(
    st.tuples(st.integers(1, 5), st.integers(61, 9000), st.integers(0, 50)), min_size=1, max_size=60
).map(laid_out)


@proves("T1")
@given(some_batches, st.integers(1, 20_000), st.integers(0, 300))
def test_a_walk_by_offset_begins_at_or_before_the_batch_and_not_far(
    batches: list[Batch], interval: int, offset: int
) -> None:
    index = index_of(batches, interval)
    wanted = [batch for batch in batches if batch.offset <= offset][-1]
    found = index.before_offset(offset + BASE)
    assert found.position <= wanted.position < found.position + max(interval, 1) + 9000
    assert (found.offset - BASE, found.position) in [batch[:2] for batch in batches]


@proves("T1")
@given(some_batches, st.integers(1, 20_000), st.integers(0, 60))
def test_a_walk_by_time_begins_at_or_before_the_first_batch_that_late(
    batches: list[Batch], interval: int, time: int
) -> None:
    index = index_of(batches, interval)
    begin = index.before_time(time).position
    late = [batch.position for batch in batches if batch.time >= time]
    assert not late or begin <= late[0]


@proves("T1")
@given(some_batches, st.integers(1, 20_000), st.integers(START, START + 200_000))
def test_a_boundary_is_the_last_known_beginning_of_a_batch(batches: list[Batch], interval: int, stop: int) -> None:
    index = index_of(batches, interval)
    found = index.before_position(stop)
    assert found.position <= stop
    assert (found.offset - BASE, found.position) in {batch[:2] for batch in batches}
    following = index.after_position(found.position)
    assert following is None or following.position > stop


@proves("T1")
@given(some_batches, st.integers(1, 5000), st.data())
def test_taking_batches_back_leaves_what_was_there_before(
    batches: list[Batch], interval: int, data: st.DataObject
) -> None:
    kept = data.draw(st.integers(0, len(batches)))
    before = index_of(batches[:kept], interval)
    index = index_of(batches, interval)
    position = batches[kept].position if kept < len(batches) else batches[-1].position + 1
    index.cut(position, before.max_timestamp, before.max_timestamp_offset)
    assert (index.offsets, index.positions, index.times) == (before.offsets, before.positions, before.times)
    for offset, place, time in batches[kept:]:
        index.note(offset + BASE, place, time, interval)
    again = index_of(batches, interval)
    assert (index.offsets, index.positions, index.times) == (again.offsets, again.positions, again.times)


def file_of(index: Index, cuts: list[int]) -> bytes:
    data = head(BASE)
    for start, stop in zip([0, *cuts], [*cuts, len(index)], strict=True):
        data += block(index, start, stop, index.covered(BatchStart(start, stop), complete=stop == len(index)))
    return data


@proves("T1")
@given(some_batches, st.data())
def test_a_file_in_blocks_is_read_as_it_was_written(batches: list[Batch], data: st.DataObject) -> None:
    index = index_of(batches, 1000)
    cut = data.draw(st.integers(0, len(index)))
    content = file_of(index, [cut])
    found, covered, size = load(content, BASE, "x")
    assert (found.offsets, found.positions, found.times) == (index.offsets, index.positions, index.times)
    assert (found.max_timestamp, found.max_timestamp_offset) == (index.max_timestamp, index.max_timestamp_offset)
    assert covered is not None
    assert covered.complete
    assert size == len(content)


@proves("T1")
@given(some_batches, st.data())
def test_what_is_bad_in_a_file_ends_it_before(batches: list[Batch], data: st.DataObject) -> None:
    index = index_of(batches, 1000)
    cut = len(index) // 2
    content = bytearray(file_of(index, [cut]))
    first_end = HEAD_SIZE + len(block(index, 0, cut, index.covered(BatchStart(0, cut))))
    at = data.draw(st.integers(first_end, len(content) - 1))
    content[at] ^= data.draw(st.sampled_from([1, 128]))
    found, covered, size = load(bytes(content), BASE, "x")
    assert len(found) == cut
    assert covered is not None
    assert not covered.complete
    assert size == first_end


@proves("T1")
def test_a_file_of_another_segment_or_of_nothing_is_no_index() -> None:
    index = index_of(laid_out([(1, 100, 5)]), 10)
    assert load(file_of(index, []), BASE + 1, "x")[1] is None
    assert load(b"", BASE, "x")[1] is None
    assert load(b"\0" * 100, BASE, "x")[1] is None


@proves("T6")
def test_a_newer_format_is_refused_by_name() -> None:
    data = MAGIC + (2).to_bytes(2, "big") + bytes(10)
    data += crc32c(data).to_bytes(4, "big")
    with pytest.raises(DataFolderError, match=r"here\.index has index format 2, newer than 1"):
        load(data, 0, "here.index")
