"""Power cuts with the committer's own threads running: whatever they were doing, nothing acked is lost."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from crash.power_cut import NOW, SETTINGS, quick_folder
from log.partition import Partition, batch
from proving import proves
from tidelog.errors import StorageError
from tidelog.log.commit import Committer
from tidelog.log.log import Log
from tidelog.record.codec import check
from tidelog.testing.disk import SimulatedDisk

FEW = 25
MANY = int(os.environ.get("TIDELOG_SEEDS", "300"))
FIRST = int(os.environ.get("TIDELOG_SEED", "1"))
PARTITIONS = 40  # enough for commits of one, of several and of many
APPENDS = 400


def live(folder: Path, rng: random.Random) -> tuple[SimulatedDisk, list[list[bytes]]]:
    """Appends until the power goes; what was acked, by partition."""
    disk = SimulatedDisk(folder)
    ready = threading.Semaphore(0)
    committer = Committer(disk, ready.release)
    logs = [Log.open(f"{folder}/p{number}", disk, SETTINGS, committer) for number in range(PARTITIONS)]
    acked: list[list[bytes]] = [[] for _ in logs]
    committer.start()
    disk.cut_power_at(rng.randint(200, 4000))
    for number in range(APPENDS):
        at = rng.randrange(PARTITIONS) if rng.random() < 0.7 else 0
        value = b"%d " % number * rng.choice((5, 200, 1500))
        data = batch(value)

        def told(error: StorageError | None, at: int = at, value: bytes = value) -> None:
            if error is None:
                acked[at].append(value)

        try:
            done = logs[at].append(memoryview(data), check(data), NOW)
            logs[at].when_visible(done.last_offset + 1, told)
        except StorageError:
            pass
        if ready.acquire(timeout=0.002 if rng.random() < 0.05 else 0):
            committer.drain()
        if disk.is_off:
            break
    disk.cut_power()
    committer.stop()
    return disk, acked


def run(folder: Path, first: int, count: int) -> None:
    for seed in range(first, first + count):
        rng = random.Random(seed)
        disk, acked = live(folder / str(seed) / "disk", rng)
        image = disk.crash(folder / str(seed) / "image", seed)
        for number, values in enumerate(acked):
            found = Partition(image / f"p{number}", settings=SETTINGS).values()
            assert found[: len(values)] == values, f"partition {number}, near seed {seed}"


@proves("T1")
@pytest.mark.slow
def test_nothing_acked_is_lost_with_threads() -> None:
    with quick_folder() as folder:
        run(folder, 1, FEW)


@proves("T1")
@pytest.mark.soak
def test_nothing_acked_is_lost_with_threads_and_many_seeds() -> None:
    with quick_folder() as folder:
        run(folder, FIRST * MANY, MANY)
