"""Row `freshness`: how old a record is when a view shows it, through `tidelog run` with all that it starts.

A mark says which records are in what a store shows. Each store is looked at again and again; when its mark has moved,
the records between are visible from now on, each as old as the time since it was handed to the producer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread

from bench.views.bench import POSTGRES, SQLITE, Bench
from bench.views.figures import APPLIER

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.errors import NotShown
from tidelog.views.stores.opening import open_store

PROGRAM = Path(__file__).with_name("fresh_app.py")
TOPIC, VIEW = "measured", "fresh"
AT = TopicPartition(TOPIC, 0)
A_SECOND, SECONDS, WARM_SECONDS = 1000, 60, 15
KEYS = 100
TICK_S = 0.01
LOOK_S = 0.001
PATIENCE_S = 600.0
SHARES = {"p50 ms": 0.5, "p99 ms": 0.99, "worst ms": 1.0}


class Watcher:
    """Of one store: `delays` in milliseconds, of records from `first` on, once they are seen."""

    def __init__(self, url: str, sent: list[float]) -> None:
        self.delays: list[float] = []
        self.first = 0
        self.seen = 0
        self._url = url
        self._sent = sent
        self._ended = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        with closing(open_store(self._url, VIEW)) as store:
            while not self._ended.is_set():
                try:
                    _, place = store.get((0,))
                except NotShown:
                    time.sleep(0.1)
                    continue
                now = time.perf_counter()
                end = 0 if place.mark is None else place.mark.sources.offsets.get(AT, 0)
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


def run(bench: Bench) -> None:
    bench.stop_session()
    stores = {kind: bench.empty_store(kind) for kind in (SQLITE, POSTGRES)}
    log = bench.folder / "run.log"
    with Cluster(bench.broker) as cluster:
        topics.create(cluster, TOPIC, partitions=1)
        with running(bench, list(stores.values()), log) as program:
            sent: list[float] = []
            watchers = {kind: Watcher(url, sent) for kind, url in stores.items()}
            produce(cluster, sent, 1.0)
            for watcher in watchers.values():
                watcher.until(len(sent), program, log)  # it has started
            produce(cluster, sent, bench.amount(WARM_SECONDS))
            for rep in range(bench.reps):
                measure(bench, cluster, sent, watchers, program, log)
                print(f"freshness, round {rep + 1} of {bench.reps}", file=sys.stderr, flush=True)
            for watcher in watchers.values():
                watcher.stop()


def measure(
    bench: Bench,
    cluster: Cluster,
    sent: list[float],
    watchers: dict[str, Watcher],
    program: subprocess.Popen[bytes],
    log: Path,
) -> None:
    for watcher in watchers.values():
        watcher.first, watcher.delays = len(sent), []
    produce(cluster, sent, bench.amount(SECONDS, least=5))
    for kind, watcher in watchers.items():
        watcher.until(len(sent), program, log)
        ordered = sorted(watcher.delays)
        for metric, share in SHARES.items():
            row = f"freshness, {kind}, {A_SECOND:,} records/s"
            bench.figures.add(row, metric, APPLIER, ordered[int(share * (len(ordered) - 1))])


def produce(cluster: Cluster, sent: list[float], seconds: float) -> None:
    """A few each tick, flushed at once. Times are those at which they were due: who is late adds to the delay."""
    began = time.perf_counter()
    count = int(A_SECOND * seconds)
    with Producer(cluster) as producer:
        done = 0
        while done < count:
            due = min(count, int((time.perf_counter() - began) * A_SECOND) + 1)
            for number in range(done, due):
                value = json.dumps({"key": len(sent) % KEYS, "number": len(sent)}).encode()
                sent.append(began + number / A_SECOND)
                producer.send(TOPIC, value, partition=0)
            producer.flush()
            done = due
            time.sleep(TICK_S)


@contextmanager
def running(bench: Bench, stores: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = ["run", str(PROGRAM), "--bootstrap", bench.broker, "--memory", "1g"]
    words += ["--checkpoints", str(bench.folder / "checkpoints")]
    with log.open("ab") as said:
        program = subprocess.Popen(
            [sys.executable, "-m", "tidelog", *words],
            cwd=bench.folder,
            stdout=said,
            stderr=said,
            env={**os.environ, "FRESH_STORES": " ".join(stores)},
        )
    try:
        yield program
    finally:
        program.terminate()
        program.wait(PATIENCE_S)
