"""Row `copy`: topic to topic by a streaming query that ends when all is read, at least once and exactly once.

The first micro-batch, which plans and compiles, is not counted. The JVM connector has no exactly once: what it does at
least once stands beside both of ours. What was written is read back, committed alone, and compared with what was read.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from bench.spark.bench import SHAPES, Bench, Shape, Turn, measured
from bench.spark.figures import OURS

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

AT_LEAST_ONCE, EXACTLY_ONCE = "at least once", "exactly once"
GUARANTEES = {AT_LEAST_ONCE: "at-least-once", EXACTLY_ONCE: "exactly-once"}
MICRO_BATCHES = 4
LOOK_S = 0.02
COPIED = tuple(Shape(shape.name, shape.rows // 4, shape.size) for shape in SHAPES)


def run(bench: Bench) -> None:
    for shape in COPIED:
        topic = bench.topic(shape)
        expected = sums(bench, next(iter(bench.brokers)), topic)
        for turn in bench.turns():
            for guarantee in GUARANTEES if turn.connector == OURS else (AT_LEAST_ONCE,):
                copy(bench, shape, turn, guarantee, expected)


def copy(bench: Bench, shape: Shape, turn: Turn, guarantee: str, expected: tuple[int, ...]) -> None:
    target, checkpoint = bench.new_topic(turn.broker), bench.new_folder("checkpoint")
    query = started(bench, shape, turn, guarantee, target, str(checkpoint))
    wait_for_the_first(query)
    with measured() as used:
        query.awaitTermination()
    rows, seconds = after_the_first(query)
    found = sums(bench, turn.broker, target)
    if found != expected:
        raise SystemExit(f"{turn.side}, {guarantee}: {shape.name}: counts and sums are {found}, and were {expected}")
    if turn.counts:
        for each in (guarantee,) if turn.connector == OURS else GUARANTEES:
            row = f"topic to topic {shape.name}, {each}"
            bench.figures.add(row, "rows/s", turn.side, rows / seconds)
            bench.figures.add(row, "CPU s/M rows", turn.side, used.cpu / rows * 1e6)
    bench.delete_topic(turn.broker, target)
    shutil.rmtree(checkpoint, ignore_errors=True)


def started(bench: Bench, shape: Shape, turn: Turn, guarantee: str, target: str, checkpoint: str) -> StreamingQuery:
    bootstrap, a_batch = bench.brokers[turn.broker], bench.rows_of(shape) // MICRO_BATCHES + 1
    reader = bench.session.readStream.format(turn.connector).option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", bench.topic(shape)).option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", str(a_batch)).load().select("key", "value")
    writer = frame.writeStream.format(turn.connector).option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", target).option("checkpointLocation", checkpoint)
    if turn.connector == OURS:
        writer = writer.option("deliveryGuarantee", GUARANTEES[guarantee])
    return writer.trigger(availableNow=True).start()


def wait_for_the_first(query: StreamingQuery) -> None:
    while query.isActive and query.lastProgress is None:
        time.sleep(LOOK_S)


def after_the_first(query: StreamingQuery) -> tuple[int, float]:
    """Rows, and Spark's own seconds, of micro-batches."""
    done = [one for one in query.recentProgress if one.numInputRows][1:]
    return sum(one.numInputRows for one in done), sum(one.durationMs["triggerExecution"] for one in done) / 1000


def sums(bench: Bench, broker: str, topic: str) -> tuple[int, ...]:
    frame = bench.frame(OURS, bench.brokers[broker], topic, **{"kafka.isolation.level": "read_committed"})
    row = frame.selectExpr("count(*)", "sum(crc32(key))", "sum(crc32(value))").first()
    assert row is not None
    return tuple(row)
