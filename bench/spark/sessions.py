"""Row `session`: what a micro-batch of ten rows costs, and how old a record is when a sink sees it, in our session and
in one with PySpark's defaults. `floor.py` does the work.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from contextlib import ExitStack

from bench.spark import floor
from bench.spark.bench import Bench
from bench.spark.figures import DEFAULT_SESSION, OUR_SESSION

SIDES = {OUR_SESSION: "tidelog", DEFAULT_SESSION: "defaults"}
ROWS = {
    "topic": "micro-batch of 10 rows, topic",
    "topic count": "micro-batch of 10 rows, topic, counted by key",
    "jvm": "micro-batch of 10 rows, no Python",
    floor.LATENCY: f"age of a record when a sink has it, at {floor.LATENCY}",
}
BATCHES, SECONDS = 25, 6.0


def run(bench: Bench) -> None:
    bench.stop_session()
    import tidelog

    work = argparse.Namespace(
        rows=[row for row in ROWS if row in floor.ROWS],
        batches=bench.amount(BATCHES, least=5),
        seconds=SECONDS * max(bench.share, 0.2),
        settings=False,
        only=None,
    )
    with ExitStack() as stack:
        broker = stack.enter_context(tidelog.Broker())
        floor.fill(broker.bootstrap)
        sides = {name: floor.Side(broker.bootstrap, floor.SIDES[name]) for name in SIDES.values()}
        for side in sides.values():
            stack.callback(side.stop)
        for counts in bench.rounds():
            found: floor.Figures = defaultdict(list)
            floor.measure(sides, broker.bootstrap, work, found)
            if counts:
                note(bench, found)


def note(bench: Bench, found: floor.Figures) -> None:
    names = {side: name for name, side in SIDES.items()}
    for (row, metric, side), values in found.items():
        for value in values:
            bench.figures.add(ROWS[row], metric, names[side], value)
