"""Row `fanout`: one view's changes to 1,000 who follow it (`feed_fanout.py` does the work)."""

from __future__ import annotations

import argparse

from bench.views import feed_fanout
from bench.views.bench import Bench
from bench.views.figures import APPLIER, EVENTS

SUBSCRIBERS, BATCHES, CHANGES, BATCHES_PER_S = 1000, 100, 10, 10.0


def run(bench: Bench) -> None:
    bench.stop_session()
    subscribers = bench.amount(SUBSCRIBERS)
    for counts in bench.rounds():
        asked = argparse.Namespace(
            subscribers=subscribers,
            batches=bench.amount(BATCHES, least=10),
            changes=CHANGES,
            batches_per_s=BATCHES_PER_S,
            where=None,
        )
        found = feed_fanout.run(asked)
        if counts:
            row = f"feed to {subscribers:,} subscribers, {BATCHES_PER_S * CHANGES:g} changes/s"
            bench.figures.add(row, EVENTS, APPLIER, found["delivered_per_s"])
            for name, value in found["delay_ms"].items():
                bench.figures.add(row, f"{name} ms", APPLIER, value)
            bench.figures.add(row, "CPU us/event", APPLIER, found["gateway"]["cpu_us_per_event"])
            bench.figures.add(row, "MB resident", APPLIER, found["gateway"]["resident_mb_after"])
