"""Segments are deleted and the power goes, at every step of it: who wrote into them is known all the same.

What a producer has written is a fold over the headers of the log. Of segments that are deleted only a snapshot has it,
so one that a power cut cannot take must be there before the first of them goes. Snapshots are usually there long
before. Here the disk refused them until the deletion began.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path

import pytest

from crash.power_cut import quick_folder
from log.partition import Partition, batch
from proving import proves
from tidelog.errors import StorageError
from tidelog.log.settings import LogSettings
from tidelog.testing.disk import SimulatedDisk

SETTINGS = LogSettings(segment_bytes=6000, index_interval_bytes=300)
GONE, LATER = 4, 5  # the ids of a producer whose batches are all deleted, and of one that goes on
BATCHES = 12
KEPT_FROM = 10
IMAGES = 6  # of those that each cut could leave
STEPS_MAX = 100


def filled(folder: Path) -> Partition:
    """Some segments, and no snapshot of their producers."""
    disk = SimulatedDisk(folder)
    disk.fail("create", OSError(ENOSPC, "full"), name=".producers", times=BATCHES)
    partition = Partition(folder / "p", disk, SETTINGS)
    for number in range(BATCHES):
        producer = (GONE, 0, number) if number < 2 else (LATER, 0, number - 2)
        partition.append(batch(b"%d" % number * 800, producer=producer))
        partition.commit()
    assert not list(partition.folder.glob("*.producers"))
    disk.mend()
    return partition


def stopped_half_way(folder: Path) -> Partition:
    """The next life of one that was killed after its last snapshot, which nobody had synced."""
    partition = filled(folder)
    assert partition.log.close() is not None
    return partition.reopen()


def delete(partition: Partition) -> None:
    partition.log.delete_before(KEPT_FROM)
    partition.commit()


def check(folder: Path) -> None:
    partition = Partition(folder, settings=SETTINGS)
    assert partition.log.start_offset in (0, KEPT_FROM)
    for producer_id, sequence, offset in ((GONE, 1, 1), (LATER, 9, 11)):
        again = partition.append(batch(b"%d" % offset * 800, producer=(producer_id, 0, sequence)))
        assert (again.duplicate, again.base_offset) == (True, offset), f"producer {producer_id} was forgotten"


@proves("T1")
@pytest.mark.parametrize("before", [filled, stopped_half_way])
def test_producers_are_known_whenever_the_power_goes_during_a_deletion(before: Callable[[Path], Partition]) -> None:
    for step in range(1, STEPS_MAX):
        with quick_folder() as folder:
            partition = before(folder / "disk")
            disk = partition.files
            assert isinstance(disk, SimulatedDisk)
            disk.cut_power_at(step)
            delete(partition)
            for seed in range(IMAGES):
                check(disk.crash(folder / f"image{seed}", seed) / "p")
            if not disk.is_off:
                assert partition.log.start_offset == KEPT_FROM
                assert not (partition.folder / f"{0:020d}.log").exists()
                return
    raise AssertionError("the deletion has no end")


@proves("T1")
def test_a_start_offset_that_was_saved_without_a_snapshot_deletes_nothing_at_the_next_start(tmp_path: Path) -> None:
    partition = filled(tmp_path / "disk")
    disk = partition.files
    assert isinstance(disk, SimulatedDisk)
    disk.fail("create", OSError(ENOSPC, "full"), name=".producers")
    told: list[StorageError | None] = []
    partition.log.delete_before(KEPT_FROM, told.append)
    partition.commit()
    assert isinstance(told[0], StorageError)
    partition.log.repair(skip=True)  # saves what is known of the partition, the new start with it
    image = disk.crash(tmp_path / "image", seed=1)
    assert Partition(image / "p", settings=SETTINGS).log.start_offset == KEPT_FROM
    check(image / "p")
