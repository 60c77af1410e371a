"""The file `ends`: what it says is true after a power cut and a flipped bit, it is written seldom, and stays small."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from log.partition import Partition, batch
from proving import proves
from tidelog.errors import DataFolderError, StorageError
from tidelog.log import ends as ends_file
from tidelog.log.ends import End, EndsFile, pack, pack_whole, read_ends, unpack
from tidelog.log.files import RealFiles
from tidelog.log.missing import MissingRecords, check_beginning, check_end
from tidelog.log.seal import sealed
from tidelog.log.settings import LogSettings
from tidelog.testing.disk import SimulatedDisk

A, B = "a" * 32 + "-0", "b" * 32 + "-7"
SMALL = LogSettings(segment_bytes=2000)


@proves("T6")
def test_a_later_line_counts_and_what_is_deleted_is_gone() -> None:
    content = pack_whole({A: End(0, 5, 0), B: End(1, 2, 3)}) + pack({A: End(2, 9, 1), B: None})
    assert unpack(content, "ends") == ({A: End(2, 9, 1)}, len(content), None)


@proves("T6")
def test_a_torn_last_line_is_passed_over_and_any_other_damage_is_told() -> None:
    first, second = pack_whole({A: End(0, 5, 0)}), pack({A: End(0, 9, 0)})
    for size in range(1, len(second)):
        assert unpack(first + second[:size], "ends") == ({A: End(0, 5, 0)}, -1, None)
    for position in range(len(first)):
        content = bytearray(first + second)
        content[position] ^= 0x04
        read = unpack(bytes(content), "ends")
        assert read.good_bytes == -1 and read.fault is not None
        assert read.table in ({}, {A: End(0, 9, 0)}), "what is good of it still counts, and nothing else does"


@proves("T6")
def test_a_newer_file_is_refused_by_number() -> None:
    with pytest.raises(DataFolderError, match="format version 2, newer than 1"):
        unpack(sealed(b"tidelog ends 2", ends_file.CRC), "ends")


@proves("T6")
def test_a_power_cut_at_any_step_leaves_what_was_saved_and_nothing_that_was_not_noted(tmp_path: Path) -> None:
    for step in range(1, 40):
        disk = SimulatedDisk(tmp_path / f"disk{step}")
        kept = EndsFile(f"{tmp_path}/disk{step}", disk)
        saved = noted = 0
        disk.cut_power_at(step)
        with suppress(OSError):
            for end in range(1, 20):
                kept.note(A, End(0, end, 0))
                noted = end
                kept.save(whole=end % 5 == 0)
                saved = end
        for seed in range(3):
            image = disk.crash(tmp_path / f"image{step}-{seed}", seed)
            read = read_ends(RealFiles(), str(image))
            found = read.table.get(A, End(0, 0, 0)).end_offset
            assert saved <= found <= noted, (step, seed)
            assert read.fault is None or saved == 0


@proves("T6")
def test_a_thousand_partitions_are_one_sync_and_nothing_new_is_none(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path / "disk")
    kept = EndsFile(str(tmp_path / "disk"), disk)
    kept.note(A, End(0, 1, 0))
    kept.save()
    for number in range(1000):
        kept.note(f"{number:032x}-0", End(0, number + 1, 0))
    before = disk.syncs
    kept.save()
    assert disk.syncs == before + 1
    kept.note(A, End(0, 1, 0))
    steps = disk.steps
    assert not kept.is_due
    kept.save()
    assert disk.steps == steps


@proves("T6")
def test_the_file_does_not_grow_with_what_was_written_to_the_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends_file, "GROWN_BYTES", 5000)
    kept = EndsFile(str(tmp_path), RealFiles())
    for end in range(1, 500):
        kept.note(A, End(0, end, 0))
        kept.note(B, End(0, end, 0))
        kept.save()
        assert (tmp_path / "ends").stat().st_size < 6000
    kept.forget(B)
    kept.note(B, End(0, 500, 0))  # by a thread that had looked at it before
    kept.save()
    assert read_ends(RealFiles(), str(tmp_path)).table == {A: End(0, 499, 0)}


@proves("T6")
def test_a_file_that_somebody_removes_is_made_anew(tmp_path: Path) -> None:
    kept = EndsFile(str(tmp_path), RealFiles())
    kept.note(A, End(0, 1, 0))
    kept.save()
    (tmp_path / "ends").unlink()
    kept.note(B, End(0, 1, 0))
    with suppress(OSError):
        kept.save()
    assert kept.is_due
    kept.save()
    assert set(read_ends(RealFiles(), str(tmp_path)).table) == {A, B}


@proves("T1")
@pytest.mark.parametrize(
    ("first", "facts_start", "end", "missing"),
    [
        (10, 0, 50, None),
        (0, 0, 50, None),
        (10, 0, 60, None),
        (20, 20, 50, None),
        (20, 25, 50, None),
        (20, 0, 50, (10, 20)),
        (20, 15, 50, (15, 20)),
        (10, 0, 49, (49, 50)),
        (10, 10, 10, (10, 50)),
        (-1, 0, 0, (10, 50)),
        (-1, 40, 0, (10, 50)),
    ],
)
def test_a_partition_must_have_what_is_known_but_for_what_lies_below_its_start(
    first: int, facts_start: int, end: int, missing: tuple[int, int] | None
) -> None:
    known = End(10, 50, 0)

    def check() -> None:
        check_beginning("p", known, first, facts_start)
        check_end("p", known, first, end)

    if missing is None:
        check()
        return
    with pytest.raises(MissingRecords) as raised:
        check()
    assert (raised.value.first, raised.value.end) == missing


@proves("T1")
@pytest.mark.parametrize("durable", [True, False])
def test_what_is_noted_of_a_partition_is_never_more_than_a_power_cut_leaves(tmp_path: Path, durable: bool) -> None:
    settings = LogSettings(segment_bytes=600, durable=durable)
    for step in range(1, 90, 2):
        disk = SimulatedDisk(tmp_path / f"disk{step}")
        folder = tmp_path / f"disk{step}" / "p"
        partition = Partition(folder, disk, settings)
        disk.cut_power_at(step)
        noted = End(0, 0, 0)
        with suppress(OSError, StorageError):
            for number in range(12):
                partition.append(batch(b"%d " % number * 20))
                partition.committer.write_round()
                partition.committer.drain()
                if number % 3 == 2:
                    partition.commit()
                if number == 8:
                    partition.log.delete_before(partition.log.high_watermark - 1)
                for tail in list(partition.committer.moved):
                    if tail.synced is not None:
                        noted = End(tail.owner.standing()[0], tail.synced.offset, tail.owner.standing()[1])
        for seed in range(2):
            image = disk.crash(tmp_path / f"image{step}-{seed}", seed)
            again = Partition(image / "p", RealFiles(), settings)  # which knows of nothing
            end = again.log.end_offset
            assert end >= noted.end_offset
            log = again.log.open(str(image / "p"), RealFiles(), settings, again.committer, end=noted)
            assert log.end_offset == end
