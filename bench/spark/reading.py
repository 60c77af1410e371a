"""Row `read`: a topic to nowhere (`noop`, all seven columns), and to an aggregate (crc32 of every value).

Each round begins with another side: what one leaves to the garbage collector, the next one pays for.

The Parquet files beside hold the connector's columns of the same rows, uncompressed, so that they are as many bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.spark.bench import SHAPES, Bench, Shape, measured
from bench.spark.figures import KAFKA, OURS, PARQUET

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AGGREGATE = ("count(*)", "sum(crc32(value))", "sum(offset)")


def run(bench: Bench) -> None:
    for shape in SHAPES:
        frames = frames_of(bench, shape)
        expected = aggregate(next(iter(frames.values())))
        for rep in range(1 if bench.quick else 0, bench.reps + 1):
            sides = list(frames.items())
            for side, frame in sides[rep % len(sides) :] + sides[: rep % len(sides)]:
                read(bench, shape, side, frame, expected, counts=rep > 0)


def frames_of(bench: Bench, shape: Shape) -> dict[str, DataFrame]:
    """By side."""
    topic = bench.topic(shape)
    frames = {
        turn.side: bench.frame(turn.connector, bench.brokers[turn.broker], topic)
        for turn in bench.one_round(counts=True)
    }
    files = str(bench.new_folder("parquet"))
    bench.frame(OURS, bench.brokers[KAFKA], topic).write.option("compression", "none").parquet(files)
    return {**frames, PARQUET: bench.session.read.parquet(files)}


def read(bench: Bench, shape: Shape, side: str, frame: DataFrame, expected: tuple[int, ...], *, counts: bool) -> None:
    rows = bench.rows_of(shape)
    with measured() as used:
        frame.write.format("noop").mode("overwrite").save()
    if counts:
        bench.add(f"read {shape.name} to noop", side, rows, used)
    with measured() as used:
        found = aggregate(frame)
    if found != expected:
        raise SystemExit(f"{side}: {shape.name}: counts and sums are {found}, and were {expected}")
    if counts:
        bench.add(f"read {shape.name} to an aggregate", side, rows, used)


def aggregate(frame: DataFrame) -> tuple[int, ...]:
    row = frame.selectExpr(*AGGREGATE).first()
    assert row is not None
    return tuple(row)
