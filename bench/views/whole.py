"""Row `whole`: from a topic of records through one aggregate of Spark's into a store: a declared view, with its topic
and its applier, beside a query that upserts into the store by hand. Both run in one warm session, in micro-batches of
the same size, and are counted from the start of the query until the store has all of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from bench.broker.process import cpu_seconds
from bench.spark.bench import Used, measured
from bench.views.bench import POSTGRES, SQLITE, Bench
from bench.views.by_hand import hand_over, rows_from
from bench.views.figures import APPLIER, BY_HAND, CPU, UPDATES
from bench.views.hand_tables import Upsert
from bench.views.updates import CHANGES, KEYS, row_of

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.control.marks import Ends, read_mark
from tidelog.pipelines.app import App
from tidelog.pipelines.graph import graph_of
from tidelog.pipelines.inputs import Reader
from tidelog.pipelines.placing import Target, live_topic
from tidelog.pipelines.queries import Written, start_query
from tidelog.pipelines.running import Settings, prepare
from tidelog.views.reading import reached
from tidelog.views.stores.opening import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPIC, SIZE = "records", 10_000
PATIENCE_S = 600.0


def run(bench: Bench) -> None:
    records = bench.amount(CHANGES) // SIZE * SIZE or SIZE
    with Cluster(bench.broker) as cluster:
        topics.create(cluster, TOPIC, partitions=1)
        with Producer(cluster) as producer:
            for number in range(records):
                producer.send(TOPIC, json.dumps(row_of(number)).encode())
        for counts in bench.rounds():
            for kind in (SQLITE, POSTGRES):
                for side, turn in ((APPLIER, declared), (BY_HAND, by_hand)):
                    used = turn(bench, cluster, bench.empty_store(kind), records)
                    if counts:
                        row = f"from records to {kind}, micro-batches of {SIZE:,}"
                        bench.figures.add(row, UPDATES, side, records / used.seconds)
                        bench.figures.add(row, CPU, side, used.cpu / records * 1e6)


def totals(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    revenue, orders = F.sum("revenue").alias("revenue"), F.count("*").alias("orders")
    return records.groupBy("id").agg(F.max("product").alias("product"), revenue, orders)


def declared(bench: Bench, cluster: Cluster, store: str, records: int) -> Used:
    target, reader, settings = placed(bench, cluster, store)
    with applier(bench, target.node.name, store) as child:
        before = cpu_seconds(child.pid)
        with measured() as used:
            trigger = {"availableNow": True}
            query = start_query(
                reader.result(target.node), target, settings.options, trigger=trigger, written=Written()
            )
            query.awaitTermination()
            mark = read_mark(cluster, target.sink)
            assert mark is not None and mark.sources.offsets[next(iter(mark.sources.offsets))] == records
            await_applied(store, target.node.name, mark.ends)
        used.cpu += cpu_seconds(child.pid) - before
    return used


def placed(bench: Bench, cluster: Cluster, store: str) -> tuple[Target, Reader, Settings]:
    name = f"totals-{bench.new_name()}"
    app = App(name)
    app.stream(TOPIC, value="id long, product string, revenue double, orders long")
    app.view(name, key="id", store=store)(totals)
    settings = Settings(bench.broker, str(bench.folder / "checkpoints"))
    options = {**settings.options, "maxOffsetsPerTrigger": str(SIZE)}
    reader = Reader(bench.session, options, graph_of(app), lambda output: live_topic(cluster, output))
    (target,) = prepare(cluster, reader, settings)
    return target, reader, settings


@contextmanager
def applier(bench: Bench, view: str, store: str) -> Iterator[subprocess.Popen[bytes]]:
    """It stands by before the clock starts, as it does for a query that goes on."""
    words = ["apply", view, "--store", store, "--bootstrap", bench.broker]
    with subprocess.Popen([sys.executable, "-m", "tidelog", *words], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and b"is applied to" in child.stdout.readline()
        try:
            yield child
        finally:
            child.terminate()


def await_applied(url: str, view: str, ends: Ends) -> None:
    deadline = time.monotonic() + PATIENCE_S
    with closing(open_store(url, view)) as store:
        while (place := store.place(1)) is None or not reached(ends, place.ends):
            assert time.monotonic() < deadline, "it was never applied"
            time.sleep(0.005)


def by_hand(bench: Bench, _cluster: Cluster, store: str, records: int) -> Used:
    def run_query(upsert: Upsert, used: Used) -> None:
        def each(rows: DataFrame, batch_id: int) -> None:
            upsert([tuple(row) for row in rows.select("id", "product", "revenue", "orders").collect()])

        with measured() as taken:
            writer = totals(rows_from(bench, TOPIC, SIZE)).writeStream.outputMode("update").foreachBatch(each)
            where = str(bench.folder / bench.new_name())
            writer.option("checkpointLocation", where).trigger(availableNow=True).start().awaitTermination()
        used.seconds, used.cpu = taken.seconds, taken.cpu

    return hand_over(store, run_query, rows=min(records, KEYS))
