"""Row `freshness`: how old a record is when a view shows it, through `tidelog run` with all that it starts, and what
that costs; with `fold`, `demo`, `start` and `idle` beside it. With `--before`, of another checkout too, in turns: its
broker, its run. Each turn begins with an empty folder, and with an archive of Spark's classes where its Tidelog makes
one; `start, without an archive` is what comes before that.

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
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import psutil
from bench.process_tree import cpu_seconds
from bench.views.bench import POSTGRES, SQLITE, Bench

from against.tidelog_process import TidelogProcess
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.demo.feeding import Feeder, make_topics
from tidelog.demo.running import ONE_PARTITION, TRIGGER
from tidelog.errors import TidelogError
from tidelog.spark.class_archive import OFF, SWITCH
from tidelog.views.stores.opening import open_store

HERE = Path(__file__).parent
A_SECOND, SECONDS, WARM_SECONDS, IDLE_SECONDS = 1000, 60, 15, 30
KEYS = 100
TICK_S = 0.01
LOOK_S = 0.001
PATIENCE_S = 600.0
READY, READY_S = " ready ", 3.0
REST_SECONDS = 45  # an old run says that it is ready before its views are there
ARCHIVING, ARCHIVED_WITHIN_S = "tidelog.spark.class_archive", 300.0
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
    for side in bench.sides:
        first_start(bench, side)
    for rep in range(bench.reps):
        for side in bench.sides[:: -1 if rep % 2 else 1]:
            for shape, kinds in ((AGGREGATE, (SQLITE, POSTGRES)), (FOLD, (SQLITE,))):
                one_app(bench, side, shape, kinds)
            start_alone(bench, side)
            three_at_rest(bench, side)
            demo(bench, side)
            print(f"freshness: {side}, round {rep + 1} of {bench.reps}", file=sys.stderr, flush=True)
        yield


def first_start(bench: Bench, side: str) -> None:
    """Not counted: it leaves an archive of Spark's classes behind, whose making would be in the way of what follows."""
    with started(bench, side, AGGREGATE, ()):
        pass
    deadline = time.monotonic() + ARCHIVED_WITHIN_S
    while time.monotonic() < deadline and any(ARCHIVING in one.info["cmdline"] for one in _all_processes()):
        time.sleep(0.5)


def _all_processes() -> Iterator[psutil.Process]:
    return (one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"])


def start_alone(bench: Bench, side: str) -> None:
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = OFF[0]
    try:
        with started(bench, side, AGGREGATE, (SQLITE,)) as app:
            app.add_start("start, freshness, without an archive")
    finally:
        del os.environ[SWITCH]
        os.environ.update({} if before is None else {SWITCH: before})


@dataclass
class Started:
    """A run that has shown the first records; `used` is from its launch to there."""

    bench: Bench
    side: str
    cluster: Cluster
    ran: subprocess.Popen[bytes]
    log: Path
    sent: list[float]
    watchers: dict[str, Watcher]
    pids: tuple[int, int]
    live_after: float = 0.0
    used: float = 0.0

    def add(self, row: str, metric: str, value: float) -> None:
        self.bench.figures.add(row, metric, self.side, value)

    def add_start(self, row: str) -> None:
        self.add(row, "live after s", self.live_after)
        self.add(row, "CPU s", self.used)

    def until(self, count: int) -> None:
        for watcher in self.watchers.values():
            watcher.until(count, self.ran, self.log)

    def cpu(self) -> float:
        return sum(map(cpu_seconds, self.pids))


@contextmanager
def started(bench: Bench, side: str, shape: Shape, kinds: Sequence[str]) -> Iterator[Started]:
    """Without `kinds` the run has a store that nobody looks at, and is waited for until it says that it is ready."""
    folder = bench.folder / bench.new_name()
    folder.mkdir(mode=0o755)
    stores = {kind: bench.empty_store(kind) for kind in kinds or (SQLITE,)}
    sent: list[float] = []
    with broker_of(bench, side, folder) as broker, Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, shape.topic, partitions=1)
        produce(cluster, shape.topic, sent, 1.0)
        began, log = time.monotonic(), folder / "run.log"
        before = cpu_seconds(broker.pid)
        with running(bench, side, broker.bootstrap, shape.program, list(stores.values()), folder) as ran:
            watchers = {kind: Watcher(url, shape, sent) for kind, url in stores.items()}
            app = Started(bench, side, cluster, ran, log, sent, watchers, (ran.pid, broker.pid))
            try:
                app.until(len(sent))
                app.live_after, app.used = time.monotonic() - began, app.cpu() - before
                if not kinds:
                    time.sleep(READY_S)  # an archive is made of a run that was ready
                yield app
            finally:
                for watcher in watchers.values():
                    watcher.stop()


def one_app(bench: Bench, side: str, shape: Shape, kinds: Sequence[str]) -> None:
    """Its start, its freshness under load, and what it costs at rest."""
    with started(bench, side, shape, kinds) as app:
        app.add_start(f"start, {shape.row}")
        produce(app.cluster, shape.topic, app.sent, bench.amount(WARM_SECONDS))
        app.until(len(app.sent))
        measure(app, shape)
        idle(app, shape.row)


