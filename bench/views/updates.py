"""Row `updates`: changes of a view into each store, by the applier and by a `foreachBatch` that is written by hand.

The changes are in topics before the clock starts: in a view's topic, with a mark for each micro-batch, and as plain
rows for Spark. In the end every store has the same rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from bench.spark.bench import Used
from bench.views.bench import Bench
from bench.views.by_hand import upserted
from bench.views.figures import APPLIER, BY_HAND, CPU, ONE_BY_ONE, UPDATES

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.control.marks import Ends
from tidelog.schema.declaration import Row, declare
from tidelog.views import reading
from tidelog.views.applier import Applier
from tidelog.views.changes import encode
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import Ask, Store
from views.writing import Pipeline, declare_view

CHANGES, KEYS = 100_000, 10_000
SIZES = (1_000, 10_000)  # of micro-batches
DECLARED = declare({"id": "long", "product": "string", "revenue": "double", "orders": "long"}, ("id",))
PAGE = 1000


class Filled(NamedTuple):
    """One load: `view` has it as a view's changes, up to `ends`; `plain` as rows in JSON."""

    size: int
    changes: int
    view: str
    ends: Ends
    plain: str


def run(bench: Bench) -> None:
    loads = [fill(bench, size) for size in SIZES]
    for load in loads:
        for counts in bench.rounds():
            for kind in bench.stores:
                for side in (APPLIER, ONE_BY_ONE, BY_HAND):
                    used = turn(bench, load, kind, side)
                    if counts:
                        row = f"{kind}, micro-batches of {load.size:,}"
                        bench.figures.add(row, UPDATES, side, load.changes / used.seconds)
                        bench.figures.add(row, CPU, side, used.cpu / load.changes * 1e6)


def turn(bench: Bench, load: Filled, kind: str, side: str) -> Used:
    store = bench.empty_store(kind)
    if side == BY_HAND:
        return upserted(bench, load.plain, load.size, store, rows=min(load.changes, KEYS))
    with one_by_one() if side == ONE_BY_ONE else as_it_is():
        return applied(bench, load, store)


def row_of(number: int) -> Row:
    return {"id": number % KEYS, "product": f"product {number % 97}", "revenue": number * 0.25, "orders": number}


def rows_of(begin: int, end: int) -> Iterator[Row]:
    return (row_of(number) for number in range(begin, end))


def fill(bench: Bench, size: int) -> Filled:
    changes = max(size, bench.amount(CHANGES) // size * size)
    view, plain = f"view-{size}", f"plain-{size}"
    with Cluster(bench.broker) as cluster:
        made = declare_view(cluster, view, DECLARED)
        pipeline = Pipeline(cluster, made.generations[0])
        topics.create(cluster, plain, partitions=1)
        with Producer(cluster) as producer:
            for begin in range(0, changes, size):
                rows = list(rows_of(begin, begin + size))
                pipeline.owner.begin()
                pipeline.last = pipeline.write_encoded([encode(DECLARED, row) for row in rows])
                pipeline.owner.commit()
                for row in rows:
                    producer.send(plain, json.dumps(row).encode())
        assert pipeline.last is not None
        return Filled(size, changes, view, pipeline.last.ends, plain)


# By the applier -------------------------------------------------------------------------------------------------------


def applied(bench: Bench, load: Filled, url: str) -> Used:
    """In this process: what it costs is what this process used meanwhile."""
    used = Used()
    with Cluster(bench.broker) as cluster, closing(open_store(url, load.view)) as store:
        applier = Applier(cluster, load.view, store, store_name="bench", max_wait_ms=20)
        cpu, began = time.process_time(), time.perf_counter()
        while not is_there(store, load.ends):
            applier.step()
        used.seconds, used.cpu = time.perf_counter() - began, time.process_time() - cpu
        page = store.read(Ask(limit=PAGE))
        newest = range(load.changes - min(load.changes, KEYS), load.changes)
        expected = sorted(map(row_of, newest), key=lambda row: int(str(row["id"])))[:PAGE]
        assert [dict(row) for row in page.rows] == expected, "the store has other rows"
    return used


def is_there(store: Store, ends: Ends) -> bool:
    if store.shown() is None:
        return False
    place = store.place(1)
    return place is not None and dict(place.ends) == dict(ends)


@contextmanager
def as_it_is() -> Iterator[None]:
    yield


@contextmanager
def one_by_one() -> Iterator[None]:
    """As if every micro-batch had come alone."""
    several = reading.there
    reading.there = lambda known, positions: min(1, several(known[:1], positions))
    try:
        yield
    finally:
        reading.there = several
