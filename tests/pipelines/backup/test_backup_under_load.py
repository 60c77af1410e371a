"""A whole app backed up while it is under load, at random instants, with Spark removing what it needs no more: each
backup, restored in another folder, goes on exactly once.

The app has an aggregate of Spark's own (on the heap), a fold of its own (RocksDB) and a derived topic. What is compared
with is the batch query over the restored input, and over more of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from against.apache_kafka import die_with_parent
from against.patience import eventually
from against.tidelog_process import TidelogProcess
from pipelines.app.driven import Driven
from proving import proves
from tidelog.broker.embedded import Broker
from tidelog.cli import backup, restore, verify
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.offsets import LATEST, READ_COMMITTED, list_offsets
from tidelog.client.producer import Producer
from tidelog.control.marks import Mark, end_of_marks, partition_of_marks, read_mark, read_marks
from tidelog.pipelines.loading import load_app, travelling_whole
from tidelog.schema.declaration import row_to_json
from tidelog.views.applier import Applier
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import Ask

PROGRAM = Path(__file__).with_name("backed_up_app.py")
PARTITIONS, PRODUCTS = 2, 40
PIECE, BETWEEN_S = 12, 0.02
PATIENCE_S = 300.0
PURGING = {  # as little as Spark can be told to keep, and at once
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "300ms",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.rocksdb.minVersionsToDelete": "0",
}
SINKS = {"revenue": "revenue.v1", "sold": "sold.v1", "large-orders": "shop.large-orders"}
VIEWS = ("revenue", "sold")
QUIET = {"tidelog.log.level": "ERROR"}
INSTANTS, RUNS = 20, 4


class Load:
    """Orders, all the time, from a thread of its own."""

    def __init__(self, bootstrap: str, random: Random) -> None:
        self._bootstrap, self._random = bootstrap, random
        self._ending, self._failed = Event(), False
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        assert not self._failed

    def _run(self) -> None:
        self._failed = True
        with Cluster(self._bootstrap) as cluster:
            number = 0
            while not self._ending.is_set():
                write(cluster, self._random, number, PIECE)
                number += PIECE
                self._ending.wait(BETWEEN_S)
        self._failed = False


def write(cluster: Cluster, random: Random, first: int, count: int) -> None:
    with Producer(cluster) as producer:
        for number in range(first, first + count):
            order = {"id": number, "product": f"p{random.randrange(PRODUCTS)}", "amount": random.randrange(100)}
            producer.send("orders", json.dumps(order).encode(), partition=random.randrange(PARTITIONS))


@contextmanager
def running(bootstrap: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    settings = [word for name, value in PURGING.items() for word in ("--set", f"{name}={value}")]
    words = ["run", str(PROGRAM), "--bootstrap", bootstrap, "--memory", "512m", "--trigger", "50 milliseconds"]
    with (folder / "run.log").open("ab") as said:
        command = [sys.executable, "-m", "tidelog", *words, *settings]
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, preexec_fn=die_with_parent)
    try:
        yield process
    finally:
        with suppress(psutil.NoSuchProcess):
            program = psutil.Process(process.pid)
            for one in (*reversed(program.children(recursive=True)), program):
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        process.wait()


def batch_of(cluster: Cluster, sink: str) -> int:
    mark = read_mark(cluster, sink)
    return -1 if mark is None else mark.batch_id


def take_backups(folder: Path, count: int, random: Random) -> list[Path]:
    """Each at an instant of its own, of a run that is under load all the time."""
    broker = TidelogProcess(folder / "broker").start()
    taken: list[Path] = []
    try:
        with Cluster(broker.bootstrap, patient=True) as cluster, running(broker.bootstrap, folder) as process:
            topics.create(cluster, "orders", partitions=PARTITIONS)
            with Load(broker.bootstrap, random):
                for sink in SINKS.values():
                    eventually(lambda: batch_of(cluster, sink) > 4, seconds=PATIENCE_S)  # noqa: B023
                for number in range(count):
                    time.sleep(random.random())
                    taken.append(folder / f"saved-{number}")
                    here = ["--app", str(PROGRAM), "--checkpoints", str(folder / "tidelog-checkpoints")]
                    store = f"sqlite:///{folder}/tidelog-views/shop.db"
                    words = [str(taken[-1]), "--data", str(broker.data), "--json", *here, "--store", store]
                    assert backup.run(words) == 0
                assert process.poll() is None, (folder / "run.log").read_text()[-4000:]
                check_purged(folder)
    finally:
        broker.kill()
    left = [path.name for path in (folder / "tidelog-checkpoints").glob(".backup*")]
    assert left == [".backup.shop@lock"], "nothing is left behind but the file of a lock"
    return taken


def check_purged(folder: Path) -> None:
    """Spark has removed nearly all, or this would show little."""
    for query in ("revenue.v1", "sold.v1", "large-orders"):
        checkpoint = folder / "tidelog-checkpoints" / "shop" / query
        assert len(list((checkpoint / "commits").iterdir())) < 6, query


class Restored:
    """A backup on a broker of its own, gone on with in the tests' own Spark session."""

    def __init__(self, saved: Path, folder: Path, spark: SparkSession, broker: Broker, cluster: Cluster) -> None:
        self.saved, self.folder, self.cluster = saved, folder, cluster
        app = load_app(str(PROGRAM))
        travelling_whole(app)
        self.driven = Driven(app, spark, cluster, broker.bootstrap, folder)
        store = f"sqlite:///{folder}/tidelog-views/shop.db"
        checkpoints = str(folder / "tidelog-checkpoints")
        self.driven.settings = replace(self.driven.settings, checkpoints=checkpoints, store=store)

    def check(self, random: Random) -> None:
        before = {sink: batch_of(self.cluster, sink) for sink in SINKS.values()}
        self.check_stores()
        self.driven.step()
        self.check_answers()
        write(self.cluster, random, 10_000_000, 50)
        self.driven.step()
        self.check_answers()
        for sink, batch in before.items():
            marks = read_marks(self.cluster, sink, end_of_marks(self.cluster, sink))
            numbers = [one.batch_id for one in marks]
            assert numbers == sorted(set(numbers)) and numbers[-1] > batch, "each micro-batch once, and it went on"

    def check_answers(self) -> None:
        for view in VIEWS:
            rows, wanted = (self.driven.said(view, of(view)) for of in (self.driven.view, self.driven.batch))
            assert rows == wanted and wanted, view
            assert self.stored(view) == rows, f"the store of {view}"
        orders = Counter(record.value for _, record in self.driven.records("orders") if is_large(record.value))
        assert Counter(of_value(record.value) for _, record in self.driven.records("large-orders")) == Counter(
            {of_value(value): count for value, count in orders.items()}
        )

    def check_stores(self) -> None:
        """The log has the mark that a store has, so that its applier goes on. A commit that was under way in the backup
        stays open until the app runs, and is not waited for.
        """
        for view in VIEWS:
            with closing(open_store(self.driven.settings.store or "", view)) as store:
                shown = store.shown()
                place = None if shown is None else store.place(shown)
            assert place is not None
            eventually(lambda: place.mark in self.committed_marks(SINKS[view]))  # noqa: B023

    def committed_marks(self, sink: str) -> list[Mark]:
        at = partition_of_marks(sink)
        end = list_offsets(self.cluster, {at: LATEST}, isolation=READ_COMMITTED)[at].offset
        return read_marks(self.cluster, sink, end)

    def stored(self, view: str) -> dict[Any, dict[str, Any]]:
        """What the applier makes of the restored store."""
        mark, declared = read_mark(self.cluster, SINKS[view]), self.driven.targets[view].declared
        assert mark is not None and declared is not None
        with closing(open_store(self.driven.settings.store or "", view)) as store:
            applier = Applier(self.cluster, view, store, store_name="sqlite", max_wait_ms=20)
            while (place := store.place(store.shown() or 0)) is None or place.ends != mark.ends:
                applier.step()
            rows = [row_to_json(declared, row) for row in store.read(Ask(limit=1000)).rows]
        return {(row["product"],): row for row in rows}


