"""A pipeline without Spark: micro-batches of a view's changes, each one transaction with its mark, as a sink has them.

`Oracle` is what a view is after every one of them: rows by key, folded in Python.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.transactions import Transactions
from tidelog.control import marks
from tidelog.control.catalog import Editor, Generation, View
from tidelog.control.marks import Ends, Mark, Sources
from tidelog.errors import BrokerError
from tidelog.record.partitioner import partition_of
from tidelog.schema.declaration import FEED_HORIZON_MS, Declaration, Row, declare
from tidelog.views import lifecycle
from tidelog.views.changes import encode
from tidelog.wire.error_code import ErrorCode

REVENUE = declare({"product": "string", "revenue": "long"}, ("product",))
ORDERS = TopicPartition("orders", 0)

Rows = Mapping[str, int | None]  # revenue by product; None: no more


def row_of(product: str, revenue: int | None) -> Row:
    return {"product": product, "revenue": revenue}


def declare_view(
    cluster: Cluster,
    name: str,
    declared: Declaration = REVENUE,
    *,
    partitions: int = 1,
    stores: Iterable[str] = (),
    inputs: Iterable[str] = ("orders",),
) -> View:
    """As `tidelog run` does: the catalog, then the topics."""
    editor = Editor(cluster, name)
    found = editor.view() or lifecycle.new_view(name, app="shop", inputs=tuple(inputs), stores=tuple(stores))
    view = lifecycle.begin(found, declared, "f1", partitions)
    editor.write(view)
    make_topics(cluster, view.generations[-1], declared.horizon_ms)
    return view


def make_topics(cluster: Cluster, generation: Generation, horizon_ms: int = FEED_HORIZON_MS) -> None:
    settings = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(horizon_ms)}
    try:
        topics.create(cluster, generation.topic, partitions=generation.partitions, configs=settings)
    except BrokerError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    if generation.sink:
        marks.ensure_topic(cluster, generation.sink, horizon_ms=horizon_ms)


class Pipeline:
    """What fills one generation. `Oracle` beside it has what a reader is to see after each micro-batch."""

    def __init__(self, cluster: Cluster, generation: Generation, *, query_id: str = "q") -> None:
        self.generation = generation
        self.query_id = query_id
        self._cluster = cluster
        self._owner = Transactions(cluster, marks.transactional_id_of(generation.sink))
        self._owner.start()
        self.partitions = [TopicPartition(generation.topic, index) for index in range(generation.partitions)]
        last = marks.read_mark(cluster, generation.sink, marks.end_of_marks(cluster, generation.sink))
        self.last = last
        self.batch_id = 0 if last is None else last.batch_id + 1

    def batch(self, rows: Rows, *, time_ms: int | None = None, sources: Sources | None = None, **told: Any) -> Mark:
        """One micro-batch, committed. `told` is what else its mark says."""
        self._owner.begin()
        mark = self.write(rows, time_ms=time_ms, sources=sources, **told)
        self._owner.commit()
        self.last = mark
        return mark

    def write(self, rows: Rows, *, time_ms: int | None = None, sources: Sources | None = None, **told: Any) -> Mark:
        """Within a transaction that is open."""
        encoded = [self._encoded(product, revenue) for product, revenue in rows.items()]
        records = [one for pair in encoded for one in pair]
        return self.write_encoded(records, time_ms=time_ms, sources=sources, **told)

    def write_encoded(
        self,
        records: Iterable[tuple[bytes, bytes | None]],
        *,
        time_ms: int | None = None,
        sources: Sources | None = None,
        **told: Any,
    ) -> Mark:
        producer = self._owner.producer
        sent = [
            producer.send(self.generation.topic, value, key=key, partition=partition_of(key, len(self.partitions)))
            for key, value in records
        ]
        producer.flush()
        written: dict[TopicPartition, int] = {}
        for delivery in sent:
            written[delivery.at] = max(written.get(delivery.at, 0), delivery.offset + 1)
        now = int(time.time() * 1000) if time_ms is None else time_ms
        mark = Mark(
            self.generation.sink,
            self.query_id,
            self.batch_id,
            sources or Sources({ORDERS: self.batch_id + 1}),
            marks.ends_after(self.last, written, self.partitions, {}),
            now,
            self.generation.number,
            **told,
        )
        self.batch_id += 1
        key, value = marks.encode(mark)
        producer.send(marks.topic_of(mark.sink), value, key=key, partition=0)
        return mark

    @property
    def owner(self) -> Transactions:
        return self._owner

    def _encoded(self, product: str, revenue: int | None) -> list[tuple[bytes, bytes | None]]:
        key, value = encode(self.generation.declared, row_of(product, revenue or 0), gone=revenue is None)
        return [(key, value)] if revenue is not None else [(key, value), (key, None)]


class Oracle:
    """The view after each mark."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.after: dict[tuple[tuple[TopicPartition, int], ...], dict[str, int]] = {}

    def note(self, rows: Rows, mark: Mark) -> None:
        for product, revenue in rows.items():
            if revenue is None:
                self.now.pop(product, None)
            else:
                self.now[product] = revenue
        self.after[_sorted(mark.ends)] = dict(self.now)

    def at(self, ends: Ends) -> dict[str, int]:
        """KeyError where no micro-batch ends there: then part of one was seen."""
        return self.after[_sorted(ends)]


def _sorted(ends: Ends) -> tuple[tuple[TopicPartition, int], ...]:
    return tuple(sorted(ends.items()))


def revenues(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return {row["product"]: row["revenue"] for row in rows}
