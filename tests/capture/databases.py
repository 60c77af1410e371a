"""One face for the databases that captures are tried with. What differs between them is said here alone.

orders    id, item, price, note (which may be large), and `extra` once the table was changed
debit     id, n, and `credit` the same: what a transaction adds to one it takes from the other
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pymysql

import tidelog
from capture.captured import State
from capture.sources.mysql.mariadb_server import MariaDbServer
from postgres_server import PostgresServer
from tidelog.capture.running import Capture
from tidelog.capture.sources.mysql.stream import BinlogStream
from tidelog.capture.sources.postgres.stream import PostgresStream
from tidelog.capture.sources.sqlite.changelog import Changelog

COLUMNS, KEY = ("id", "item", "price", "note"), ("id",)
FAULTS = (sqlite3.Error, psycopg.Error, pymysql.err.Error)  # of a writer whose database goes away, or that loses a race


class Writer:
    """A connection in which every statement is a transaction of its own, unless one is begun."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def run(self, *statements: str) -> list[Any]:
        """What the last one gave."""
        cursor = self.connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description is not None else []

    @contextmanager
    def transaction(self, end: str = "COMMIT") -> Iterator[None]:
        self.run("BEGIN")
        try:
            yield
        except BaseException:
            with suppress(*FAULTS):
                self.run("ROLLBACK")
            raise
        self.run(end)

    def close(self) -> None:
        with suppress(*FAULTS):
            self.connection.close()


class Shop(ABC):
    """A database with the tables above, and the captures that were begun on it."""

    kind: str
    schema: str
    method: str | None = None  # of its captures; the first that its database has
    stream: type[Any]  # the class whose `read` and `confirm` a crash may come at
    truncate = "TRUNCATE TABLE orders"

    def __init__(self) -> None:
        self._writers: list[Writer] = []

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def _connect(self) -> Any: ...

    @abstractmethod
    def upsert(self, id: int, item: str, price: int, note: str) -> str: ...

    @abstractmethod
    def commit_order(self, source: dict[str, Any], transaction: dict[str, Any] | None) -> tuple[int, ...]:
        """Of one change, by what its record says: larger the later it was committed."""

    @abstractmethod
    def kill(self) -> None:
        """As a server ends that is killed; nothing of one that has no process."""

    @abstractmethod
    def start(self) -> None: ...

    def make(self, writer: Writer) -> None:
        writer.run(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, item VARCHAR(40), price INTEGER, note TEXT)",
            "CREATE TABLE debit (id INTEGER PRIMARY KEY, n INTEGER)",
            "CREATE TABLE credit (id INTEGER PRIMARY KEY, n INTEGER)",
        )

    def writer(self) -> Writer:
        made = Writer(self._connect())
        self._writers.append(made)
        return made

    def capture(self, bootstrap: str, **settings: Any) -> Capture:
        settings.setdefault("method", self.method)
        made: Capture = tidelog.capture(self.url, prefix="shop", bootstrap=bootstrap, **settings)
        return made

    def topic(self, table: str = "orders") -> str:
        return f"shop.{self.schema}.{table}"

    def rows(self, table: str = "orders", columns: Sequence[str] = COLUMNS) -> State:
        writer = self.writer()
        try:
            found = writer.run(f"SELECT {', '.join(columns)} FROM {table}")
            return {(row[0],): tuple(row) for row in found}
        finally:
            writer.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


class SqliteShop(Shop):
    kind, schema, stream, truncate = "sqlite", "main", Changelog, "DELETE FROM orders"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    @property
    def url(self) -> str:
        return f"sqlite:///{self._path}"

    def _connect(self) -> Any:
        made = sqlite3.connect(self._path, isolation_level=None, timeout=30, check_same_thread=False)
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("PRAGMA synchronous = OFF")
        return made

    def upsert(self, id: int, item: str, price: int, note: str) -> str:
        return f"INSERT OR REPLACE INTO orders (id, item, price, note) VALUES ({id}, '{item}', {price}, '{note}')"

    def commit_order(self, source: dict[str, Any], transaction: dict[str, Any] | None) -> tuple[int, ...]:
        return (source["change_id"], 0 if transaction is None else transaction["total_order"])

    def kill(self) -> None:
        pass

    def start(self) -> None:
        pass


class PostgresShop(Shop):
    kind, schema, stream = "postgres", "public", PostgresStream

    def __init__(self, server: PostgresServer) -> None:
        super().__init__()
        self._server, self._name = server, f"d{uuid4().hex[:12]}"
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self._name} TEMPLATE template0 ENCODING 'UTF8'")

    @property
    def url(self) -> str:
        return self._server.url().replace("/postgres?", f"/{self._name}?")

    def _connect(self) -> Any:
        return psycopg.connect(self.url, autocommit=True)

    def upsert(self, id: int, item: str, price: int, note: str) -> str:
        more = "item = excluded.item, price = excluded.price, note = excluded.note"
        values = f"({id}, '{item}', {price}, '{note}')"
        return f"INSERT INTO orders (id, item, price, note) VALUES {values} ON CONFLICT (id) DO UPDATE SET {more}"

    def commit_order(self, source: dict[str, Any], transaction: dict[str, Any] | None) -> tuple[int, ...]:
        assert transaction is not None
        return (int(transaction["id"].partition(":")[2]), transaction["total_order"])

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        super().close()
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = %s", [self._name]
            )
            for _ in range(100):
                with suppress(psycopg.errors.ObjectInUse):
                    connection.execute(
                        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s",
                        [self._name],
                    )
                    break
                connection.execute("SELECT pg_sleep(0.05)")
            connection.execute(f"DROP DATABASE {self._name} WITH (FORCE)")


class MariaDbShop(Shop):
    kind, stream = "mariadb", BinlogStream

    def __init__(self, server: MariaDbServer) -> None:
        super().__init__()
        self._server = server
        self.schema = f"d{uuid4().hex[:12]}"
        server.run(f"CREATE DATABASE {self.schema}")

    @property
    def url(self) -> str:
        return f"mariadb://root@127.0.0.1:{self._server.port}/{self.schema}"

    def _connect(self) -> Any:
        made = self._server.connect(self.schema)
        made.cursor().execute("SET SESSION innodb_lock_wait_timeout = 5")
        return made

    def upsert(self, id: int, item: str, price: int, note: str) -> str:
        values = f"({id}, '{item}', {price}, '{note}')"
        more = "item = VALUES(item), price = VALUES(price), note = VALUES(note)"
        return f"INSERT INTO orders (id, item, price, note) VALUES {values} ON DUPLICATE KEY UPDATE {more}"

    def commit_order(self, source: dict[str, Any], transaction: dict[str, Any] | None) -> tuple[int, ...]:
        assert transaction is not None
        return (int(source["gtid"].split("-")[2]), transaction["total_order"])

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        super().close()
        # A server that was killed in the middle of a DDL may leave files that it does not know, and refuses to remove.
        with suppress(pymysql.err.OperationalError):
            self._server.run(f"DROP DATABASE {self.schema}")
