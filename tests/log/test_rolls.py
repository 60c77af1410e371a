"""From one segment to the next: what comes half-way, and what is known of the old one by then."""

from __future__ import annotations

from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from log.partition import Partition, batch
from proving import proves
from tidelog.errors import DiskFullError
from tidelog.log.settings import LogSettings
from tidelog.testing.disk import SimulatedDisk

SETTINGS = LogSettings(segment_bytes=20_000, index_interval_bytes=500)
IMAGES = 8


@pytest.fixture
def disk(tmp_path: Path) -> SimulatedDisk:
    return SimulatedDisk(tmp_path / "disk")


@proves("T1")
def test_what_the_old_segment_took_is_acked_when_the_new_one_cannot_be_made(disk: SimulatedDisk) -> None:
    partition = Partition(disk.folder / "p", disk, SETTINGS)
    partition.put(b"0" * 8000)
    partition.append(batch(b"1" * 3000))
    partition.append(batch(b"2" * 9000))
    disk.fail("write", OSError(ENOSPC, "full"), name=f"{2:020d}.log")
    partition.committer.write_round()
    partition.committer.pool.wait()  # whoever rolls is faster than whoever syncs
    partition.commit()
    (first, second) = partition.visible[1:]
    assert first == (1, None)
    assert isinstance(second[1], DiskFullError)
    assert partition.values() == [b"0" * 8000, b"1" * 3000]


@proves("T1")
@pytest.mark.parametrize("count", [0, 1], ids=["the first", "a later one"])
@pytest.mark.parametrize("operation", ["sync", "sync_folder"])
def test_a_segment_whose_making_failed_is_made_sure_of_before_anything_in_it_is_acked(
    disk: SimulatedDisk, tmp_path: Path, operation: str, count: int
) -> None:
    partition = Partition(disk.folder / "partition-of-test", disk, SETTINGS)
    for _ in range(count):
        partition.put(b"0" * 15_000)
    name = "partition-of-test" + (f"/{count:020d}.log" if operation == "sync" else "")
    disk.fail(operation, OSError(EIO, "lost the cable"), name=name)
    partition.append(batch(b"in doubt" * 1000))
    partition.commit()
    assert partition.log.offline is not None
    again = partition.reopen()  # killed and started again: the page cache has what the disk may not have
    again.put(b"acked")
    assert again.visible[-1][1] is None
    for seed in range(IMAGES):
        image = disk.crash(tmp_path / f"image{seed}", seed)
        assert Partition(image / "partition-of-test", settings=SETTINGS).values()[-1] == b"acked"
