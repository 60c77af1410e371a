"""What a stop of any kind leaves: tails are cut, holes stay, indexes and heads are made anew, and little is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from log.partition import NOW, Partition, batch
from proving import proves
from tidelog.errors import DataFolderError, HoleError, OutOfOrderSequence, StorageError
from tidelog.log import snapshot
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.settings import LogSettings
from tidelog.record.codec import crc32c
from tidelog.testing.disk import SimulatedDisk, flip_bit

SMALL = LogSettings(segment_bytes=20_000, index_interval_bytes=500)


def filled(folder: Path, count: int = 40, settings: LogSettings = SMALL) -> Partition:
    partition = Partition(folder, settings=settings)
    for number in range(count):
        partition.append(batch(b"%d " % number * 300, producer=(9, 0, number)))
        partition.commit()
    return partition


def values(count: int) -> list[bytes]:
    return [b"%d " % number * 300 for number in range(count)]


def logs(partition: Partition) -> list[Path]:
    return sorted(partition.folder.glob("*.log"))


# Above the synced offset ----------------------------------------------------------------------------------------------


@proves("T1")
@pytest.mark.parametrize("garbage", [b"\0" * 5000, b"\xff" * 100, b"x", bytes(batch(b"another's"))])
def test_what_follows_the_last_good_batch_is_cut_and_kept_in_a_file(tmp_path: Path, garbage: bytes) -> None:
    partition = filled(tmp_path / "p", 5)
    with logs(partition)[-1].open("ab") as file:
        file.write(garbage)
    again = partition.reopen()
    assert again.values() == values(5)
    report = again.log.recovery
    assert report.cut_bytes == len(garbage)
    assert (tmp_path / "p" / report.cut_file).read_bytes() == garbage
    assert any(f"cut {len(garbage)} bytes" in line for line in report.lines())
    assert again.put(b"next").base_offset == 5
    assert partition.reopen().log.recovery.cut_bytes == 0


@proves("T1")
def test_good_batches_behind_a_bad_one_are_cut_too(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 3)
    size = logs(partition)[-1].stat().st_size
    for number in range(3, 6):
        partition.append(batch(b"%d " % number * 300))
    partition.commit()
    flip_bit(logs(partition)[-1], size + 100)
    again = partition.reopen()
    assert again.values() == values(3)
    assert again.log.end_offset == 3


@proves("T1")
def test_side_files_of_cuts_do_not_pile_up(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 1)
    for _ in range(12):
        with logs(partition)[-1].open("ab") as file:
            file.write(b"garbage")
        partition = partition.reopen()
        partition.put(b"more")
    assert len(list((tmp_path / "p").glob("*.cut"))) <= 8


# At and below it ------------------------------------------------------------------------------------------------------


@proves("T1")
def test_a_bad_batch_that_was_synced_is_a_hole_and_its_neighbours_are_read(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 12)
    first = logs(partition)[0]
    position = HEADER_BLOCK
    for _ in range(3):
        position += len(batch(b"0 " * 300, producer=(9, 0, 0)))
    flip_bit(first, position + 200)
    again = partition.reopen()
    assert again.log.end_offset == 12
    assert [row.value for row in again.rows(0, 1).rows()] == values(1)
    piece = again.log.read(0, 1 << 20)
    piece.warm()
    assert piece.size == position - HEADER_BLOCK, "the slice ends before the hole"
    with pytest.raises(HoleError, match=r"offsets 3 to 3 in .* tidelog repair --skip"):
        again.log.read(3, 1).warm()
    again.commit()
    with pytest.raises(HoleError):
        again.log.read(3, 1)
    assert [row.value for row in again.rows(4, 1).rows()] == values(12)[4:5]
    assert any("offsets 3 to 3 are damaged" in line for line in again.trouble)


@proves("T1")
def test_a_hole_is_passed_after_repair_and_what_was_lost_is_written_down(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 12)
    flip_bit(logs(partition)[0], HEADER_BLOCK + 30)
    again = partition.reopen()
    with pytest.raises(HoleError):
        again.values()
    again.commit()
    assert [hole[:2] for hole in again.log.repair(skip=False)] == [(0, 1)]
    assert [hole[:2] for hole in again.log.repair(skip=True)] == [(0, 1)]
    assert again.log.repair(skip=False) == ()
    assert again.values() == values(12)[1:]
    assert "hole 0 1 0 4096" in (tmp_path / "p" / "partition").read_text()
    third = again.reopen()
    assert third.values() == values(12)[1:]
    assert [hole[:2] for hole in third.log.holes] == [(0, 1)]


@proves("T1")
def test_a_bad_header_between_the_index_and_the_synced_offset_is_found_when_opening(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 8)
    flip_bit(logs(partition)[-1], HEADER_BLOCK + 9, 3)  # the length of the first batch
    again = partition.reopen()
    hole = again.log.recovery.holes[0]
    assert hole.end_offset == hole.base_offset + 1
    assert again.log.end_offset == 8
    with pytest.raises(HoleError):
        again.log.read(hole.base_offset, 1)
    assert again.rows(hole.end_offset, 1) is not None
    third = again.reopen()
    assert again.log.holes == third.log.holes == (hole,), "it is known from then on, and not found anew"
    assert third.log.recovery.holes == ()


@proves("T1")
def test_a_file_that_lost_synced_bytes_has_a_hole_at_its_end_and_offsets_are_not_given_again(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 6)
    last = logs(partition)[-1]
    data = last.read_bytes()
    last.write_bytes(data[:-1500])
    again = partition.reopen()
    assert any("synced bytes are missing" in what for what in again.log.recovery.mended)
    assert again.log.end_offset == 5, "the last commit was not recorded yet; the one before it was"
    assert again.put(b"after").base_offset == 5
    with pytest.raises(HoleError):
        again.values()
    assert [row.value for row in again.rows(5).rows()] == [b"after"]


@proves("T1")
def test_a_complete_segment_that_is_too_short_has_a_hole_up_to_the_next(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 40)
    first, second = logs(partition)[:2]
    first.write_bytes(first.read_bytes()[:-10])
    again = partition.reopen()
    following = int(second.stem)
    with pytest.raises(HoleError):
        again.log.read(following - 1, 1)
    assert again.rows(following) is not None


# What can be made anew ------------------------------------------------------------------------------------------------


@proves("T1")
@pytest.mark.parametrize("harm", ["remove", "empty", "garbage", "short", "flip"])
def test_a_missing_or_broken_index_is_made_anew(tmp_path: Path, harm: str) -> None:
    partition = filled(tmp_path / "p", 40)
    for path in (tmp_path / "p").glob("*.index"):
        data = path.read_bytes()
        if harm == "remove":
            path.unlink()
        elif harm == "flip":
            flip_bit(path, len(data) // 2)
        else:
            path.write_bytes({"empty": b"", "garbage": b"\xff" * 500, "short": data[:-7]}[harm])
    again = partition.reopen()
    for offset in range(40):
        assert next(again.rows(offset, 1).rows()).offset == offset
    assert again.log.offset_at(NOW) == (0, NOW)
    assert again.log.holes == ()
    complete = logs(again)[0].with_suffix(".index")
    assert complete.stat().st_size > 100, "and it is on the disk again"


@proves("T1")
def test_a_head_that_is_not_good_is_made_anew(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 6)
    flip_bit(logs(partition)[-1], 15)
    again = partition.reopen()
    assert any("head of segment" in what for what in again.log.recovery.mended)
    assert again.values() == values(6)


@proves("T1")
def test_a_segment_that_was_being_made_is_made_again(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 6)
    (tmp_path / "p" / f"{6:020d}.log").write_bytes(b"\0" * 100)
    again = partition.reopen()
    assert again.values() == values(6)
    again.put(b"6")
    assert again.values() == [*values(6), b"6"]
    assert again.reopen().values() == [*values(6), b"6"]


@proves("T1")
def test_broken_facts_are_made_anew_from_the_batches(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p", settings=LogSettings(durable=False))
    partition.put(b"a")
    partition = partition.reopen()
    partition.put(b"b")
    assert partition.log.leader_epoch == 1
    flip_bit(tmp_path / "p" / "partition", 3)
    again = partition.reopen()
    assert again.log.leader_epoch >= 1
    assert again.values() == [b"a", b"b"]


@proves("T6")
def test_a_partition_of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 2)
    text = b"tidelog partition 9\n"
    (tmp_path / "p" / "partition").write_bytes(text + b"crc %08x\n" % crc32c(text))
    with pytest.raises(DataFolderError, match="partition has format 9, newer than 2"):
        partition.reopen()


@proves("T1")
def test_left_overs_of_interrupted_work_go(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 2)
    for name in ("partition.tmp", "00000000000000000099.log.deleted"):
        (tmp_path / "p" / name).write_bytes(b"x")
    partition.reopen()
    assert not list((tmp_path / "p").glob("*.tmp")) + list((tmp_path / "p").glob("*.deleted"))


@proves("T6")
@pytest.mark.parametrize("clean", [False, True], ids=["after a crash", "after a clean stop"])
def test_indexes_of_segments_that_are_gone_are_removed_and_others_stay(tmp_path: Path, clean: bool) -> None:
    """A crash between the two removals leaves one; so does a reader that mends an index while its segment goes."""
    partition = filled(tmp_path / "p", 40)
    there = {path.with_suffix(".index") for path in logs(partition)[:-1]}
    mark = partition.log.close() if clean else None
    folder = tmp_path / "p"
    gone = [folder / f"{99:020d}.index", folder / f"{0:020d}-{10:020d}-2.index"]
    for path in gone:
        path.write_bytes(logs(partition)[0].with_suffix(".index").read_bytes())
    again = Partition(folder, settings=SMALL, clean=mark)
    assert again.values() == values(40)
    assert there and all(path.exists() for path in there)
    assert not any(path.exists() for path in gone)


@proves("T6")
def test_files_that_somebody_else_has_put_there_are_left_alone(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 2)
    names = ("notes.log", "copy of 00000000000000000000.log", "7.log", "-1.producers", ".log", "x.index")
    for name in names:
        (tmp_path / "p" / name).write_bytes(b"x")
    again = partition.reopen()
    assert again.values() == values(2)
    again.put(b"2")
    assert again.reopen().log.end_offset == 3
    assert all((tmp_path / "p" / name).read_bytes() == b"x" for name in names)


@proves("T6")
def test_what_a_hole_has_taken_is_counted_also_when_its_segment_is_gone(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 40)
    flip_bit(logs(partition)[0], logs(partition)[0].read_bytes().index(b"3 3 3 "), 1)
    again = partition.reopen()
    while not again.log.scrub(1 << 20).finished:
        pass
    again.commit()
    (hole,) = again.log.holes
    assert (hole.base_offset, again.log.batches_in(hole)) == (3, 1)
    again.log.delete_before(39)
    again.commit()
    assert again.log.batches_in(hole) is None


# Producers ------------------------------------------------------------------------------------------------------------


@proves("T1")
@pytest.mark.parametrize("snapshots", ["kept", "removed", "broken"])
def test_producers_are_known_again_with_or_without_snapshots(tmp_path: Path, snapshots: str) -> None:
    partition = filled(tmp_path / "p", 40)
    for path in (tmp_path / "p").glob("*.producers"):
        if snapshots == "removed":
            path.unlink()
        elif snapshots == "broken":
            flip_bit(path, 50)
    again = partition.reopen()
    repeated = again.append(batch(b"39 " * 300, producer=(9, 0, 39)))
    assert (repeated.duplicate, repeated.base_offset) == (True, 39)
    with pytest.raises(OutOfOrderSequence):
        again.append(batch(b"gap", producer=(9, 0, 41)))
    assert again.append(batch(b"next", producer=(9, 0, 40))).base_offset == 40


@proves("T1")
def test_a_repetition_is_known_by_its_append_time_after_a_restart(tmp_path: Path) -> None:
    settings = LogSettings(append_time=True)
    partition = Partition(tmp_path / "p", settings=settings)
    first = partition.append(batch(b"a", producer=(1, 0, 0)), NOW + 5)
    partition.commit()
    assert first.append_time == NOW + 5
    again = partition.reopen().append(batch(b"a", producer=(1, 0, 0)), NOW + 99)
    assert (again.duplicate, again.append_time) == (True, NOW + 5)


# How much is read -----------------------------------------------------------------------------------------------------


class CountingDisk(SimulatedDisk):
    read_bytes = 0

    def read(self, fd: int, size: int, position: int) -> bytes:
        data = super().read(fd, size, position)
        self.read_bytes += len(data)
        return data


@proves("T1")
def test_an_unclean_open_reads_no_more_for_a_larger_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.log.appending.SNAPSHOT_BYTES", 20_000)
    settings = LogSettings(segment_bytes=200_000)
    read = []
    for count in (30, 300):
        partition = Partition(tmp_path / str(count), settings=settings)
        for number in range(count):
            partition.append(batch(b"x" * 2000, producer=(9, 0, number)))
            partition.commit()
        disk = CountingDisk(tmp_path / str(count))
        again = Partition(tmp_path / str(count), disk, settings)
        assert again.log.end_offset == count
        read.append(disk.read_bytes)
    assert max(read) < 60_000


@proves("T1")
def test_a_clean_open_touches_no_file_before_it_is_used(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 40)
    mark = partition.log.close()
    assert mark is not None
    assert len(list(mark)) == 5
    disk = CountingDisk(tmp_path)
    again = Partition(tmp_path / "p", disk, SMALL, mark)
    log = again.log
    assert disk.steps == 0
    assert (log.start_offset, log.high_watermark, log.end_offset) == (0, 40, 40)
    assert log.size_bytes == mark.size_bytes == sum(path.stat().st_size for path in logs(partition))
    assert not log.loaded
    assert log.close() == mark, "a log that was not used is as it was"
    assert again.values() == values(40)
    assert log.recovery.scanned_bytes == 0
    assert again.append(batch(b"39 " * 300, producer=(9, 0, 39))).duplicate


@proves("T1")
def test_a_mark_that_does_not_fit_is_not_believed(tmp_path: Path) -> None:
    partition = filled(tmp_path / "p", 6)
    mark = partition.log.close()
    assert mark is not None
    with logs(partition)[-1].open("ab") as file:
        file.write(b"garbage")
    again = Partition(tmp_path / "p", settings=SMALL, clean=mark)
    assert again.values() == values(6)
    assert again.log.recovery.cut_bytes == 7


@proves("T1")
def test_an_empty_partition_has_no_folder_and_a_mark_all_the_same(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p")
    mark = partition.log.close()
    assert mark is not None
    assert not (tmp_path / "p").exists()
    again = Partition(tmp_path / "p", clean=mark)
    assert again.log.read(0, 100) is None
    assert again.put(b"a").base_offset == 0


@proves("T1")
def test_snapshots_are_taken_at_each_roll_and_after_so_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.log.appending.SNAPSHOT_BYTES", 5_000)
    partition = filled(tmp_path / "p", 60)
    names = sorted(path.name for path in (tmp_path / "p").glob("*.producers"))
    assert len(names) == snapshot.KEPT
    newest = snapshot.unpack((tmp_path / "p" / names[-1]).read_bytes(), names[-1])
    assert newest is not None
    assert newest.producers[9].last_sequence == newest.offset - 1
    assert partition.reopen().log.producers[9].last_sequence == 59


@proves("T1")
@pytest.mark.parametrize("lost", ["folder", "last segment"])
def test_a_partition_that_has_lost_what_its_mark_says_is_not_taken_for_a_shorter_one(tmp_path: Path, lost: str) -> None:
    partition = filled(tmp_path / "p", 40)
    mark = partition.log.close()
    for path in sorted((tmp_path / "p").iterdir()):
        if lost == "folder" or path == logs(partition)[-1] or path.suffix == ".producers":
            path.unlink()
    log = Partition(tmp_path / "p", settings=SMALL, clean=mark).log
    with pytest.raises(
        StorageError, match=r"had offsets 0 to 39 and has .* missing.*; put back what is missing, or restore the data"
    ):
        log.read(0, 100)
