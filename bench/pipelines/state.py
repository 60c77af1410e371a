"""Row `state`: how many rows a second keep a count and a last value for each of many keys.

The same topic goes through the fold under Tidelog's operators, through Spark's own `transformWithState` with a group a
key, and through Spark's native aggregation. What every micro-batch put out is compared with what it should have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.pipelines import keyed
from bench.pipelines.figures import FOLD, HEAP, PER_KEY, ROCKSDB, STATE_SIDES

if TYPE_CHECKING:
    from bench.pipelines.bench import Bench
    from bench.pipelines.watch import Seen

WARM = 2
SECONDS = 900.0
MEASURED = {FOLD: 6, PER_KEY: 1, HEAP: 6, ROCKSDB: 6}  # micro-batches; one of `per key` takes as long as fifty


class Shape(NamedTuple):
    keys: int
    a_batch: int

    def __str__(self) -> str:
        return f"state of {self.keys:,} keys, micro-batches of {self.a_batch:,}"


SHAPES = (Shape(100_000, 100_000), Shape(100_000, 500_000), Shape(1_000_000, 100_000), Shape(1_000_000, 500_000))


def run(bench: Bench) -> Iterator[None]:
    """Stops where what there is so far may be published."""
    for shape in SHAPES[1:2] if bench.quick else SHAPES:
        for rep in range(bench.reps):
            for way in bench.chosen(STATE_SIDES):
                if way != PER_KEY or rep == 0:
                    measure(bench, shape, way)
        yield


class Measured(NamedTuple):
    rows: int
    seconds: float
    seen: Seen
    given: keyed.Input


def measure(bench: Bench, shape: Shape, way: str) -> None:
    warm = 1 if way == PER_KEY else WARM
    found = measured(bench, str(shape), shape, way, warm=warm, batches=bench.amount(MEASURED[way]))
    if found is not None:
        check(found.given, way, found.seen.said["batches"])
        bench.add(str(shape), way, found.rows, found.seconds, found.seen)


def measured(
    bench: Bench, row: str, shape: Shape, way: str, *, warm: int, batches: int, side: str | None = None
) -> Measured | None:
    """So many micro-batches behind those that warm up; by Spark's own count of rows and time."""
    given = keyed.Input(shape.keys, shape.a_batch * (warm + batches))
    work = {
        "way": way,
        "bootstrap": bench.bootstrap,
        "topic": bench.keyed_topic(given),
        "a_batch": shape.a_batch,
        "warm": warm,
        "heap": bench.heap,
        "folder": str(bench.folder),
    }
    seen = bench.attempt(row, side or way, "bench.pipelines.sides.state", work, SECONDS)
    if seen is None:
        return None
    counted = seen.said["batches"][warm:]
    return Measured(sum(one["rows"] for one in counted), sum(one["seconds"] for one in counted), seen, given)


def check(given: keyed.Input, way: str, batches: list[dict[str, Any]]) -> None:
    ends = [ends_of(one["end"]) for one in batches]
    assert ends[-1] == (given.rows // 2, given.rows // 2), f"{way}: rows are missing: {ends[-1]}"
    for number, (one, sums) in enumerate(zip(batches, keyed.expected(given, ends), strict=True)):
        if tuple(one["sums"]) != sums:
            raise SystemExit(f"{way}: micro-batch {number} put out {one['sums']}, and should have {list(sums)}")


def ends_of(offsets: dict[str, Any]) -> tuple[int, int]:
    by_partition = next(found for found in offsets.values() if isinstance(found, dict) and "0" in found)
    return int(by_partition["0"]), int(by_partition["1"])
