"""A log as its users see it: offsets, visibility, reads."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue

import pytest

from log.partition import NOW, Partition, batch
from proving import proves
from tidelog.errors import OffsetOutOfRange
from tidelog.log.commit import Committer
from tidelog.log.files import RealFiles
from tidelog.log.log import Log
from tidelog.log.record_times import TIMES_BYTES_AT_ONCE, TIMES_BYTES_MAX
from tidelog.log.settings import LogSettings
from tidelog.record.codec import check, seal
from tidelog.record.columns import decode, encode


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path / "p", settings=LogSettings(segment_bytes=8192))


@proves("T1")
def test_an_append_is_visible_when_synced_and_not_before(partition: Partition) -> None:
    done = partition.append(batch(b"a", b"b"))
    assert (done.base_offset, done.last_offset, done.duplicate) == (0, 1, False)
    assert partition.log.end_offset == 2
    assert partition.log.high_watermark == 0
    assert partition.log.read(0, 1000) is None
    assert partition.visible == []
    partition.commit()
    assert partition.log.high_watermark == 2
    assert partition.visible == [(0, None)]
    assert [row.value for row in partition.rows(0).rows()] == [b"a", b"b"]


@proves("T1")
def test_a_read_begins_with_the_whole_batch_that_has_the_offset(partition: Partition) -> None:
    for first in range(0, 30, 3):
        partition.put(*(b"%d" % number for number in range(first, first + 3)))
    assert partition.log.end_offset == 30
    for offset in range(30):
        rows = list(partition.rows(offset).rows())
        assert rows[0].offset == offset - offset % 3
        assert [row.value for row in rows] == [b"%d" % row.offset for row in rows]
        assert rows[-1].offset == 29


@proves("T1")
def test_segments_roll_by_size_and_every_offset_is_found_after_reopening(partition: Partition, tmp_path: Path) -> None:
    for number in range(40):
        partition.put(b"%d" % number * 500)
    assert len(list((tmp_path / "p").glob("*.log"))) > 5
    again = Partition(tmp_path / "p", settings=partition.settings)
    assert again.log.end_offset == again.log.high_watermark == 40
    for offset in range(40):
        assert next(again.rows(offset, 1).rows())[:1] == (offset,)
    assert again.put(b"next").base_offset == 40


@proves("T1")
def test_an_offset_that_is_not_there_is_out_of_range_and_the_end_is_nothing_yet(partition: Partition) -> None:
    partition.put(b"a")
    assert partition.log.read(1, 100) is None
    with pytest.raises(OffsetOutOfRange) as caught:
        partition.log.read(2, 100)
    assert (caught.value.start, caught.value.end) == (0, 1)


@proves("T1")
def test_a_record_is_found_by_its_time(partition: Partition) -> None:
    for number in range(50):
        partition.put(b"a" * 300, b"b", timestamp=NOW + number * 10)
    assert partition.log.offset_at(NOW - 5) == (0, NOW)
    assert partition.log.offset_at(NOW + 101) == (21, NOW + 101)
    assert partition.log.offset_at(NOW + 102) == (22, NOW + 110)
    assert partition.log.offset_at(NOW + 10_000) is None
    assert partition.log.max_timestamp() == (99, NOW + 491)


@proves("T1")
def test_a_batch_whose_records_make_no_sense_is_found_by_time_as_a_whole(partition: Partition) -> None:
    """It is what a producer sent, checksum and all: no damage, and readers get it."""
    nonsense = batch(b"one", b"two", timestamp=NOW)
    nonsense[61:] = b"\xff" * (len(nonsense) - 61)
    seal(nonsense)
    partition.append(nonsense)
    partition.put(b"three", timestamp=NOW + 100)
    assert partition.log.offset_at(NOW) == (0, NOW + 1)
    assert partition.log.offset_at(NOW + 50) == (2, NOW + 100)
    assert partition.log.holes == ()
    piece = partition.log.read(0, 1)
    assert piece is not None
    assert piece.read()[61:] == nonsense[61:]


@proves("T5")
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_is_searched_by_time_up_to_a_limit_and_above_it_found_as_a_whole(
    partition: Partition, compression: str
) -> None:
    """A small request must not take gigabytes, and must not pass over a record either."""
    for offset, size in ((0, TIMES_BYTES_AT_ONCE * 2), (2, TIMES_BYTES_MAX)):
        rows = [(None, bytes(size), (), NOW + offset), (None, b"later", (), NOW + offset + 1)]
        partition.append(encode(rows, compression=compression))
    partition.commit()
    assert partition.log.offset_at(NOW + 1) == (1, NOW + 1)
    assert partition.log.offset_at(NOW + 1, TIMES_BYTES_AT_ONCE) == (0, NOW + 1)
    assert partition.log.offset_at(NOW + 3) == (2, NOW + 3), "its first offset, its latest time"
    assert partition.log.max_timestamp() == (2, NOW + 3)


@proves("T5")
def test_batches_that_lie_about_their_times_do_not_make_one_search_decode_them_all(partition: Partition) -> None:
    for _ in range(4):
        liar = encode([(None, bytes(TIMES_BYTES_MAX // 3 - 100), (), NOW)], compression="zstd")
        liar[35:43] = (NOW + 100).to_bytes(8)  # the latest time
        seal(liar)
        partition.append(liar)
    partition.commit()
    assert partition.log.offset_at(NOW + 50) == (3, NOW + 100), "the fourth was not decoded any more"


@proves("T1")
def test_threads_commit_what_the_loop_appends(tmp_path: Path) -> None:
    events: SimpleQueue[None] = SimpleQueue()
    committer = Committer(RealFiles(), lambda: events.put(None))
    committer.start()
    logs = [Log.open(str(tmp_path / f"p{number}"), RealFiles(), LogSettings(), committer) for number in range(5)]
    acked = []
    for number in range(200):
        log = logs[number % 5]
        data = memoryview(batch(b"%d" % number))
        done = log.append(data, check(data), NOW)
        log.when_visible(done.last_offset + 1, lambda error, number=number: acked.append((number, error)))
    while len(acked) < 200:
        events.get(timeout=180)
        committer.drain()
    committer.stop()
    assert sorted(acked) == [(number, None) for number in range(200)]
    for number, log in enumerate(logs):
        values = [row.value for row in decode(log.read(0, 1 << 20).read()).rows()]
        assert values == [b"%d" % value for value in range(number, 200, 5)]


@proves("T1")
def test_append_time_stamps_the_batch_and_nothing_else(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p", settings=LogSettings(append_time=True))
    done = partition.append(batch(b"a", b"b", timestamp=5), NOW + 7)
    partition.commit()
    assert done.append_time == NOW + 7
    rows = list(partition.rows(0).rows())
    assert [(row.timestamp, row.value) for row in rows] == [(NOW + 7, b"a"), (NOW + 7, b"b")]
    assert partition.log.offset_at(NOW + 7) == (0, NOW + 7)


@proves("T1")
def test_segments_roll_by_age(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p", settings=LogSettings(segment_ms=1000))
    for now in (NOW, NOW + 999, NOW + 1000, NOW + 1001, NOW + 2500):
        partition.append(batch(b"x"), now)
    partition.commit()
    assert [segment.base_offset for segment in partition.log.segments()] == [0, 2, 4]
    again = partition.reopen()
    again.append(batch(b"y"), NOW + 3499)
    again.append(batch(b"z"), NOW + 3500)
    again.commit()
    assert [segment.base_offset for segment in again.log.segments()] == [0, 2, 4, 6], "age is counted over restarts"


@proves("T1")
def test_a_repeated_batch_is_acked_with_its_first_offset_when_that_is_durable(partition: Partition) -> None:
    first = partition.append(batch(b"a", b"b", producer=(7, 0, 0)))
    again = partition.append(batch(b"a", b"b", producer=(7, 0, 0)))
    assert (again.base_offset, again.last_offset, again.duplicate) == (first.base_offset, first.last_offset, True)
    assert partition.visible == []
    partition.commit()
    assert partition.visible == [(0, None), (0, None)]
    assert partition.values() == [b"a", b"b"]


@proves("T1")
def test_buffers_are_given_back_when_they_are_durable_or_failed(partition: Partition) -> None:
    given_back: list[int] = []
    for number in range(3):
        data = memoryview(batch(b"x"))
        partition.log.append(data, check(data), NOW, lambda number=number: given_back.append(number))
    assert given_back == []
    partition.commit()
    assert given_back == [0, 1, 2]


@proves("T1")
def test_those_who_wait_are_told_in_the_order_of_their_offsets(partition: Partition) -> None:
    told: list[int] = []
    for offset in (3, 1, 2, 0):
        partition.log.when_visible(offset, lambda error, offset=offset: told.append(offset))
    assert told == [0], "what is reached already is told at once"
    partition.put(b"1", b"2", b"3")
    assert told == [0, 1, 2, 3]


@proves("T1")
def test_about_how_many_bytes_lie_between_two_offsets_is_known_without_the_disk(partition: Partition) -> None:
    for number in range(40):
        partition.put(b"%d" % number * 300)
    log = partition.log
    total = sum(segment.size - 4096 for segment in log.segments())
    assert log.bytes_between(0, 40) == total
    assert log.bytes_between(40, 40) == 0
    assert 0 < log.bytes_between(38, 40) < log.bytes_between(10, 40) < total


@proves("T1")
def test_a_fault_of_ours_in_a_thread_comes_out_in_the_loop() -> None:
    events: SimpleQueue[None] = SimpleQueue()
    committer = Committer(RealFiles(), lambda: events.put(None))
    committer.background.submit(lambda: [].pop())
    events.get(timeout=180)
    with pytest.raises(IndexError):
        committer.drain()
    committer.stop()
