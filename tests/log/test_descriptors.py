"""No descriptors left, in the process or in the machine: a write is refused, and nothing goes offline for it."""

from __future__ import annotations

import os
from errno import EIO, EMFILE, ENFILE
from pathlib import Path

import pytest

from log.partition import Partition, batch
from log.test_open_files import no_descriptors
from proving import proves
from tidelog.errors import OfflineError, StorageError
from tidelog.log.files import RealFiles
from tidelog.log.settings import LogSettings
from tidelog.testing.disk import SimulatedDisk

SMALL = LogSettings(segment_bytes=20_000, index_interval_bytes=500)
TOO_LARGE = b"x" * 15_000  # for a segment that has one of them
NONE_LEFT = [OSError(EMFILE, "too many open files"), OSError(ENFILE, "too many open files in system")]
SEEDS = range(10)


@pytest.fixture
def disk(tmp_path: Path) -> SimulatedDisk:
    return SimulatedDisk(tmp_path / "disk")


@pytest.fixture
def partition(disk: SimulatedDisk) -> Partition:
    """Its next batch of that size needs a new segment."""
    made = Partition(disk.folder / "p", disk, SMALL)
    made.put(TOO_LARGE)
    return made


def check_every_end(partition: Partition, disk: SimulatedDisk, images: Path) -> None:
    expected = partition.values()
    for seed in SEEDS:
        image = disk.crash(images / f"image{seed}", seed)
        assert Partition(image / "p", settings=SMALL).values() == expected


@proves("T1", "T5")
@pytest.mark.parametrize("error", NONE_LEFT, ids=["process", "machine"])
@pytest.mark.parametrize("operation", ["create", "sync_folder"])
def test_a_segment_that_cannot_be_opened_is_a_write_that_is_refused(
    partition: Partition, disk: SimulatedDisk, tmp_path: Path, operation: str, error: OSError
) -> None:
    disk.fail(operation, error, name="disk/p", times=2)
    partition.append(batch(TOO_LARGE))
    partition.commit()
    refused = partition.visible[-1][1]
    assert type(refused) is StorageError and "raise the limit of open files" in str(refused)
    assert partition.log.offline is None
    disk.mend()
    partition.put(b"small enough for the old segment")
    partition.put(TOO_LARGE)
    assert [error for _, error in partition.visible] == [None, refused, None, None]
    assert partition.values() == [TOO_LARGE, b"small enough for the old segment", TOO_LARGE]
    check_every_end(partition, disk, tmp_path)


@proves("T1", "T5")
def test_nothing_is_written_while_the_name_of_a_segment_that_was_taken_back_may_come_back(
    partition: Partition, disk: SimulatedDisk, tmp_path: Path
) -> None:
    """It would come back empty, and hide what was appended to the segment before it."""
    disk.fail("sync_folder", NONE_LEFT[1], name="disk/p", times=3)
    partition.append(batch(TOO_LARGE))
    partition.commit()
    partition.put(b"refused")
    assert type(partition.visible[-1][1]) is StorageError
    assert partition.values() == [TOO_LARGE]
    check_every_end(partition, disk, tmp_path / "before")
    partition.put(b"taken")
    assert partition.visible[-1] == (1, None)
    check_every_end(partition, disk, tmp_path / "after")


@proves("T1")
def test_a_folder_whose_sync_fails_later_takes_the_partition_offline(partition: Partition, disk: SimulatedDisk) -> None:
    disk.fail("sync_folder", NONE_LEFT[1], name="disk/p", times=2)
    partition.append(batch(TOO_LARGE))
    partition.commit()
    disk.fail("sync_folder", OSError(EIO, "lost the cable"), name="disk/p")
    partition.put(b"in doubt")
    assert isinstance(partition.log.offline, OfflineError)


@proves("T5")
def test_a_process_at_its_limit_refuses_and_goes_on_below_it(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "p", RealFiles(), SMALL)
    with no_descriptors():
        partition.put(b"refused")
    assert "no file can be opened: Too many open files" in str(partition.visible[-1][1])
    assert partition.log.offline is None
    partition.put(b"taken")
    assert partition.visible[-1] == (0, None)
    assert partition.reopen().values() == [b"taken"]


@proves("T5")
def test_a_disk_that_is_let_go_of_leaves_no_descriptor_open(tmp_path: Path) -> None:
    files = RealFiles()
    files.sync_all(str(tmp_path))
    held = [files._spare, *files._file_systems.values()]
    assert len(held) == 2 and all(os.fstat(fd) for fd in held)
    del files
    for fd in held:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
