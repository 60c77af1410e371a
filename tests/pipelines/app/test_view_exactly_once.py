"""An app's view in several stores at once, while its driver, its appliers, the broker and the stores are killed.

At every look, at every store with transactions, the view is the batch query over what its mark says was read: no part
of a micro-batch is ever seen, nothing is lost, nothing counts twice, and stores at equal offsets are equal. A seed
gives the input, the order of the kills and how long each waits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Protocol
from uuid import uuid4

import psutil
import psycopg
import pytest
from pyspark.sql import SparkSession

from against.apache_kafka import Missing, die_with_parent
from against.patience import eventually
from against.tidelog_process import TidelogProcess
from contract import TIMEOUT_S
from crash.seeds import run_seeds
from pipelines.app.looking import SOURCES, TOPIC, VIEW, Input, Looker, Rows, rows_of
from pipelines.app.sums_app import PARTITIONS, app
from postgres_server import PostgresServer, postgres
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.control import marks
from tidelog.pipelines import history
from tidelog.pipelines.graph import graph_of
from tidelog.pipelines.inputs import Span
from tidelog.pipelines.running import Settings, reader_of
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import PAGE_ROWS_MAX, Ask
from views.stores.opensearch_node import OpenSearchNode
from views.stores.redis_server import RedisServer

__all__ = ["postgres"]

PROGRAM = Path(__file__).with_name("sums_app.py")
SINK = f"{VIEW}.v1"
PATIENCE_S = 600.0
PIECES, ORDERS_A_PIECE, PIECE_S = 8, 15, 0.3
WAIT_S = 0.5
HELD_S = 120.0  # for which a successor may be held up by a lock
SOAK_SEEDS = 3


class Server(Protocol):
    """A store's, to be killed and started on its own data."""

    def start(self) -> object: ...
    def kill(self) -> None: ...


class App:
    """`tidelog run`, with its appliers, in processes of its own."""

    def __init__(self, bootstrap: str, stores: Sequence[str], folder: Path) -> None:
        self.log = folder / "run.log"
        words = ["run", str(PROGRAM), "--bootstrap", bootstrap, "--memory", "512m"]
        with self.log.open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tidelog", *words],
                cwd=folder,
                stdout=said,
                stderr=said,
                env={**os.environ, "SUMS_STORES": " ".join(stores)},
                preexec_fn=die_with_parent,
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def applier(self, store: str) -> psutil.Process | None:
        for one in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):  # Spark's workers come and go
                words = one.cmdline()
                if "apply" in words and store in words:
                    return one
        return None

    def kill(self, *, all_of_it: bool = True) -> None:
        """All of it, or the program alone: what it had started finds out by itself."""
        with suppress(psutil.NoSuchProcess):
            program = psutil.Process(self.process.pid)
            for one in (*(reversed(program.children(recursive=True)) if all_of_it else ()), program):
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        self.process.wait()


