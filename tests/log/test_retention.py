"""Deleting: by time, by size, up to an offset, everything. And checking what is old before it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path

import pytest

from log.partition import NOW, Partition, UnsyncedFiles, batch
from proving import proves
from tidelog.errors import HoleError, OffsetOutOfRange, StorageError
from tidelog.log.retention import SegmentFacts, expired
from tidelog.log.settings import FOREVER, LogSettings
from tidelog.testing.disk import SimulatedDisk, flip_bit

SETTINGS = LogSettings(segment_bytes=6000, index_interval_bytes=300, retention_ms=1000)
OLD = NOW + 10_000


def filled(folder: Path, count: int = 20, settings: LogSettings = SETTINGS) -> Partition:
    partition = Partition(folder, settings=settings)
    for number in range(count):
        partition.put(b"%d" % number * 400, timestamp=NOW + number)
    return partition


def facts(*segments: tuple[int, int | None]) -> list[SegmentFacts]:
    """Segments of (size, latest timestamp), ten offsets each."""
    return [SegmentFacts(number * 10, number * 10 + 10, size, latest) for number, (size, latest) in enumerate(segments)]


@proves("T1")
@pytest.mark.parametrize(
    ("segments", "settings", "now", "count"),
    [
        (facts((100, 5), (100, 6), (100, 7)), replace(SETTINGS, retention_ms=10), 16, 1),
        (facts((100, 5), (100, 6), (100, 7)), replace(SETTINGS, retention_ms=10), 1000, 2),
        (facts((100, 50), (100, 6), (100, 7)), replace(SETTINGS, retention_ms=10), 55, 0),
        (facts((100, None), (100, 6)), replace(SETTINGS, retention_ms=10), 1000, 0),
        (facts((100, 5), (100, 6)), replace(SETTINGS, retention_ms=FOREVER), 10**15, 0),
        (facts((100, 5), (100, 6), (100, 7)), replace(SETTINGS, retention_ms=FOREVER, retention_bytes=200), 0, 1),
        (facts((100, 5), (100, 6), (100, 7)), replace(SETTINGS, retention_ms=FOREVER, retention_bytes=201), 0, 0),
        (facts((100, 5), (100, 6), (100, 7)), replace(SETTINGS, retention_ms=FOREVER, retention_bytes=0), 0, 2),
    ],
)
def test_whole_segments_go_the_oldest_first_and_the_last_stays(
    segments: list[SegmentFacts], settings: LogSettings, now: int, count: int
) -> None:
    assert expired(segments, settings, now, 0) == count


@proves("T1")
def test_what_is_old_is_deleted_and_the_rest_can_be_read(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p")
    before = len(partition.log.segments())
    assert partition.log.apply_retention(NOW + 1009) > 0
    partition.commit()
    start = partition.log.start_offset
    assert 0 < start < 20
    assert len(list((tmp_path / "p").glob("*.log"))) == len(partition.log.segments()) < before
    assert partition.values() == [b"%d" % number * 400 for number in range(start, 20)]
    with pytest.raises(OffsetOutOfRange):
        partition.log.read(start - 1, 100)
    assert partition.reopen().log.start_offset == start


@proves("T1")
def test_a_segment_that_grows_is_rolled_when_all_of_it_is_old_and_offsets_go_on(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p")
    for _ in range(4):
        partition.log.apply_retention(OLD)
        partition.commit()
    assert partition.log.start_offset == partition.log.end_offset == 20
    assert partition.values() == []
    again = partition.reopen()
    assert again.log.end_offset == 20
    assert again.put(b"new").base_offset == 20


@proves("T1")
def test_a_segment_that_is_being_made_is_not_made_again(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 1)
    for _ in range(3):
        partition.log.apply_retention(OLD)  # each sees a last segment that is old, before the disk has done anything
    done = partition.put(b"new", timestamp=OLD)
    assert (done.base_offset, partition.visible[-1], partition.trouble) == (1, (1, None), [])
    assert partition.log.end_offset == partition.reopen().log.end_offset == 2


@proves("T1")
def test_an_offline_partition_plans_no_segments(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path / "disk")
    partition = Partition(disk.folder / "p", disk, SETTINGS)
    partition.put(b"acked")
    disk.fail("sync", OSError(ENOSPC, "no"), name=".log")
    partition.append(batch(b"lost"))
    partition.commit()
    assert partition.log.offline is not None
    size = partition.log.size_bytes
    for _ in range(5):
        partition.log.apply_retention(OLD)
        partition.commit()
    assert partition.log.size_bytes <= size + 4096


@proves("T1")
def test_after_a_restart_the_latest_timestamp_of_a_segment_is_looked_up_when_needed(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p").reopen(clean=True)
    deleted: list[int] = []
    partition.log.on_deleted = deleted.append
    partition.log.apply_retention(OLD)
    partition.commit()
    assert sum(deleted) > 1, "all of them, without being asked again for each"
    assert len(partition.log.segments()) == 1
    for _ in range(2):  # the last one is rolled first
        partition.log.apply_retention(OLD)
        partition.commit()
    assert partition.values() == []


@proves("T1")
def test_only_what_is_old_is_looked_up_after_a_restart(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p").reopen(clean=True)
    partition.log.apply_retention(NOW + 5)
    partition.commit()
    known = [segment.max_timestamp is not None for segment in partition.log.segments()]
    assert known == [True] + [False] * (len(known) - 2) + [True]


@proves("T1")
@pytest.mark.parametrize("reopened", [False, True])
def test_records_without_a_timestamp_are_as_old_as_their_segment(tmp_path: Path, reopened: bool) -> None:
    partition = Partition(tmp_path / "p", settings=SETTINGS)
    for number in range(20):
        data = batch(b"%d" % number * 400, timestamp=-1)
        partition.append(data, now_ms=NOW + number)
        partition.commit()
    if reopened:
        partition = partition.reopen(clean=True)
    partition.log.apply_retention(NOW + 900)
    partition.commit()
    assert partition.log.start_offset == 0
    partition.log.apply_retention(OLD)
    partition.commit()
    assert partition.log.start_offset > 0
    assert len(partition.log.segments()) == 1


@proves("T1")
def test_a_slice_in_flight_outlives_its_segment(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p")
    piece = partition.log.read(0, 1)
    assert piece is not None
    before = piece.read()
    partition.log.delete_before(20)
    partition.commit()
    assert not (tmp_path / "p" / f"{0:020d}.log").exists()
    assert piece.read() == before
    piece.release()


@proves("T1")
def test_records_are_deleted_up_to_an_offset_and_stay_so(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p")
    done: list[StorageError | None] = []
    partition.log.delete_before(13, done.append)
    partition.commit()
    assert done == [None]
    assert partition.values() == [b"%d" % number * 400 for number in range(13, 20)]
    again = partition.reopen()
    assert again.log.start_offset == 13
    with pytest.raises(OffsetOutOfRange):
        again.log.read(12, 100)
    with pytest.raises(OffsetOutOfRange):
        again.log.delete_before(21)
    assert again.log.offset_at(0) == (13, NOW + 13)


@proves("T1")
def test_old_segments_can_be_deleted_from_a_disk_without_any_room(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path / "disk")
    partition = Partition(disk.folder / "p", disk, SETTINGS)
    for number in range(20):
        partition.append(batch(b"%d" % number * 400, producer=(4, 0, number)))
        partition.commit()
    disk.capacity = disk._used()
    partition.append(batch(b"refused" * 100, producer=(4, 0, 20)))
    partition.commit()
    assert partition.visible[-1][1] is not None
    assert partition.log.apply_retention(OLD) > 0
    partition.commit()
    (refused,) = partition.trouble
    assert refused.startswith("appends are refused: no room")
    partition.append(batch(b"room again", producer=(4, 0, 20)))
    partition.commit()
    assert partition.visible[-1][1] is None
    assert partition.trouble[1:] == ["appends are taken again"]
    assert partition.reopen().append(batch(b"room again", producer=(4, 0, 20))).duplicate


@proves("T1")
def test_a_deletion_that_cannot_be_saved_is_told_and_tried_again(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path / "disk")
    partition = Partition(disk.folder / "p", disk, SETTINGS)
    for number in range(20):
        partition.put(b"%d" % number * 400)
    disk.fail("create", OSError(ENOSPC, "full"), name="partition")
    done: list[StorageError | None] = []
    partition.log.delete_before(12, done.append)
    partition.commit()
    assert isinstance(done[0], StorageError)
    assert partition.trouble
    partition.log.delete_before(12, done.append)
    partition.commit()
    assert done[1] is None
    assert not (disk.folder / "p" / f"{0:020d}.log").exists()


@proves("T1")
def test_a_deleted_partition_leaves_nothing_and_tells_those_who_wait(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p")
    partition.append(batch(b"in flight"))
    partition.log.destroy()
    partition.commit()
    assert list(tmp_path.iterdir()) == []
    assert isinstance(partition.visible[-1][1], StorageError)
    with pytest.raises(StorageError, match="was deleted"):
        partition.append(batch(b"too late"))


@proves("T1")
def test_a_power_cut_while_a_partition_is_deleted_leaves_it_whole_or_not_at_all(tmp_path: Path) -> None:
    for step in range(1, 30):
        disk = SimulatedDisk(tmp_path / f"disk{step}")
        partition = Partition(disk.folder / "p", disk, SETTINGS)
        for number in range(8):
            partition.put(b"%d" % number * 400)
        before = partition.values()
        disk.cut_power_at(step)
        partition.log.destroy()
        partition.commit()
        for seed in range(4):
            image = disk.crash(tmp_path / f"image{step}-{seed}", seed)
            if (image / "p").exists():
                assert Partition(image / "p", settings=SETTINGS).values() == before
        if not disk.is_off:
            return
    raise AssertionError("the deletion has no end")


@proves("T1")
def test_producers_that_have_not_written_for_long_are_forgotten(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p", settings=replace(SETTINGS, producer_expiration_ms=500))
    partition.append(batch(b"a", producer=(1, 0, 0)), NOW)
    partition.append(batch(b"b", producer=(2, 0, 0)), NOW + 400)
    partition.commit()
    partition.log.forget_producers(NOW + 600)
    assert list(partition.log.producers) == [2]


class InterruptedFiles(UnsyncedFiles):
    """Something happens when a file is opened for the first time, as if another thread had done it."""

    def __init__(self) -> None:
        super().__init__()
        self.interruptions: dict[str, Callable[[], None]] = {}

    def open(self, path: str, *, create: bool = False) -> int:
        self.interruptions.pop(Path(path).name, lambda: None)()
        return super().open(path, create=create)


@proves("T1")
def test_segments_that_are_deleted_while_they_are_looked_at_are_not_taken_for_damaged_ones(tmp_path: Path) -> None:
    filled(tmp_path / "p")
    files = InterruptedFiles()
    again = Partition(tmp_path / "p", files, SETTINGS)

    def delete() -> None:
        again.log.delete_before(20)
        for path in (tmp_path / "p").glob("*.index"):  # they go before the segments do
            path.unlink()

    files.interruptions[f"{0:020d}.index"] = delete
    again.log.offset_at(NOW + 15)
    again.commit()
    assert (again.log.holes, again.trouble) == ((), [])
    assert again.log.start_offset == 20


# Scrubbing ------------------------------------------------------------------------------------------------------------


@proves("T1")
def test_a_scrub_checks_everything_a_little_at_a_time_and_begins_anew(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p").reopen()
    total = sum(segment.size - 4096 for segment in partition.log.segments())
    for _ in range(2):
        checked, finished, rounds = 0, False, 0
        while not finished:
            result = partition.log.scrub(1000)
            checked, finished, rounds = checked + result.checked_bytes, result.finished, rounds + 1
            assert result.holes == ()
        assert checked == total
        assert rounds > 5


@proves("T1")
def test_a_scrub_finds_rot_before_a_reader_does(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p").reopen()
    second = sorted((tmp_path / "p").glob("*.log"))[1]
    flip_bit(second, 4096 + 150)
    flip_bit(second, 4096 + 2 * len(batch(b"4" * 400)) + 150)
    found = []
    finished = False
    while not finished:
        _, holes, finished = partition.log.scrub(2000)
        found += [hole[:2] for hole in holes]
    first = int(second.stem)
    assert found == [(first, first + 1), (first + 2, first + 3)]
    partition.commit()
    with pytest.raises(HoleError):
        partition.log.read(first, 1)
    assert len(partition.trouble) == len(partition.log.holes) > 0


@proves("T1")
def test_an_empty_partition_is_scrubbed_at_once(tmp_path: Path) -> None:
    assert Partition(tmp_path / "p").log.scrub(1000) == (0, (), True)
