"""Row `operators`: every stateful operator over 100,000 keys, beside the same by hand (`by_key/`).

By hand it is `transformWithState` with a group a key. Both sides go over the same rows in micro-batches of the same
size, and have to put out the same in each: where they do not, one of them is wrong, and neither has a figure.

A micro-batch by hand takes as long as twenty and more of an operator: so one warms it up and one is measured, and an
operator is given about as many seconds to warm up. The first micro-batch has no watermark yet, and nothing is
over in it; in the second, four fifths of what is over in a later one are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bench.pipelines.by_key.programs import by_hand
from bench.pipelines.figures import FOLD, PER_KEY
from bench.pipelines.state import SHAPES, Measured, ends_of, measured

if TYPE_CHECKING:
    from bench.pipelines.bench import Bench

SHAPE = SHAPES[0]
WARM = {FOLD: 8, PER_KEY: 1}
BATCHES = {FOLD: 12, PER_KEY: 1}  # micro-batches


def run(bench: Bench) -> Iterator[None]:
    """Stops where what there is so far may be published."""
    from bench.pipelines.sides.stateful import OPERATORS

    names = [name for name in OPERATORS if not bench.queries or name in bench.queries]
    peers: dict[str, Measured] = {}
    for rep in range(bench.reps):
        for name in names:
            if rep == 0 and (found := measure(bench, name, PER_KEY)) is not None:
                peers[name] = found
            compare(bench, f"operator {name}", measure(bench, name, FOLD), peers.get(name), first=rep == 0)
            yield


def measure(bench: Bench, name: str, side: str) -> Measured | None:
    if not bench.chosen((side,)):
        return None
    row, way = f"operator {name}", name if side == FOLD else by_hand(name)
    batches = bench.amount(BATCHES[side])
    return measured(bench, row, SHAPE, way, warm=WARM[side], batches=batches, side=side)


def compare(bench: Bench, row: str, ours: Measured | None, theirs: Measured | None, *, first: bool) -> None:
    """A side that ran alone, since nobody asked for the other, has its figure."""
    if ours is not None and theirs is not None and (wrong := difference(ours, theirs)):
        for side in (FOLD, PER_KEY):
            bench.cannot(row, side, f"the answers of both sides differ: {wrong}")
        return
    if ours is not None:
        bench.add(row, FOLD, ours.rows, ours.seconds, ours.seen)
    if theirs is not None and first:
        bench.add(row, PER_KEY, theirs.rows, theirs.seconds, theirs.seen)


def difference(ours: Measured, theirs: Measured) -> str | None:
    """By the micro-batches that both have had: how far each was, how many rows it put out, and a checksum of them."""
    both = zip(ours.seen.said["batches"], theirs.seen.said["batches"], strict=False)
    for number, (one, other) in enumerate(both):
        if ends_of(one["end"]) != ends_of(other["end"]):
            return f"micro-batch {number} ended at {ends_of(one['end'])}, by hand at {ends_of(other['end'])}"
        if one["sums"] != other["sums"]:
            told = [f"{rows:,} rows, checksum {checksum}" for rows, checksum in (one["sums"], other["sums"])]
            return f"micro-batch {number} put out {told[0]}, by hand {told[1]}"
    return None