def is_large(value: bytes | None) -> bool:
    return json.loads(value or b"{}")["amount"] > 50


def of_value(value: bytes | None) -> tuple[Any, ...]:
    order = json.loads(value or b"{}")
    return order["id"], order["product"], order["amount"]


def tell(folder: Path, spark: SparkSession, count: int, seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    app_folders = folder / "running"
    app_folders.mkdir()
    taken = take_backups(app_folders, count, random)
    (app_folders / "tidelog-checkpoints").rename(folder / "gone")  # nothing is read where it was
    for number, saved in enumerate(taken):
        print(f"backup {number}")
        assert verify.run([str(saved)]) == 0
        place = folder / f"restored-{number}"
        assert restore.run([str(saved), "--data", str(place / "data"), "--app-folder", str(place)]) == 0
        with Broker(place / "data", settings=QUIET) as broker, Cluster(broker.bootstrap) as cluster:
            Restored(saved, place, spark, broker, cluster).check(random)


@proves("T6", "P3", "F2")
@pytest.mark.full
@pytest.mark.timeout(900)
def test_an_app_backed_up_under_load_goes_on_exactly_once_in_another_folder(
    spark: SparkSession, tmp_path: Path
) -> None:
    tell(tmp_path, spark, 2, 8)


@proves("T6", "P3", "F2")
@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("run", range(RUNS))
def test_at_twenty_random_instants_of_four_runs_too(spark: SparkSession, tmp_path: Path, seed: int, run: int) -> None:
    tell(tmp_path, spark, INSTANTS // RUNS, RUNS * seed + run)
