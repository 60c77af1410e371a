"""What a micro-batch costs before it does anything, and how old a record is when a sink sees it.

    python -m bench.spark.floor                  our session beside PySpark's defaults
    python -m bench.spark.floor --settings       our session beside itself with one setting changed, row by row
    python -m bench.spark.floor --rounds 1 --batches 10 --seconds 3

All sessions run at the same time and are idle while it is not their turn: in every round each does the same work once,
one after the other, so that what else the machine does falls on all of them. Settings that count for a query are
compared in one session. A figure is the median of the rounds' medians. `ms` is Spark's own triggerExecution of
micro-batches of ten rows; the first of each query are not counted. CPU seconds move less than times on a busy machine;
the load average of the run is printed with the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import tidelog
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer

FILLED = 200_000
A_SECOND = 1000
RESULTS = Path(__file__).parents[1] / "results"

LATENCY = f"{A_SECOND:,} a second"
ROWS = ("jvm", "topic", "jvm count", "jvm count rocksdb", "topic count")
SIDES = {"defaults": ["--defaults"], "tidelog": []}
STATIC = {
    "tidelog": [],
    "TCP": ["--settings", json.dumps({"spark.python.unix.domain.socket.enabled": "false"})],
    "with UI": ["--settings", json.dumps({"spark.ui.enabled": "true", "spark.ui.port": "0"})],
    "serial GC": ["--settings", json.dumps({"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"})],
}
HADOOP_FILES = {
    "fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs",
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
BY_QUERY: dict[str, dict[str, str]] = {
    "tidelog": {},
    "Hadoop's files": HADOOP_FILES,
    "older file interface": {"spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER},
    "polling delay 1 ms": {"spark.sql.streaming.pollingDelay": "1ms"},
    "no AQE": {"spark.sql.adaptive.streaming.stateless.enabled": "false"},
    "no codegen": {"spark.sql.codegen.wholeStage": "false"},
    "1 shuffle partition": {"spark.sql.shuffle.partitions": "1"},
    "8 shuffle partitions": {"spark.sql.shuffle.partitions": "8"},
    "no changelog": {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false"},
}
MATTERS = {  # to rows with these words only
    "older file interface": "jvm",
    "polling delay 1 ms": "second",
    "no AQE": "jvm",
    "no codegen": "jvm",
    "1 shuffle partition": "count",
    "8 shuffle partitions": "count",
    "no changelog": "rocksdb",
}

Figures = dict[tuple[str, str, str], list[float]]


class Side:
    def __init__(self, bootstrap: str, options: list[str]) -> None:
        command = [sys.executable, "-m", "bench.spark.floor_side", bootstrap, *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started = self._answer()

    def ask(self, **command: object) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, float]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("a session ended; what it said is above")
        found: dict[str, float] = json.loads(line)
        return found

    def stop(self) -> None:
        self.process.communicate()


def main() -> None:
    options = parse()
    figures: Figures = defaultdict(list)
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        broker = stack.enter_context(tidelog.Broker())
        fill(broker.bootstrap)
        sides = {name: Side(broker.bootstrap, arguments) for name, arguments in chosen(options).items()}
        for side in sides.values():
            stack.callback(side.stop)
        for number in range(options.rounds + 1):  # the first compiles, and is not counted
            measure(sides, broker.bootstrap, options, figures if number else defaultdict(list))
    show(figures, f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark.floor")
    parser.add_argument("--settings", action="store_true", help="our own settings, one changed at a time")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="settings or sides to measure beside `tidelog`")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=10.0, help="of latency; 0 for none")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> dict[str, list[str]]:
    every = {**SIDES, **STATIC} if options.only else STATIC if options.settings else SIDES
    return {name: every[name] for name in every if not options.only or name in ("tidelog", *options.only)}


def measure(sides: dict[str, Side], bootstrap: str, options: argparse.Namespace, figures: Figures) -> None:
    for row in options.rows:
        for name, side in sides.items():
            for change, settings in changes(name, row, options):
                found = side.ask(do="floor", row=row, settings=settings, batches=options.batches)
                note(figures, row, change, found)
    for name, side in sides.items():
        for change, settings in changes(name, LATENCY, options) if options.seconds else ():
            with clock(bootstrap):
                note(figures, LATENCY, change, side.ask(do="latency", settings=settings, seconds=options.seconds))


def changes(side: str, row: str, options: argparse.Namespace) -> Iterator[tuple[str, dict[str, str]]]:
    if side != "tidelog" or not (options.settings or options.only):
        yield side, {}
        return
    for change, settings in BY_QUERY.items():
        wanted = change == "tidelog" or not options.only or change in options.only
        if wanted and MATTERS.get(change, "") in row:
            yield change, settings


def note(figures: Figures, row: str, side: str, found: dict[str, float]) -> None:
    for metric, value in found.items():
        figures[row, metric, side].append(value)
        print(f"{row:24} {metric:10} {side:24} {value:8.1f}", file=sys.stderr, flush=True)


def show(figures: Figures, load: str) -> None:
    medians = {key: statistics.median(values) for key, values in figures.items()}
    RESULTS.mkdir(exist_ok=True)
    lines = [
        {"row": row, "metric": metric, "side": side, "median": medians[row, metric, side], "rounds": rounds}
        for (row, metric, side), rounds in figures.items()
    ]
    (RESULTS / "spark_floor.json").write_text(json.dumps({"load": load, "figures": lines}, indent=1))
    print(load)
    for row, metric, side in sorted(medians):
        print(f"{row:24} {metric:10} {side:24} {medians[row, metric, side]:8.1f}")


def fill(bootstrap: str) -> None:
    with Cluster(bootstrap) as cluster:
        topics.create(cluster, "floor", partitions=1)
        topics.create(cluster, "clock", partitions=1)
        with Producer(cluster) as producer:
            for number in range(FILLED):
                producer.send("floor", b"%d" % number)


@contextmanager
def clock(bootstrap: str) -> Iterator[None]:
    """A thousand records a second into the topic `clock`, each with the nanosecond at which it was made."""
    done = threading.Event()

    def tick() -> None:
        with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
            begin, sent = time.monotonic(), 0
            while not done.wait(1 / A_SECOND):
                while sent < (time.monotonic() - begin) * A_SECOND:
                    producer.send("clock", b"%d" % time.time_ns())
                    sent += 1
                producer.flush()

    thread = threading.Thread(target=tick)
    thread.start()
    yield
    done.set()
    thread.join()


if __name__ == "__main__":
    main()
