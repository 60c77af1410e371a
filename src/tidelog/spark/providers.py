"""Where the state of one query is kept: on the JVM's heap, Spark's default, or in RocksDB.

Spark takes the provider from the session's settings at the moment a query is started, and from the checkpoint when it
goes on: so the choice is made once in a query's life. On the heap, state is up to twice as fast and all of it is in
memory; `transformWithState` needs RocksDB. The settings belong to the whole session, so starts take turns here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, cast

from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

StateStore = Literal["heap", "rocksdb"]

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PROVIDERS: dict[StateStore, str] = {
    "heap": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
NEEDS_ROCKSDB = "TransformWithState"  # how the names of such operators begin in a plan

_starting = RLock()


@contextmanager
def state_store(frame: DataFrame, kind: StateStore | None = None) -> Iterator[None]:
    """Start the query over `frame` inside of this: `with state_store(counts, "rocksdb"): query = ....start()`.

    Without a kind, RocksDB is taken where `transformWithState` asks for it, and what the session has elsewhere.
    """
    wanted = kind or ("rocksdb" if needs_rocksdb(frame) else None)
    with _starting:
        if wanted is None:  # it waits for its turn, too: the session may have what another query is started with
            yield
            return
        provider, settings = provider_of(wanted), frame.sparkSession.conf
        before = settings.get(PROVIDER)
        settings.set(PROVIDER, provider)
        try:
            yield
        finally:
            settings.set(PROVIDER, cast(str, before))


def provider_of(kind: StateStore) -> str:
    if kind not in PROVIDERS:
        raise ConfigError(f"{kind!r} is not a state store; use {', '.join(PROVIDERS)}")
    return PROVIDERS[kind]


def needs_rocksdb(frame: DataFrame) -> bool:
    return _holds(frame._jdf.queryExecution().analyzed(), NEEDS_ROCKSDB)


def _holds(plan: Any, name: str) -> bool:
    children = plan.children()
    inner = (children.apply(position) for position in range(children.size()))
    return str(plan.nodeName()).startswith(name) or any(_holds(child, name) for child in inner)
