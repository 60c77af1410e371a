"""Row `operators`: every stateful operator over 100,000 keys, beside `transformWithState` with a group a key.

What a group a key costs is the group, whatever is done in it: so there is one figure of that for all of them, count and
last value. Whether operators are right is not asked here; their own tests do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bench.pipelines.figures import CPU, FOLD, MEMORY, PER_KEY, RATE
from bench.pipelines.state import SHAPES, WARM, Measured, measured

if TYPE_CHECKING:
    from bench.pipelines.bench import Bench

SHAPE = SHAPES[0]
BATCHES = 6


def run(bench: Bench) -> Iterator[None]:
    """Stops where what there is so far may be published."""
    from bench.pipelines.sides.stateful import OPERATORS

    beside = measured(bench, str(SHAPE), SHAPE, PER_KEY, warm=1, batches=1) if bench.chosen((PER_KEY,)) else None
    for rep in range(bench.reps):
        for name in bench.chosen(OPERATORS) if bench.sides else OPERATORS:
            row = f"operator {name}"
            found = measured(bench, row, SHAPE, name, warm=WARM, batches=bench.amount(BATCHES), side=FOLD)
            if found is not None:
                bench.add(row, FOLD, found.rows, found.seconds, found.seen)
            if beside is not None and rep == 0:
                stand_beside(bench, row, beside)
            yield


def stand_beside(bench: Bench, row: str, one: Measured) -> None:
    bench.figures.add(row, RATE, PER_KEY, one.rows / one.seconds)
    bench.figures.add(row, CPU, PER_KEY, one.seen.cpu / one.rows * 1e6)
    bench.figures.add(row, MEMORY, PER_KEY, one.seen.memory_mb)
