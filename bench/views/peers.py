"""Row `peers`: how old a record is when a reader of the output topic sees what became of it, by each side: a view of
ours, PyFlink, Quix Streams, and Spark with its own Kafka connector. One count and one maximum by key, 1,000 records a
second; the reader is librdkafka's, and takes committed records alone.

Each turn has a broker of its own, and each side the same records. In the end its last row of each key is compared with
what was sent: a side that has others, or a row that went back, has no figure. CPU is that of the side, of all that it
has started, and of the broker; ours has its applier in it, which nobody waits for here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

from bench.pipelines.peers import python_of
from bench.process_tree import cpu_seconds, processes_of
from bench.repository import REPOSITORY
from bench.views.bench import SQLITE, Bench
from bench.views.figures import BEFORE, BY_TOPIC, FLINK, QUIX, TIDELOG
from bench.views.freshness import (
    A_SECOND,
    AGGREGATE,
    CPU_A_SECOND,
    KEYS,
    PATIENCE_S,
    SECONDS,
    WARM_SECONDS,
    add_shares,
    broker_of,
    produce,
    running,
)
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as At

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster

if TYPE_CHECKING:
    import psutil

OUTPUT = "output"
OF_VIEW = f"{AGGREGATE.view}.v1"
ROW = f"to a reader of the topic, {A_SECOND:,} records/s"
AT_ONCE, POLL_S = 10_000, 0.05


class Program(NamedTuple):
    path: str
    environment: str | None = None
    """That of a peer; None for this one."""


PROGRAMS = {
    FLINK: Program("bench/views/sides/flink.py", "flink"),
    QUIX: Program("bench/views/sides/quix.py", "quix"),
    BY_TOPIC: Program("-m bench.views.sides.by_hand"),
}


class Wrong(Exception):
    """What a side has written is not what was asked for."""


class Shown:
    """What a reader has seen: `delays` in milliseconds, of records from `first` on, and the last row of each key. The
    record with number N has key N % KEYS.
    """

    def __init__(self, sent: list[float]) -> None:
        self.delays: list[float] = []
        self.first = 0
        self.seen = 0
        self._sent = sent
        self._rows: dict[int, tuple[int, int]] = {}
        self._wrong: str | None = None

    def take(self, value: bytes, now: float) -> None:
        """A view's topic has envelopes, the others' rows as they are."""
        said = json.loads(value)
        row = said.get("after", said)
        key, records, newest = row["key"], row["records"], row["newest"]
        _, before = self._rows.get(key, (0, key - KEYS))
        if newest < before:
            self._wrong = self._wrong or f"of key {key} newest was {before}, and then {newest}"
            return
        self._rows[key] = records, newest
        shown = range(before + KEYS, newest + 1, KEYS)
        self.delays += [(now - self._sent[number]) * 1000 for number in shown if number >= self.first]
        self.seen += len(shown)

    def fault(self) -> str | None:
        """What is wrong, once all records are seen."""
        count = len(self._sent)
        asked = {key: (len(range(key, count, KEYS)), range(key, count, KEYS)[-1]) for key in range(min(KEYS, count))}
        if self._wrong is not None or self._rows == asked:
            return self._wrong
        key = next(key for key in {**asked, **self._rows} if self._rows.get(key) != asked.get(key))
        return f"of key {key} it has {self._rows.get(key)}, and right is {asked.get(key)}"


class Reader:
    """Of one output topic, in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, shown: Shown) -> None:
        self._where, self._topic, self._shown = bootstrap, topic, shown
        self._ended = Event()
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with Cluster(self._where) as cluster:
            while self._topic not in topics.names(cluster):
                if self._ended.wait(POLL_S):
                    return
            partitions = [at.partition for at in cluster.partitions(self._topic)]
        how = {"isolation.level": "read_committed", "group.id": "reader", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self._where, "fetch.wait.max.ms": 100, **how})
        consumer.assign([At(self._topic, number, OFFSET_BEGINNING) for number in partitions])
        while not self._ended.is_set():
            message = consumer.poll(POLL_S)
            if message is None or message.error() is not None:
                continue
            now = time.perf_counter()
            for one in (message, *consumer.consume(AT_ONCE, timeout=0)):
                if one.error() is None and one.value() is not None:
                    self._shown.take(one.value(), now)
        consumer.close()

    def until(self, count: int, side: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self._shown.seen < count:
            if side.poll() is not None or time.monotonic() > deadline:
                raise Wrong(f"it has shown {self._shown.seen:,} of {count:,} records: {log.read_text()[-1000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


def run(bench: Bench) -> Iterator[None]:
    bench.stop_session()
    for rep in range(bench.reps):
        sides = [TIDELOG, *([BEFORE] if bench.before else []), *PROGRAMS]
        for side in sides[:: -1 if rep % 2 else 1]:
            try:
                measure(bench, side)
            except Wrong as why:
                print(f"{ROW}: {side}: no figure: {why}", file=sys.stderr, flush=True)
                continue
            print(f"{ROW}: {side}, round {rep + 1} of {bench.reps}", file=sys.stderr, flush=True)
        yield


def measure(bench: Bench, side: str) -> None:
    folder = bench.folder / bench.new_name()
    folder.mkdir(mode=0o755)
    sent: list[float] = []
    with broker_of(bench, side, folder) as broker, Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, AGGREGATE.topic, partitions=1)
        if side in PROGRAMS:
            topics.create(cluster, OUTPUT, partitions=1)
        produce(cluster, AGGREGATE.topic, sent, 1.0)
        began, log = time.monotonic(), folder / "run.log"
        with _launched(bench, side, broker.bootstrap, folder) as ran:
            shown = Shown(sent)
            reader = Reader(broker.bootstrap, OUTPUT if side in PROGRAMS else OF_VIEW, shown)
            try:
                pids = (ran.pid, broker.pid)
                reader.until(len(sent), ran, log)
                live_after = time.monotonic() - began
                produce(cluster, AGGREGATE.topic, sent, bench.amount(WARM_SECONDS))
                reader.until(len(sent), ran, log)
                shown.first, shown.delays = len(sent), []
                began, before = time.monotonic(), sum(map(cpu_seconds, pids))
                produce(cluster, AGGREGATE.topic, sent, bench.amount(SECONDS, least=5))
                reader.until(len(sent), ran, log)
                used, seconds = sum(map(cpu_seconds, pids)) - before, time.monotonic() - began
            finally:
                reader.stop()
            if (wrong := shown.fault()) is not None:
                raise Wrong(wrong)
    add_shares(bench, ROW, side, shown.delays)
    bench.figures.add(ROW, CPU_A_SECOND, side, used / seconds * 1000)
    bench.figures.add(ROW, "live after s", side, live_after)


@contextmanager
def _launched(bench: Bench, side: str, bootstrap: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    if side not in PROGRAMS:
        with running(bench, side, bootstrap, AGGREGATE.program, [bench.empty_store(SQLITE)], folder) as ran:
            yield ran
        return
    program, python = PROGRAMS[side], sys.executable
    if program.environment is not None:
        python, why = python_of(program.environment)
        if why:
            raise Wrong(why)
    told = {"bootstrap": bootstrap, "topic": AGGREGATE.topic, "output": OUTPUT, "folder": str(folder)}
    with (folder / "run.log").open("ab") as said:
        words = [python, *program.path.split(), json.dumps(told)]
        made = subprocess.Popen(words, cwd=REPOSITORY, stdout=said, stderr=said)
    try:
        yield made
    finally:
        _end(processes_of(made.pid))
        made.wait(PATIENCE_S)


def _end(processes: list[psutil.Process]) -> None:
    """With all below it: a side that is killed alone would leave its JVM behind."""
    import psutil

    for one in processes:
        try:
            one.kill()
        except psutil.Error:
            continue
