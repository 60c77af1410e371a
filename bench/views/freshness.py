"""Row `freshness`: how old a record is when a view shows it, through `tidelog run` with all that it starts, and what
that costs; with `fold`, `demo`, `start` and `idle` beside it.

A mark says which records are in what a store shows. Each store is looked at again and again; when its mark has moved,
the records between are visible from now on, each as old as the time since it was handed to the producer. CPU is that of
`tidelog run`, of all that it has started, and of the broker; not that of who produces and looks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from bench.process_tree import cpu_seconds
from bench.views.bench import POSTGRES, SQLITE, Bench
from bench.views.figures import APPLIER

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.errors import TidelogError
from tidelog.views.stores.opening import open_store

HERE = Path(__file__).parent
A_SECOND, SECONDS, WARM_SECONDS, IDLE_SECONDS = 1000, 60, 15, 30
KEYS = 100
TICK_S = 0.01
LOOK_S = 0.001
PATIENCE_S = 600.0
SHARES = {"p50 ms": 0.5, "p99 ms": 0.99, "worst ms": 1.0}
CPU_A_SECOND, OF_A_CORE = "CPU ms/s", "% of a core"
LIVE, OF_A_VIEW = re.compile(r"views are live, after (\d+) s"), re.compile(r"^(\w+) .* ([\d,]+) ms +([\d,]+) ms +yes$")


class Shape(NamedTuple):
    """An app with one stream, of one partition, and one view."""

    row: str
    program: Path
    topic: str
    view: str


AGGREGATE = Shape("freshness", HERE / "fresh_app.py", "measured", "fresh")
FOLD = Shape("fold", HERE / "fold_app.py", "timed", "minutes")


class Watcher:
    """Of one store: `delays` in milliseconds, of records from `first` on, once they are seen."""

    def __init__(self, url: str, shape: Shape, sent: list[float]) -> None:
        self.delays: list[float] = []
        self.first = 0
        self.seen = 0
        self._url = url
        self._view, self._at = shape.view, TopicPartition(shape.topic, 0)
        self._sent = sent
        self._ended = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        with closing(open_store(self._url, self._view)) as store:
            while not self._ended.is_set():
                try:
                    shown = store.shown()
                    place = None if shown is None else store.place(shown)
                except TidelogError:
                    place = None
                if place is None or place.mark is None:
                    time.sleep(0.1)
                    continue
                now = time.perf_counter()
                end = place.mark.sources.offsets.get(self._at, 0)
                self.delays += [(now - self._sent[one]) * 1000 for one in range(max(self.seen, self.first), end)]
                self.seen = end
                time.sleep(LOOK_S)

    def until(self, count: int, program: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.seen < count:
            assert program.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.05)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


def run(bench: Bench) -> Iterator[None]:
    bench.stop_session()
    one_app(bench, AGGREGATE, (SQLITE, POSTGRES))
    yield
    one_app(bench, FOLD, (SQLITE,))
    yield
    for rep in range(bench.reps):
        demo(bench)
        print(f"demo, round {rep + 1} of {bench.reps}", file=sys.stderr, flush=True)
    yield


def one_app(bench: Bench, shape: Shape, kinds: Sequence[str]) -> None:
    """Its start, its freshness under load, and what it costs at rest."""
    stores = {kind: bench.empty_store(kind) for kind in kinds}
    row = shape.row
    folder = bench.folder / row
    folder.mkdir()
    log = folder / "run.log"
    with Cluster(bench.broker) as cluster:
        topics.create(cluster, shape.topic, partitions=1)
        sent: list[float] = []
        produce(cluster, shape.topic, sent, 1.0)
        began = time.monotonic()
        with running(bench, shape.program, list(stores.values()), folder) as ran:
            pids = (ran.pid, bench.broker_pid)
            watchers = {kind: Watcher(url, shape, sent) for kind, url in stores.items()}
            before = cpu_seconds(bench.broker_pid)
            for watcher in watchers.values():
                watcher.until(len(sent), ran, log)
            bench.figures.add(f"start, {row}", "live after s", APPLIER, time.monotonic() - began)
            bench.figures.add(f"start, {row}", "CPU s", APPLIER, sum(map(cpu_seconds, pids)) - before)
            produce(cluster, shape.topic, sent, bench.amount(WARM_SECONDS))
            for rep in range(bench.reps):
                measure(bench, shape, cluster, sent, watchers, ran, log)
                idle(bench, row, pids)
                print(f"{row}, round {rep + 1} of {bench.reps}", file=sys.stderr, flush=True)
            for watcher in watchers.values():
                watcher.stop()


def measure(
    bench: Bench,
    shape: Shape,
    cluster: Cluster,
    sent: list[float],
    watchers: dict[str, Watcher],
    program: subprocess.Popen[bytes],
    log: Path,
) -> None:
    for watcher in watchers.values():
        watcher.first, watcher.delays = len(sent), []
    pids = (program.pid, bench.broker_pid)
    began, before = time.monotonic(), sum(map(cpu_seconds, pids))
    produce(cluster, shape.topic, sent, bench.amount(SECONDS, least=5))
    for kind, watcher in watchers.items():
        watcher.until(len(sent), program, log)
        ordered = sorted(watcher.delays)
        for metric, share in SHARES.items():
            name = f"{shape.row}, {kind}, {A_SECOND:,} records/s"
            bench.figures.add(name, metric, APPLIER, ordered[int(share * (len(ordered) - 1))])
    used, seconds = sum(map(cpu_seconds, pids)) - before, time.monotonic() - began
    bench.figures.add(f"{shape.row}, {A_SECOND:,} records/s", CPU_A_SECOND, APPLIER, used / seconds * 1000)


def idle(bench: Bench, row: str, pids: Sequence[int]) -> None:
    """After a while without input: what is still under way is not counted. Watchers look on, and are not counted."""
    time.sleep(bench.amount(5))
    began, before = time.monotonic(), sum(map(cpu_seconds, pids))
    time.sleep(bench.amount(IDLE_SECONDS, least=3))
    used, seconds = sum(map(cpu_seconds, pids)) - before, time.monotonic() - began
    bench.figures.add(f"idle, {row}", OF_A_CORE, APPLIER, used / seconds * 100)


def demo(bench: Bench) -> None:
    """`tidelog demo`, three views of two topics; by its own figures."""
    minutes = bench.amount(60, least=15) / 60
    words = [sys.executable, "-m", "tidelog", "demo", "--no-browser", "--minutes", f"{minutes:g}"]
    began = time.monotonic()
    ran = subprocess.Popen(words, cwd=bench.folder, stdout=subprocess.PIPE, text=True)
    used = at_live = 0.0
    assert ran.stdout is not None
    for line in ran.stdout:
        if found := LIVE.search(line):
            at_live, live_at = cpu_seconds(ran.pid), time.monotonic()
            bench.figures.add("start, demo", "live after s", APPLIER, time.monotonic() - began)
            bench.figures.add("start, demo", "CPU s", APPLIER, at_live)
        if line.startswith("produced"):
            used = cpu_seconds(ran.pid) - at_live
            bench.figures.add("demo", CPU_A_SECOND, APPLIER, used / (time.monotonic() - live_at) * 1000)
        if found := OF_A_VIEW.match(line.strip()):
            for metric, text in zip(("p50 ms", "p99 ms"), found.groups()[1:], strict=True):
                bench.figures.add(f"demo, {found[1]}", metric, APPLIER, float(text.replace(",", "")))
    assert ran.wait(PATIENCE_S) == 0, "the demo's views are not its batch queries"


def produce(cluster: Cluster, topic: str, sent: list[float], seconds: float) -> None:
    """A few each tick, flushed at once. Times are those at which they were due: who is late adds to the delay."""
    began = time.perf_counter()
    count = int(A_SECOND * seconds)
    with Producer(cluster) as producer:
        done = 0
        while done < count:
            due = min(count, int((time.perf_counter() - began) * A_SECOND) + 1)
            at = datetime.now(UTC).isoformat()
            for number in range(done, due):
                value = json.dumps({"key": len(sent) % KEYS, "number": len(sent), "at": at}).encode()
                sent.append(began + number / A_SECOND)
                producer.send(topic, value, partition=0)
            producer.flush()
            done = due
            time.sleep(TICK_S)


@contextmanager
def running(bench: Bench, program: Path, stores: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = ["run", str(program), "--bootstrap", bench.broker, "--memory", "1g"]
    words += ["--checkpoints", str(folder / "checkpoints")]
    with (folder / "run.log").open("ab") as said:
        made = subprocess.Popen(
            [sys.executable, "-m", "tidelog", *words],
            cwd=folder,
            stdout=said,
            stderr=said,
            env={**os.environ, "FRESH_STORES": " ".join(stores)},
        )
    try:
        yield made
    finally:
        made.terminate()
        made.wait(PATIENCE_S)
