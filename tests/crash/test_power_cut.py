"""Nothing acked is ever lost: the power goes at any step, and the disk keeps of the rest what it likes.

Every story is drawn from a seed: random appends, rounds of the committer, deletions, reads, scrubs and clean stops,
with a power cut at a random operation, also while the log recovers from the last one. `TIDELOG_SEEDS` says how many
seeds the soak test takes, `TIDELOG_SEED` where they begin.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from crash.power_cut import quick_folder, tell_story
from proving import proves

FEW = 40
MANY = int(os.environ.get("TIDELOG_SEEDS", "300"))
FIRST = int(os.environ.get("TIDELOG_SEED", "1"))
FAULTS = [(), ("full",), ("write",), ("sync",), ("full", "write", "sync")]


def run_seeds(folder: Path, first: int, count: int, faults: tuple[str, ...]) -> None:
    for seed in range(first, first + count):
        try:
            tell_story(folder / str(seed), seed, faults=faults)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        shutil.rmtree(folder / str(seed))


@proves("T1")
@pytest.mark.parametrize("faults", FAULTS, ids=" ".join)
def test_everything_acked_survives_power_cuts_at_any_step(faults: tuple[str, ...]) -> None:
    with quick_folder() as folder:
        run_seeds(folder, 1, FEW, faults)


@proves("T1")
@pytest.mark.soak
@pytest.mark.parametrize("faults", FAULTS, ids=" ".join)
def test_everything_acked_survives_power_cuts_with_many_seeds(faults: tuple[str, ...]) -> None:
    with quick_folder() as folder:
        run_seeds(folder, FIRST * MANY, MANY, faults)
