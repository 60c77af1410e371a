"""Row `throughput`: one partition in and out as fast as it goes, at 1 KB and 100 B, with ~1 MB and with 16 KB batches.

CPU is the broker's, per gigabyte of values. The mock forgets all but the last 5 MB, so it has no reading rows.
"""

from __future__ import annotations

from typing import NamedTuple

from bench.broker.bench import Bench, Side
from bench.broker.load import run_load
from bench.broker.process import cpu_seconds

GB = 1e9
READS = 3  # of every topic: one takes a fifth of a second, and no two are alike


class Shape(NamedTuple):
    name: str
    messages: int
    size: int
    batch_bytes: int


SHAPES = (
    Shape("1 KB, large batches", 800_000, 1000, 1_000_000),
    Shape("100 B, large batches", 4_000_000, 100, 1_000_000),
    Shape("1 KB, 16 KB batches", 300_000, 1000, 16_384),
    Shape("100 B, 16 KB batches", 2_000_000, 100, 16_384),
)


def run(bench: Bench) -> None:
    for shape in SHAPES:
        for side, counts in bench.turns(mock=True):
            topic = bench.new_topic(side)
            messages = bench.amount(shape.messages, least=2_000)
            bench.touch_memory(messages * shape.size)
            produced = measured(side, "produce", side.bootstrap, topic, messages, shape.size, shape.batch_bytes)
            add(bench, f"produce {shape.name}", side, produced, counts)
            if not side.is_mock:
                consumed = _sum([measured(side, "consume", side.bootstrap, topic, messages) for _ in range(READS)])
                add(bench, f"consume {shape.name}", side, consumed, counts)
            bench.delete_topic(side, topic)


def measured(side: Side, *arguments: str | float) -> dict[str, float]:
    before = cpu_seconds(side.pid)
    figures = run_load(*arguments)
    return {**figures, "cpu": cpu_seconds(side.pid) - before}


def _sum(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: sum(run[name] for run in runs) for name in runs[0]}


def add(bench: Bench, row: str, side: Side, figures: dict[str, float], counts: bool) -> None:
    if counts:
        bench.figures.add(row, "MB/s", side.name, figures["bytes"] / figures["seconds"] / 1e6)
        bench.figures.add(row, "CPU s/GB", side.name, figures["cpu"] / (figures["bytes"] / GB))
