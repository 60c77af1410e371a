"""An empty table in each kind of store, and the upserts into it, as a PySpark user writes them for `foreachBatch`.

A micro-batch is one transaction where the store has some, else one request; the keys of a micro-batch are different
ones. Nothing says how far it has come.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TABLE = "(id BIGINT PRIMARY KEY, product TEXT, revenue DOUBLE PRECISION, orders BIGINT)"
TEXT_TABLE = "USING fts5 (id UNINDEXED, product, revenue UNINDEXED, orders UNINDEXED)"
NEW = "product = excluded.product, revenue = excluded.revenue, orders = excluded.orders"
SQLITE_UPSERT = f"INSERT INTO view VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET {NEW}"
TEXT_UPSERT = "INSERT OR REPLACE INTO view (rowid, id, product, revenue, orders) VALUES (?1, ?1, ?2, ?3, ?4)"
POSTGRES_UPSERT = f"INSERT INTO view VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET {NEW}"
COUNT = "SELECT count(*) FROM view"
SCHEMA = pa.schema([("id", pa.int64()), ("product", pa.string()), ("revenue", pa.float64()), ("orders", pa.int64())])

Upsert = Callable[[Sequence[Any]], None]


class Table(NamedTuple):
    upsert: Upsert
    count: Callable[[], int]


@contextmanager
def table_in(store: str) -> Iterator[Table]:
    """By the URL of the store."""
    kind, _, place = store.partition("://")
    with MAKERS[kind](place if kind in FILES else store) as table:
        yield table


@contextmanager
def in_sqlite(path: str) -> Iterator[Table]:
    with _sqlite(path, f"CREATE TABLE view {TABLE}", SQLITE_UPSERT) as table:
        yield table


@contextmanager
def in_sqlite_text(path: str) -> Iterator[Table]:
    with _sqlite(path, f"CREATE VIRTUAL TABLE view {TEXT_TABLE}", TEXT_UPSERT) as table:
        yield table


@contextmanager
def _sqlite(path: str, create: str, statement: str) -> Iterator[Table]:
    with closing(sqlite3.connect(Path(path.removeprefix("/")), check_same_thread=False)) as connection:
        # As the applier has its file: readers do not wait, and a power cut may take the last transactions.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(create)

        def upsert(rows: Sequence[Any]) -> None:
            with connection:
                connection.executemany(statement, rows)

        yield Table(upsert, lambda: int(connection.execute(COUNT).fetchone()[0]))


@contextmanager
def in_postgres(url: str) -> Iterator[Table]:
    place, _, schema = url.partition("&schema=")
    with psycopg.connect(place) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        connection.execute(f"SET search_path = {schema}".encode())
        connection.execute(f"CREATE TABLE view {TABLE}".encode())
        connection.commit()

        def upsert(rows: Sequence[Any]) -> None:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(POSTGRES_UPSERT, rows)

        def count() -> int:
            found = connection.execute(COUNT).fetchone()
            return 0 if found is None else int(found[0])

        yield Table(upsert, count)


@contextmanager
def in_parquet(path: str) -> Iterator[Table]:
    """One file, written anew with every micro-batch and put in place of the old one."""
    folder = Path(path.removeprefix("/"))
    folder.mkdir(parents=True)
    there, aside = folder / "view.parquet", folder / "new.parquet"
    pq.write_table(SCHEMA.empty_table(), there)

    def upsert(rows: Sequence[Any]) -> None:
        new, old = _as_arrow(rows), pq.read_table(there)
        stays = pc.invert(pc.is_in(old["id"], value_set=new["id"].combine_chunks()))
        pq.write_table(pa.concat_tables([old.filter(stays), new]), aside)
        aside.replace(there)

    yield Table(upsert, lambda: int(pq.read_metadata(there).num_rows))


@contextmanager
def in_delta(path: str) -> Iterator[Table]:
    from deltalake import DeltaTable

    table = DeltaTable.create(path.removeprefix("/"), SCHEMA)

    def upsert(rows: Sequence[Any]) -> None:
        merge = table.merge(_as_arrow(rows), "new.id = old.id", source_alias="new", target_alias="old")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    yield Table(upsert, lambda: len(table.to_pyarrow_table(columns=["id"])))


@contextmanager
def in_redis(url: str) -> Iterator[Table]:
    """A hash for each row."""
    import redis

    place, _, prefix = url.partition("?prefix=")
    with closing(redis.Redis.from_url(place)) as client:

        def upsert(rows: Sequence[Any]) -> None:
            with client.pipeline(transaction=True) as pipeline:
                for key, product, revenue, orders in rows:
                    fields = {"product": product, "revenue": revenue, "orders": orders}
                    pipeline.hset(f"{prefix}:{key}", mapping=fields)
                pipeline.execute()

        yield Table(upsert, lambda: sum(1 for _ in client.scan_iter(f"{prefix}:*", count=1000)))


@contextmanager
def in_opensearch(url: str) -> Iterator[Table]:
    """A document for each row, under its key."""
    from opensearchpy import OpenSearch, helpers

    place, _, prefix = url.removeprefix("opensearch+").partition("?prefix=")
    index = f"{prefix}-view"
    with closing(OpenSearch(place)) as client:
        client.indices.create(index=index)

        def upsert(rows: Sequence[Any]) -> None:
            documents = (dict(zip(SCHEMA.names, row, strict=True)) for row in rows)
            helpers.bulk(client, ({"_index": index, "_id": each["id"], "_source": each} for each in documents))

        def count() -> int:
            client.indices.refresh(index=index)
            return int(client.count(index=index)["count"])

        yield Table(upsert, count)


def _as_arrow(rows: Sequence[Any]) -> pa.Table:
    return pa.Table.from_arrays([pa.array(column) for column in zip(*rows, strict=True)], schema=SCHEMA)


FILES = {"sqlite": in_sqlite, "sqlite+fts": in_sqlite_text, "parquet": in_parquet, "delta": in_delta}
SERVERS = {"postgresql": in_postgres, "redis": in_redis, "opensearch+http": in_opensearch}
MAKERS = FILES | SERVERS
