"""The broker, the databases and the worker of a run, started when a row first wants them; and the sides."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import psutil
import psycopg
from bench.capture.figures import DEBEZIUM, LOG, TRIGGERS, TUNED
from bench.process_tree import cpu_seconds, processes_of
from bench.run import Run

from against.apache_kafka import REPOSITORY, Missing, die_with_parent
from against.connect_worker import EXAMPLE, PASSWORD, ConnectWorker, connect_folder
from against.tidelog_process import TidelogProcess
from capture.sources.mysql.mariadb_server import MariaDbServer
from crash.port import free_port
from postgres_server import PostgresServer
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.reading import span

HEAP = "2G"
POSTGRES, MARIADB = "PostgreSQL", "MariaDB"
WAIT_S = 300.0
FOR_MARIADB = REPOSITORY / ".make" / "connect-mariadb"
METHODS = {LOG: "log", TRIGGERS: "triggers"}
POLLS = {DEBEZIUM: "500", TUNED: "10"}
ROW = "id bigint PRIMARY KEY, n int NOT NULL, at bigint NOT NULL, note varchar(200)"


class Side(NamedTuple):
    """One that runs: its process, and where its records go."""

    pid: int
    topic: str


class Bench(Run):
    def name(self) -> str:
        return f"t{next(self._numbers)}"

    @cached_property
    def broker(self) -> str:
        return self.started(TidelogProcess(self.folder / "broker")).bootstrap

    @cached_property
    def postgres(self) -> tuple[PostgresServer, int]:
        place = self.folder / "postgres"
        place.mkdir(mode=0o755)
        port = free_port()
        settings = {"wal_level": "logical", "max_replication_slots": "40", "max_wal_senders": "40"}
        return self.started(PostgresServer(place.resolve(), settings, port=port)), port

    @cached_property
    def mariadb(self) -> MariaDbServer:
        return self.started(MariaDbServer(self.folder / "mariadb", "--innodb-buffer-pool-size=512M"))

    @cached_property
    def worker(self) -> ConnectWorker:
        folders = [connect_folder(), *([FOR_MARIADB] if FOR_MARIADB.exists() else [])]
        paths = {"plugin.path": ",".join(str(folder / "plugins") for folder in folders)}
        made = ConnectWorker(self.folder / "worker", self.broker, paths)
        made.command[1:4] = [f"-Xmx{HEAP}", "-XX:+UseG1GC"]  # as it is deployed, not as tests run it
        return self.started(made)

    @cached_property
    def databases(self) -> list[str]:
        found = [POSTGRES]
        try:
            assert self.mariadb
            found.append(MARIADB)
        except Missing as missing:
            print(f"MariaDB is left out: {missing}", file=sys.stderr)
        return found

    def sides(self, database: str, *more: str) -> list[str]:
        if database == MARIADB and not FOR_MARIADB.exists():
            print(f"Debezium's connector for MariaDB is left out: it is not in {FOR_MARIADB}", file=sys.stderr)
            return [*more, LOG, TRIGGERS]
        try:
            assert self.worker
        except Missing as missing:
            print(f"Debezium is left out: {missing}", file=sys.stderr)
            return [*more, LOG, TRIGGERS]
        return [*more, LOG, TRIGGERS, DEBEZIUM, TUNED]

    def run_sql(self, database: str, *statements: str) -> None:
        """On one connection, each a transaction of its own."""
        if database == POSTGRES:
            with psycopg.connect(self.postgres[0].url(), autocommit=True) as connection:
                for statement in statements:
                    connection.execute(statement.encode())
        else:
            self.mariadb.run(*statements, database="mysql" if statements[0].startswith("CREATE DATABASE") else "bench")

    def new_table(self, database: str) -> str:
        name = self.name()
        if database == MARIADB:
            self.run_sql(database, "CREATE DATABASE IF NOT EXISTS bench")
        self.run_sql(database, f"CREATE TABLE {name} ({ROW})")
        return name

    # Sides ------------------------------------------------------------------------------------------------------------

    @contextmanager
    def capturing(self, database: str, side: str, table: str, prefix: str) -> Iterator[Side]:
        schema = "public" if database == POSTGRES else "bench"
        topic = f"{prefix}.{schema}.{table}"
        if side in POLLS:
            config = self._for_mariadb(table, prefix) if database == MARIADB else self._for_postgres(table, prefix)
            yield from self._debezium(config | {"poll.interval.ms": POLLS[side]}, prefix, topic)
            return
        url = f"mariadb://root@127.0.0.1:{self.mariadb.port}/bench" if database == MARIADB else self.postgres[0].url()
        words = [sys.executable, "-m", "tidelog", "capture", "run", url, "--prefix", prefix]
        words += ["--tables", f"{schema}.{table}", "--method", METHODS[side], "--bootstrap", self.broker]
        with (self.folder / f"{prefix}.log").open("ab") as said:
            process = subprocess.Popen(words, stdout=said, stderr=said, preexec_fn=die_with_parent)
        try:
            yield Side(process.pid, topic)
        finally:
            process.terminate()
            process.wait(60)

    def _for_postgres(self, table: str, prefix: str) -> dict[str, str]:
        config: dict[str, str] = json.loads((EXAMPLE / "orders.json").read_text())["config"]
        config |= {"database.port": str(self.postgres[1]), "database.dbname": "postgres", "topic.prefix": prefix}
        config |= {"slot.name": prefix, "publication.name": prefix, "table.include.list": f"public.{table}"}
        return config | {"database.password": PASSWORD}

    def _for_mariadb(self, table: str, prefix: str) -> dict[str, str]:
        history = "schema.history.internal.kafka"
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.mariadb.port),
            "database.user": "root",
            "database.server.id": str(1_000 + next(self._numbers)),
            "topic.prefix": prefix,
            "table.include.list": f"bench.{table}",
            "include.schema.changes": "false",
            f"{history}.bootstrap.servers": self.broker,
            f"{history}.topic": f"history.{prefix}",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "exactly.once.support": "required",
        }

    def _debezium(self, config: dict[str, str], prefix: str, topic: str) -> Iterator[Side]:
        there = self.worker.state_of(prefix)
        if there:
            self.worker.ask("PUT", f"/connectors/{prefix}/resume")
        else:
            self.worker.ask("POST", "/connectors", {"name": prefix, "config": config})
        assert self.worker.process is not None
        try:
            yield Side(self.worker.process.pid, topic)
        finally:
            self.worker.ask("PUT", f"/connectors/{prefix}/stop")
            time.sleep(1)  # its task ends, and with it the slot is free

    def end_of(self, topic: str) -> int:
        with Cluster(self.broker) as cluster:
            there = span(cluster, TopicPartition(topic, 0), committed=True)
        return 0 if there is None else there.end


class Watched(NamedTuple):
    seconds: float
    cpu: float
    peak_mb: float
    records: int


def watched(bench: Bench, side: Side, begin: int, records: int) -> Watched:
    """From the first record that is there to the last. Markers of transactions count, too: a few in a thousand."""
    deadline = time.monotonic() + WAIT_S
    peak, first, cpu, began = 0.0, begin, 0.0, 0.0
    with Cluster(bench.broker) as cluster:
        at = TopicPartition(side.topic, 0)
        while True:
            assert time.monotonic() < deadline, f"{side.topic} has {first} of {begin + records} records"
            there = span(cluster, at, committed=True)
            end = 0 if there is None else there.end
            peak = max(peak, memory_mb(side.pid))
            if not began and end > begin:
                began, first, cpu = time.perf_counter(), end, cpu_seconds(side.pid)
            if end >= begin + records:
                break
            time.sleep(0.01)
    seconds = max(time.perf_counter() - began, 1e-3)
    return Watched(seconds, cpu_seconds(side.pid) - cpu, peak, max(1, begin + records - first))


def memory_mb(pid: int) -> float:
    total = 0.0
    for process in processes_of(pid):
        try:
            total += process.memory_info().rss / 1e6
        except psutil.Error:
            continue
    return total


def until(true: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
