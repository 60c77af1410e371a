"""Many seeds in one test; the one that fails is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def run_seeds(folder: Path, count: int, run: Callable[[Path, int], object], first: int = 1) -> None:
    for seed in range(first, first + count):
        try:
            run(folder / str(seed), seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