def measure(app: Started, shape: Shape) -> None:
    for watcher in app.watchers.values():
        watcher.first, watcher.delays = len(app.sent), []
    began, before = time.monotonic(), app.cpu()
    produce(app.cluster, shape.topic, app.sent, app.bench.amount(SECONDS, least=5))
    app.until(len(app.sent))
    used, seconds = app.cpu() - before, time.monotonic() - began
    for kind, watcher in app.watchers.items():
        add_shares(app.bench, f"{shape.row}, {kind}, {A_SECOND:,} records/s", app.side, watcher.delays)
    app.add(f"{shape.row}, {A_SECOND:,} records/s", CPU_A_SECOND, used / seconds * 1000)


def add_shares(bench: Bench, row: str, side: str, delays: list[float]) -> None:
    ordered = sorted(delays)
    for metric, share in SHARES.items():
        bench.figures.add(row, metric, side, ordered[int(share * (len(ordered) - 1))])


def idle(app: Started, row: str) -> None:
    """After a while without input: what is still under way is not counted. Watchers look on, and are not counted."""
    time.sleep(app.bench.amount(5))
    app.add(f"idle, {row}", OF_A_CORE, at_rest(app.bench, app.pids))


def at_rest(bench: Bench, pids: Sequence[int]) -> float:
    began, before = time.monotonic(), sum(map(cpu_seconds, pids))
    time.sleep(bench.amount(IDLE_SECONDS, least=3))
    return (sum(map(cpu_seconds, pids)) - before) / (time.monotonic() - began) * 100


def three_at_rest(bench: Bench, side: str) -> None:
    """The demo's app, once its views have been shown, with its own trigger."""
    folder = bench.folder / bench.new_name()
    folder.mkdir(mode=0o755)
    store, program = bench.empty_store(SQLITE), bench.checkout(side) / "src" / "tidelog" / "demo" / "shop.py"
    log, more = folder / "run.log", ["--store", store, "--trigger", TRIGGER, "--set", ONE_PARTITION]
    with broker_of(bench, side, folder) as broker:
        with Cluster(broker.bootstrap) as cluster:
            feeder = Feeder(broker.bootstrap, 1, 75.0, make_topics(cluster), lambda _: None)
        feeder.start()
        time.sleep(2.0)
        feeder.stop()
        with running(bench, side, broker.bootstrap, program, [], folder, more) as ran:
            deadline = time.monotonic() + PATIENCE_S
            while READY not in log.read_text():
                assert ran.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
                time.sleep(0.1)
            time.sleep(bench.amount(REST_SECONDS))
            pids = (ran.pid, broker.pid)
            bench.figures.add("idle, demo", OF_A_CORE, side, at_rest(bench, pids))


def demo(bench: Bench, side: str) -> None:
    """`tidelog demo`, three views of two topics; by its own figures."""
    minutes = bench.amount(60, least=15) / 60
    words = [sys.executable, "-m", "tidelog", "demo", "--no-browser", "--minutes", f"{minutes:g}"]
    began = time.monotonic()
    folder = bench.folder / bench.new_name()
    folder.mkdir()
    ran = subprocess.Popen(words, cwd=folder, env=bench.environment(side), stdout=subprocess.PIPE, text=True)
    used = at_live = 0.0
    assert ran.stdout is not None
    for line in ran.stdout:
        if found := LIVE.search(line):
            at_live, live_at = cpu_seconds(ran.pid), time.monotonic()
            bench.figures.add("start, demo", "live after s", side, time.monotonic() - began)
            bench.figures.add("start, demo", "CPU s", side, at_live)
        if line.startswith("produced"):
            used = cpu_seconds(ran.pid) - at_live
            bench.figures.add("demo", CPU_A_SECOND, side, used / (time.monotonic() - live_at) * 1000)
        if found := OF_A_VIEW.match(line.strip()):
            for metric, text in zip(("p50 ms", "p99 ms"), found.groups()[1:], strict=True):
                bench.figures.add(f"demo, {found[1]}", metric, side, float(text.replace(",", "")))
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
                key = len(sent) % KEYS
                value = json.dumps({"key": key, "number": len(sent), "at": at}).encode()
                sent.append(began + number / A_SECOND)
                producer.send(topic, value, key=str(key).encode(), partition=0)
            producer.flush()
            done = due
            time.sleep(TICK_S)


@contextmanager
def broker_of(bench: Bench, side: str, folder: Path) -> Iterator[TidelogProcess]:
    """One for each turn: nothing of another turn is in it."""
    broker = TidelogProcess(folder / "broker", environment=bench.environment(side))
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@contextmanager
def running(
    bench: Bench,
    side: str,
    bootstrap: str,
    program: Path,
    stores: list[str],
    folder: Path,
    more: Sequence[str] = (),
) -> Iterator[subprocess.Popen[bytes]]:
    words = ["run", str(program), "--bootstrap", bootstrap, "--memory", "1g"]
    words += ["--checkpoints", str(folder / "checkpoints"), *more]
    with (folder / "run.log").open("ab") as said:
        made = subprocess.Popen(
            [sys.executable, "-m", "tidelog", *words],
            cwd=folder,
            stdout=said,
            stderr=said,
            env={**bench.environment(side), "FRESH_STORES": " ".join(stores)},
        )
    try:
        yield made
    finally:
        made.terminate()
        made.wait(PATIENCE_S)
