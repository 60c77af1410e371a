"""An app in the tests' own Spark session, a step at a time: all that is there is read, and the queries end.

`view` folds what a view's topic says, by the code that appliers use. `batch` is what the same function gives over the
same records as a batch DataFrame: the oracle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from tidelog.client.producer import Producer
from tidelog.pipelines import history
from tidelog.pipelines.app import App
from tidelog.pipelines.graph import graph_of
from tidelog.pipelines.inputs import Span
from tidelog.pipelines.observed import Observed
from tidelog.pipelines.placing import Target
from tidelog.pipelines.queries import Written, start_query
from tidelog.pipelines.running import Settings, prepare, reader_of
from tidelog.record.columns import Row as Record
from tidelog.schema.declaration import Key, Row, row_to_json
from tidelog.views.changes import changes_of

Rows = dict[Key, Row]
ALL = Span()


class Driven:
    def __init__(self, app: App, spark: SparkSession, cluster: Cluster, bootstrap: str, folder: Path) -> None:
        self.settings = Settings(bootstrap, str(folder / "checkpoints"), store=f"sqlite:///{folder}/views.db")
        self.cluster = cluster
        self.graph = graph_of(app)
        self.reader = reader_of(spark, self.graph, self.settings, cluster)
        self._targets: dict[str, Target] = {}
        self.observed: dict[str, Observed] = {}  # of each query as it was last run

    @property
    def targets(self) -> dict[str, Target]:
        if not self._targets:
            self._targets = {one.node.name: one for one in prepare(self.cluster, self.reader, self.settings)}
        return self._targets

    def step(self, *only: str) -> None:
        """Each query reads what is there, one after the other, as they read each other."""
        for name, target in self.targets.items():
            if not only or name in only:
                self.run(target)

    def run(self, target: Target) -> None:
        self.observed[target.node.name] = observed = Observed(target.topic)
        written = Written()
        trigger = {"availableNow": True}
        with observed.declared():
            frame = replace(self.reader, sink=target.sink).result(target.node)
            how = {"trigger": trigger, "written": written, "observed": observed}
            query = start_query(frame, target, self.settings.options, **how)
        try:
            query.awaitTermination()
        except Exception:
            if written.error is not None:
                raise written.error from None
            raise

    def forget_commits(self, name: str) -> None:
        """As if the driver had died before Spark noted that a micro-batch was done."""
        for commit in (Path(self.targets[name].checkpoint) / "commits").iterdir():
            commit.unlink()

    # What there is

    def records(self, topic: str) -> list[tuple[TopicPartition, Record]]:
        return committed(self.cluster, topic)

    def envelopes(self, name: str) -> list[dict[str, Any]]:
        rows = [row for _, row in self.records(self.targets[name].topic)]
        return [json.loads(row.value) if row.value is not None else {} for row in rows]

    def view(self, name: str) -> Rows:
        target = self.targets[name]
        assert target.declared is not None
        folded: Rows = {}
        for at in self.cluster.partitions(target.topic):
            rows = [row for place, row in self.records(target.topic) if place == at]
            for change in changes_of(target.declared, at, rows):
                folded.pop(change.key, None)
                if change.after is not None:
                    folded[change.key] = change.after
        return folded

    def batch(self, name: str, span: Span = ALL) -> Rows:
        """Over all history: the rows that the view should have."""
        target = self.targets[name]
        assert target.declared is not None
        rows = history.rows_of(replace(self.reader, span=span), target.node)
        key = target.declared.key
        return {tuple(row[one] for one in key): row.asDict(recursive=True) for row in rows.collect()}

    def said(self, name: str, rows: Rows) -> dict[Key, dict[str, Any]]:
        """As JSON: types of views and of Spark are not the same in Python."""
        declared = self.targets[name].declared
        assert declared is not None
        return {key: row_to_json(declared, row) for key, row in rows.items()}


def committed(cluster: Cluster, topic: str) -> list[tuple[TopicPartition, Record]]:
    places = cluster.partitions(topic)
    ends = list_offsets(cluster, dict.fromkeys(places, LATEST), isolation=READ_COMMITTED)
    consumer = Consumer(cluster, read_committed=True, max_wait_ms=50)
    consumer.assign({at: one.offset for at, one in list_offsets(cluster, dict.fromkeys(places, EARLIEST)).items()})
    found = []
    while any(consumer.positions[at] < ends[at].offset for at in places):
        for fetched in consumer.fetch():
            found += [(fetched.at, row) for row in fetched.rows()]
    return found


def make_topic(cluster: Cluster, name: str, partitions: int = 2, configs: Mapping[str, str] | None = None) -> None:
    topics.create(cluster, name, partitions=partitions, configs=configs)


def produce(cluster: Cluster, topic: str, rows: Sequence[Mapping[str, Any] | None], key: Sequence[str] = ()) -> None:
    """Rows as JSON, by `key` where there is one."""
    with Producer(cluster) as producer:
        for number, row in enumerate(rows):
            name = key[number] if key else None
            value = None if row is None else json.dumps(row).encode()
            producer.send(topic, value, key=None if name is None else name.encode())
