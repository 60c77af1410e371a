"""The broker, the stores and the one session of a run; servers are started when a row first wants them."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bench.repository import REPOSITORY
from bench.run import Extent, Run
from bench.session import QUIET, end_with_jvm
from bench.views.figures import BEFORE, TIDELOG

import tidelog
from against.apache_kafka import Missing
from against.tidelog_process import TidelogProcess
from postgres_server import PostgresServer
from views.stores.opensearch_node import OpenSearchNode
from views.stores.redis_server import RedisServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAP = "1g"
SQLITE, TEXT, POSTGRES, PARQUET, DELTA = "SQLite", "SQLite full text", "PostgreSQL", "Parquet", "Delta"
REDIS, OPENSEARCH = "Redis", "OpenSearch"
FILES = {SQLITE: "sqlite:///{}.db", TEXT: "sqlite+fts:///{}.db", PARQUET: "parquet:///{}", DELTA: "delta:///{}"}
STORES = (*FILES, POSTGRES, REDIS, OPENSEARCH)


class Bench(Run):
    """`before`: another checkout, with its extension modules built, whose broker and runs take turns with this one's
    where a row starts its own.
    """

    def __init__(self, folder: Path, extent: Extent, before: Path | None = None) -> None:
        super().__init__(folder, extent)
        self.before = before
        self._session: SparkSession | None = None

    @property
    def sides(self) -> list[str]:
        return [TIDELOG] if self.before is None else [TIDELOG, BEFORE]

    def environment(self, side: str) -> dict[str, str]:
        """Of a process that runs that side's Tidelog."""
        return {**os.environ, "PYTHONPATH": str(self.checkout(side) / "src")}

    def checkout(self, side: str) -> Path:
        return self.before if side == BEFORE and self.before is not None else REPOSITORY

    def stop(self) -> None:
        self.stop_session()
        super().stop()

    def new_name(self) -> str:
        return f"n{next(self._numbers)}"

    @cached_property
    def _broker(self) -> TidelogProcess:
        return self.started(TidelogProcess(self.folder / "broker"))

    @property
    def broker(self) -> str:
        """Where it is."""
        return self._broker.bootstrap

    # Stores -----------------------------------------------------------------------------------------------------------

    @cached_property
    def postgres(self) -> PostgresServer:
        place = self.folder / "postgres"
        place.mkdir(mode=0o755)
        return self.started(PostgresServer(place.resolve()))

    @cached_property
    def redis(self) -> RedisServer:
        return self.started(RedisServer(self.folder / "redis"))

    @cached_property
    def opensearch(self) -> OpenSearchNode:
        place = self.folder / "opensearch"
        place.mkdir(mode=0o755)
        return self.started(OpenSearchNode(place))

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
            end_with_jvm(self._session)
            self._session = None
