"""The broker, the stores and the one session of a run; servers are started when a row first wants them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bench.broker.figures import Figures

import tidelog
from against.apache_kafka import Missing
from against.tidelog_process import TidelogProcess
from postgres_server import PostgresServer
from views.stores.opensearch_node import OpenSearchNode
from views.stores.redis_server import RedisServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAP = "1g"
QUIET = {"spark.log.level": "ERROR", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
SQLITE, TEXT, POSTGRES, PARQUET, DELTA = "SQLite", "SQLite full text", "PostgreSQL", "Parquet", "Delta"
REDIS, OPENSEARCH = "Redis", "OpenSearch"
FILES = {SQLITE: "sqlite:///{}.db", TEXT: "sqlite+fts:///{}.db", PARQUET: "parquet:///{}", DELTA: "delta:///{}"}
STORES = (*FILES, POSTGRES, REDIS, OPENSEARCH)


class Bench:
    """`reps` repetitions; `share` of the full amount of work in each."""

    def __init__(self, folder: Path, *, reps: int, share: float, quick: bool) -> None:
        self.folder = folder
        self.reps = reps
        self.share = share
        self.quick = quick
        self.figures = Figures()
        self._numbers = itertools.count()
        self._stack = ExitStack()
        self._session: SparkSession | None = None

    def stop(self) -> None:
        self.stop_session()
        self._stack.close()

    def amount(self, full: int, least: int = 1) -> int:
        return max(least, int(full * self.share))

    def new_name(self) -> str:
        return f"n{next(self._numbers)}"

    def rounds(self) -> Iterator[bool]:
        """One for each repetition, told whether it counts: the first only warms all sides up."""
        yield from (True,) if self.quick else (False, *[True] * self.reps)

    @cached_property
    def broker(self) -> str:
        """Where it is."""
        made = TidelogProcess(self.folder / "broker").start()
        self._stack.callback(made.stop)
        return made.bootstrap

    # Stores -----------------------------------------------------------------------------------------------------------

    @cached_property
    def postgres(self) -> PostgresServer:
        place = self.folder / "postgres"
        place.mkdir(mode=0o755)
        made = PostgresServer(place.resolve())
        made.start()
        self._stack.callback(made.stop)
        return made

    @cached_property
    def redis(self) -> RedisServer:
        made = RedisServer(self.folder / "redis").start()
        self._stack.callback(made.stop)
        return made

    @cached_property
    def opensearch(self) -> OpenSearchNode:
        place = self.folder / "opensearch"
        place.mkdir(mode=0o755)
        made = OpenSearchNode(place).start()
        self._stack.callback(made.stop)
        return made

    def empty_store(self, kind: str) -> str:
        """The URL of one."""
        name = self.new_name()
        if kind in FILES:
            return FILES[kind].format(self.folder / name)
        if kind == POSTGRES:
            return self.postgres.url(name)
        server = self.redis if kind == REDIS else self.opensearch
        return f"{server.url}?prefix={name}"

    @cached_property
    def stores(self) -> list[str]:
        """Those that can be had here."""
        found = []
        for kind in STORES:
            try:
                self.empty_store(kind)
            except Missing as missing:
                print(f"{kind} is left out: {missing}", file=sys.stderr)
            else:
                found.append(kind)
        return found

    # The session ------------------------------------------------------------------------------------------------------

    @property
    def session(self) -> SparkSession:
        if self._session is None:
            where = {"spark.local.dir": str(self.folder / "local")}
            self._session = tidelog.spark_session("bench", memory=HEAP, settings={**QUIET, **where})
        return self._session

    def stop_session(self) -> None:
        """Rows that measure other programs want this one out of the way."""
        if self._session is not None:
            self._session.stop()
            self._session = None
            from pyspark import SparkContext

            if SparkContext._gateway is not None:
                SparkContext._gateway.shutdown()
                SparkContext._gateway = SparkContext._jvm = None
