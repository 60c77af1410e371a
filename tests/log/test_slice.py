"""Slices: what may be sent at once, what must be read and checked first, and how long a file stays open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from log.partition import Partition, batch
from proving import proves
from tidelog.errors import HoleError
from tidelog.log.files import RealFiles
from tidelog.log.segment import RECENT_BATCHES, CheckedRanges
from tidelog.log.settings import LogSettings
from tidelog.log.slice import Cold
from tidelog.record.columns import decode
from tidelog.testing.disk import SimulatedDisk, flip_bit

SETTINGS = LogSettings(segment_bytes=50_000, index_interval_bytes=400)


@pytest.fixture
def disk(tmp_path: Path) -> SimulatedDisk:
    return SimulatedDisk(tmp_path / "disk")


def filled(disk: SimulatedDisk, count: int = 30, settings: LogSettings = SETTINGS) -> Partition:
    partition = Partition(disk.folder / "p", disk, settings)
    for number in range(count):
        partition.put(b"%d" % number * 200)
    return partition


def filled_beyond_what_is_known_one_by_one(disk: SimulatedDisk) -> Partition:
    return filled(disk, 3 * RECENT_BATCHES, LogSettings(segment_bytes=1 << 30, index_interval_bytes=4096))


@proves("T1")
def test_what_this_process_wrote_and_is_cached_may_be_sent_at_once(disk: SimulatedDisk) -> None:
    partition = filled(disk)
    piece = partition.log.read(3, 5000, wait=False)
    assert piece is not None
    assert piece.is_hot()
    assert piece.read_hot() == piece.read()
    disk.cached = False
    assert not piece.is_hot()
    assert piece.read_hot() is None


@proves("T1")
def test_after_a_restart_bytes_are_checked_before_they_are_sent_and_then_not_again(disk: SimulatedDisk) -> None:
    partition = filled(disk).reopen()
    piece = partition.log.read(3, 5000)
    assert piece is not None
    assert not piece.is_hot(), "cached or not: nobody has checked them"
    assert piece.read_hot() is None
    piece.warm()
    assert piece.is_hot()
    again = partition.log.read(4, 2000)
    assert again is not None
    assert again.is_hot()
    further = partition.log.read(20, 2000)
    assert further is not None
    assert not further.is_hot()


@proves("T1")
def test_what_is_in_memory_is_found_without_waiting_however_far_behind(disk: SimulatedDisk) -> None:
    partition = filled_beyond_what_is_known_one_by_one(disk)
    for offset in (0, 7, RECENT_BATCHES, 3 * RECENT_BATCHES - 1):
        piece = partition.log.read(offset, 5000, wait=False)
        assert piece is not None
        assert piece.is_hot()
        assert decode(piece.read()).offsets[0] == offset


@proves("T1")
def test_a_bad_header_on_the_way_is_left_to_a_thread_that_may_wait(disk: SimulatedDisk) -> None:
    partition = filled_beyond_what_is_known_one_by_one(disk)
    place = partition.log.read(7, 1, wait=False)
    assert place is not None
    path = sorted((disk.folder / "p").glob("*.log"))[0]
    flip_bit(path, place.position, 0)
    with pytest.raises(Cold):
        partition.log.read(7, 1, wait=False)


@proves("T1")
def test_to_find_a_place_on_the_disk_is_refused_when_nobody_may_wait(disk: SimulatedDisk) -> None:
    partition = filled(disk).reopen(clean=True)
    with pytest.raises(Cold):
        partition.log.read(3, 100, wait=False)
    assert partition.log.read(3, 100) is not None
    disk.cached = False
    with pytest.raises(Cold):
        partition.log.read(9, 100, wait=False)
    partition.put(b"new")
    assert partition.log.read(30, 100, wait=False) is not None, "recent batches are known one by one"


@proves("T1")
def test_a_slice_is_whole_batches_and_never_goes_beyond_what_is_visible(disk: SimulatedDisk) -> None:
    partition = filled(disk)
    partition.append(batch(b"not yet visible"))
    partition.committer.write_round()
    for max_bytes in range(1, 4000, 97):
        piece = partition.log.read(10, max_bytes)
        assert piece is not None
        rows = list(decode(piece.read(), partial=False).rows())
        assert rows[0].offset == 10
        assert rows[-1].offset <= 29
    assert partition.log.read(10, 10, min_one=False) is None


@proves("T1")
def test_a_limit_ends_a_slice_earlier_than_the_high_watermark(disk: SimulatedDisk) -> None:
    for partition in (filled(disk), Partition(disk.folder / "p", disk, SETTINGS)):
        piece = partition.log.read(5, 1 << 20, limit=9)
        assert piece is not None
        assert [row.offset for row in decode(piece.read()).rows()] == [5, 6, 7, 8]
        assert partition.log.read(9, 1 << 20, limit=9) is None


@proves("T1")
def test_a_bad_header_on_the_way_does_not_hide_the_batch_behind_it(disk: SimulatedDisk, tmp_path: Path) -> None:
    filled(disk, 6)
    path = next((disk.folder / "p").glob("*.log"))
    size = len(batch(b"1" * 200))
    flip_bit(path, 4096 + size + 26, 6)  # the second batch now says that it has 65 records
    partition = Partition(disk.folder / "p", SimulatedDisk(disk.folder), LogSettings(index_interval_bytes=100_000))
    piece = partition.log.read(4, 100)
    assert piece is not None
    piece.warm()
    assert [row.value for row in decode(piece.read()).rows()] == [b"4" * 200]
    with pytest.raises(HoleError, match="offsets 1 to 1"):
        partition.log.read(1, 100)


@proves("T1")
def test_a_released_slice_lets_go_of_its_file(disk: SimulatedDisk) -> None:
    partition = filled(disk, 2)
    piece = partition.log.read(0, 100)
    assert piece is not None
    fd = piece.fileno()
    partition.log.destroy()
    partition.commit()
    os.fstat(fd)
    piece.release()
    with pytest.raises(OSError):
        os.fstat(fd)


@proves("T1")
def test_ranges_that_were_checked_grow_together() -> None:
    ranges = CheckedRanges(own_from=1000)
    assert ranges.covers(1000, 5000)
    assert not ranges.covers(999, 1001)
    ranges.add(100, 200)
    ranges.add(300, 400)
    assert ranges.covers(120, 180)
    assert not ranges.covers(150, 350)
    ranges.add(200, 300)
    assert ranges.covers(100, 400)
    ranges.add(400, 1000)
    assert ranges.covers(250, 3000), "what was checked reaches to what is our own"


@proves("T1")
def test_the_real_disk_says_what_is_cached(tmp_path: Path) -> None:
    files = RealFiles()
    path = str(tmp_path / "file")
    fd = files.open(path, create=True)
    files.write(fd, [b"x" * 1_000_000], 0)
    files.sync(fd)
    assert files.is_cached(fd, 0, 1_000_000)
    files.forget(fd, 0, 1_000_000)
    cold = not files.is_cached(fd, 0, 1_000_000)
    assert not cold or files.read_cached(fd, 1_000_000, 0) is None
    files.read(fd, 1_000_000, 0)
    assert files.is_cached(fd, 0, 1_000_000)
    assert files.read_cached(fd, 5, 999_995) == b"xxxxx"
    assert files.read_cached(fd, 5, 999_996) is None, "the file ends before"
    files.close(fd)
    if not cold:
        pytest.skip("this file system keeps its pages or cannot tell")


@proves("T1")
def test_the_real_disk_syncs_files_folders_and_all(tmp_path: Path) -> None:
    files = RealFiles()
    files.make_folder(f"{tmp_path}/a")
    fd = files.open(f"{tmp_path}/a/b", create=True)
    assert files.write(fd, [b"12", b"345"], 3) == 5
    files.truncate(fd, 7)
    assert files.size(fd) == 7
    assert files.read(fd, 100, 2) == b"\x001234"
    files.sync(fd)
    files.close(fd)
    files.rename(f"{tmp_path}/a/b", f"{tmp_path}/a/c")
    files.sync_folder(f"{tmp_path}/a")
    files.sync_all(str(tmp_path))
    assert files.list(f"{tmp_path}/a") == [("c", 7)]
    files.remove(f"{tmp_path}/a/c")
    files.remove_folder(f"{tmp_path}/a")
    assert files.list(str(tmp_path)) == []
    assert files.free_bytes(str(tmp_path)) > 0