class Story:
    """`servers`: of stores that are killed, by the name of the kill."""

    def __init__(self, folder: Path, seed: int, stores: Sequence[str], servers: Mapping[str, Server]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.random = Random(seed)
        self.stores = list(stores)
        self.servers = servers
        self.input = Input(self.random)
        self.looker = Looker(self.input, stores)
        self.broker = TidelogProcess(folder / "broker").start()
        self.app = App(self.broker.bootstrap, self.stores, folder)

    def run(self, kills: Sequence[str]) -> None:
        with Cluster(self.broker.bootstrap, timeout_s=TIMEOUT_S, patient=True) as cluster:
            topics.create(cluster, TOPIC, partitions=SOURCES)
            self.looker.start()
            self.write_to_one_partition_and_to_none(cluster)
            for kill in self.random.sample(kills, len(kills)):
                print(f"kill {kill}, with {sum(len(part) for part in self.input.orders)} orders")
                self.write_on(cluster)
                self.kill(kill, cluster)
                self.write_on(cluster)
                self.await_all()
            self.check(cluster)
        self.app.process.send_signal(signal.SIGTERM)
        assert self.app.process.wait(PATIENCE_S) == 0, self.app.said()[-4000:]

    def end(self) -> None:
        self.looker.stop()
        self.app.kill()
        self.broker.kill()

    # The load ---------------------------------------------------------------------------------------------------------

    def write_to_one_partition_and_to_none(self, cluster: Cluster) -> None:
        """Micro-batches by themselves: all are waited for."""
        for _ in range(2):  # the first mark has none before it to be compared with
            self.input.write(cluster, 20, product="p0")
            self.await_all()
        self.input.write(cluster, 20, amount=0)
        self.await_all()

    def write_on(self, cluster: Cluster) -> None:
        for _ in range(self.random.randint(1, PIECES)):
            self.input.write(cluster, self.random.randint(1, ORDERS_A_PIECE))
            time.sleep(self.random.uniform(0, PIECE_S))

    def await_all(self) -> None:
        """Until every store has all that was written."""
        try:
            eventually(self._has_all, seconds=PATIENCE_S)
        except AssertionError as error:
            error.add_note(f"{self.looker.newest}\n{self.app.said()[-6000:]}")
            raise

    def has_all_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not (there := self._has_all()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return there

    def _has_all(self) -> bool:
        assert not self.looker.faults, "\n".join(self.looker.faults[:3])
        assert self.app.process.poll() is None, self.app.said()[-6000:]
        return self.looker.reached(self.input.ends)

    # Kills ------------------------------------------------------------------------------------------------------------

    def kill(self, which: str, cluster: Cluster) -> None:
        time.sleep(self.random.uniform(0, WAIT_S))
        if which in self.servers:
            self.servers[which].kill()
            self.write_on(cluster)
            self.servers[which].start()
        elif which == "stopped":
            self.stop_applier(cluster)
        else:
            getattr(self, f"kill_{which}")()

    def kill_driver(self) -> None:
        self.app.kill(all_of_it=self.random.random() < 0.5)
        self.app = App(self.broker.bootstrap, self.stores, self.folder)

    def kill_broker(self) -> None:
        self.broker.kill()
        self.broker.start()

    def kill_applier(self) -> None:
        self.applier(self.random.choice(self.stores)).kill()

    def stop_applier(self, cluster: Cluster) -> None:
        """One that was stopped in the middle of a transaction may hold its store's lock, and nobody goes on before it
        wakes up. Then it is stopped again when it has nothing to do: it holds no lock, and the successor goes on.
        """
        store = self.random.choice(self.stores)
        if not self.is_succeeded(store, cluster):
            print("a lock held the successor up")
            self.await_all()
            assert self.is_succeeded(store, cluster), (self.folder / "successor.log").read_text()[-4000:]

    def is_succeeded(self, store: str, cluster: Cluster) -> bool:
        """It wakes up after a successor has gone on, which is gone by then. It finds that the store is not where it had
        left it, and ends; or its own request was too long under way, and it reads its place anew.
        """
        old, heard = self.applier(store), len(self.app.said())
        old.suspend()
        try:
            went_on = self.has_all_by_a_successor(store, cluster)
            self.write_on(cluster)
        finally:
            old.resume()
        self.await_all()
        since = self.app.said()[heard:]
        assert not went_on or "another one is at work" in since or "is applied again" in since, since
        return went_on

    def has_all_by_a_successor(self, store: str, cluster: Cluster) -> bool:
        words = ["apply", VIEW, "--store", store, "--bootstrap", self.broker.bootstrap]
        with (self.folder / "successor.log").open("ab") as said:
            successor = subprocess.Popen([sys.executable, "-m", "tidelog", *words], stdout=said, stderr=said)
        try:
            self.write_on(cluster)
            return self.has_all_within(HELD_S)
        finally:
            successor.kill()
            successor.wait()

    def applier(self, store: str) -> psutil.Process:
        found = eventually(lambda: self.app.applier(store), seconds=PATIENCE_S)
        assert found is not None
        return found

    # In the end -------------------------------------------------------------------------------------------------------

    def check(self, cluster: Cluster) -> None:
        whole = self.input.after(self.input.ends)
        for store in self.stores:
            assert self.read(store) == whole, store
        assert not self.looker.faults, "\n".join(self.looker.faults[:3])
        assert not self.looker.different
        assert all(len(seen) > 2 for seen in self.looker.marks.values()), self.looker.marks
        moved = {self.moved(*pair) for pair in self.pairs_of_marks(cluster)}
        assert {0, 1} <= moved and max(moved) <= PARTITIONS, f"partitions that a micro-batch wrote to: {moved}"

    def read(self, store: str) -> Rows:
        with closing(open_store(store, VIEW)) as opened:
            return rows_of(opened.read(Ask(limit=PAGE_ROWS_MAX)))

    def pairs_of_marks(self, cluster: Cluster) -> Iterator[tuple[marks.Mark, marks.Mark]]:
        """Each with the one before it."""
        every = marks.read_marks(cluster, SINK, marks.end_of_marks(cluster, SINK))
        assert [one.batch_id for one in every] == sorted({one.batch_id for one in every}), "each batch once"
        return pairwise(every)

    def moved(self, before: marks.Mark, after: marks.Mark) -> int:
        return sum(end != before.ends.get(at) for at, end in after.ends.items())

    def batch(self, spark: SparkSession) -> Rows:
        """The same function over the whole input, as Spark has it."""
        graph = graph_of(app)
        settings = Settings(self.broker.bootstrap, str(self.folder / "batch"))
        with settings.connect() as cluster:
            reader = replace(reader_of(spark, graph, settings, cluster), span=Span())
            rows = history.rows_of(reader, graph.nodes[0]).collect()
        return {row["product"]: row.asDict() for row in rows}


def tell(
    folder: Path,
    seed: int,
    stores: Sequence[str],
    servers: Mapping[str, Server],
    kills: Sequence[str],
    batch: Callable[[Story], Rows] | None = None,
) -> None:
    print(f"seed {seed}")
    story = Story(folder, seed, stores, servers)
    try:
        story.run(kills)
        if batch is not None:
            assert batch(story) == story.input.after(story.input.ends)
        print(f"looks at marks: { {url: len(seen) for url, seen in story.looker.marks.items()} }")
    finally:
        story.end()


# Stores that come by pip ----------------------------------------------------------------------------------------------


@contextmanager
def local_stores(folder: Path, server: PostgresServer) -> Iterator[list[str]]:
    """Two of SQLite, with an applier each, so that equal offsets can be compared."""
    schema = f"t{uuid4().hex[:12]}"
    files = [f"sqlite:///{folder}/one.db", f"sqlite:///{folder}/other.db", f"sqlite+fts:///{folder}/text.db"]
    yield [*files, f"delta:///{folder}/delta", f"parquet:///{folder}/parquet", server.url(schema)]
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


KILLS = ("driver", "applier", "broker", "postgres", "stopped")


@pytest.mark.full
@proves("F1", "F2", "F3", "P3", "eo.16", "eo.17", "eo.21")
@pytest.mark.timeout(900)
def test_every_store_has_the_batch_query_over_what_was_read_whoever_is_killed(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path, seed: int
) -> None:
    with local_stores(tmp_path, postgres) as stores:
        tell(tmp_path, seed, stores, {"postgres": postgres}, KILLS, lambda story: story.batch(spark))


@pytest.mark.soak
@proves("F1", "F2", "F3", "P3", "eo.16", "eo.17", "eo.21", "soak")
@pytest.mark.timeout(7200)
def test_many_seeds_of_kills_around_a_view(postgres: PostgresServer, tmp_path: Path, seed: int) -> None:
    def run(folder: Path, one: int) -> None:
        with local_stores(folder, postgres) as stores:
            tell(folder, one, stores, {"postgres": postgres}, KILLS * 3)

    run_seeds(tmp_path, SOAK_SEEDS, run, seed)


# Stores of other makers -----------------------------------------------------------------------------------------------


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    try:
        server = RedisServer(tmp_path / "redis", syncs="always").start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield server
    server.stop()


@pytest.fixture
def opensearch_node() -> Iterator[OpenSearchNode]:
    # Not pytest's own folder: a node that root starts runs as nobody, who may not enter that.
    with TemporaryDirectory(prefix="tidelog-opensearch-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        try:
            node = OpenSearchNode(Path(folder)).start()
        except Missing as missing:
            pytest.skip(str(missing))
        yield node
        node.stop()


@pytest.mark.external
@proves("F1", "F2", "F3", "P3", "eo.16", "eo.17", "eo.21")
@pytest.mark.timeout(900)
def test_redis_and_opensearch_have_it_too_whoever_is_killed(
    redis_server: RedisServer, opensearch_node: OpenSearchNode, tmp_path: Path, seed: int
) -> None:
    stores = [f"{redis_server.url}?prefix=sums", f"{opensearch_node.url}?prefix=sums", f"sqlite:///{tmp_path}/views.db"]
    servers: dict[str, Server] = {"redis": redis_server, "opensearch": opensearch_node}
    tell(tmp_path, seed, stores, servers, ("driver", "broker", "stopped", "applier", *servers))
