"""A table that is a view starts from the view's store, at its place, instead of from the start of the view's topic.

    seed topic   __tidelog.seed.<sink>.<table>: the store's rows as the view's topic has them, one transaction
    its mark     written last in it: "sources" is the store's place, from where the view's topic is read on
    order        a row of the seed is older than any record of the topic, whatever their offsets are

Rules:
- A seed belongs to one sink, and so to one checkpoint. It is written once: a query that is started again finds its
  mark, and reads the same rows and from the same place. A rebuild has a sink of its own, and a seed of its own.
- All rows are of one place. If the store goes on while they are read, page by page, they are read again.
- The first micro-batch takes the whole seed: a row of it that came after the topic's own delete would be a dead one.
- Over history the view's topic is read, and no store.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control import marks
from tidelog.control.catalog import Generation, find_view
from tidelog.control.marks import Ends, Mark, Sources
from tidelog.control.offsets import to_fields
from tidelog.control.owner import Owner
from tidelog.control.urls import redacted
from tidelog.errors import UsageError
from tidelog.pipelines.operators.joins.places import SEED
from tidelog.schema.declaration import Declaration, Row
from tidelog.views.changes import encode
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import PAGE_ROWS_MAX, Ask, Place, Store, generation_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREFIX = "__tidelog.seed."
OWNER_PREFIX = "seed."  # of the sink whose mark it is
TRIES = 100  # of reading a store that goes on meanwhile
WAIT_S = 0.1
BEFORE_ALL = -(1 << 62)  # added to the offsets of a seed's rows, and what their times count as


class Seed(NamedTuple):
    """Where a query begins to read."""

    topic: str
    view_topic: str
    begin: Ends  # of the view's topic

    @property
    def options(self) -> dict[str, str]:
        """Of the source."""
        import json

        offsets = {self.topic: {"0": 0}, **to_fields(self.begin)}
        return {
            "subscribe": f"{self.topic},{self.view_topic}",
            "startingOffsets": json.dumps(offsets, separators=(",", ":")),
            "maxOffsetsPerTrigger": "unlimited",
        }


# Decisions ------------------------------------------------------------------------------------------------------------


def parse_start(text: str, table: str) -> tuple[str, str]:
    """The store's URL, and the view: what stands behind `#`, or the table's own name."""
    url, _, view = text.partition("#")
    return url, view or table


def begin_of(place: Place, generation: Generation) -> Ends:
    """The next offset of each partition of the view's topic; one that the store knows nothing of is read whole."""
    every = [TopicPartition(generation.topic, index) for index in range(generation.partitions)]
    return {at: place.ends.get(at, 0) for at in every}


def older(frame: DataFrame, seed: Seed) -> DataFrame:
    """Places that say what is later: rows of the seed lie before all of the topic's, in a partition of their own."""
    from pyspark.sql import functions as F

    is_seed = F.col("topic") == seed.topic
    offset = F.col("offset") + F.when(is_seed, F.lit(BEFORE_ALL)).otherwise(F.lit(0))
    partition = F.when(is_seed, F.lit(SEED)).otherwise(F.col("partition"))
    return frame.withColumn("offset", offset).withColumn("partition", partition)


# The shell ------------------------------------------------------------------------------------------------------------


def seed_of(cluster: Cluster, sink: str, table: str, start_from: str) -> Seed:
    """Of this sink; written where there is none yet."""
    url, name = parse_start(start_from, table)
    seeding = f"{OWNER_PREFIX}{sink}.{table}"
    topic = f"{PREFIX}{sink}.{table}"
    _ensure(cluster, topic)
    marks.ensure_topic(cluster, seeding)
    owner = Owner(cluster, marks.transactional_id_of(seeding))
    owner.begin()
    mark = marks.read_mark(cluster, seeding, marks.end_of_marks(cluster, seeding))
    if mark is None:
        mark = _write(cluster, owner, seeding, topic, url, name)
    view_topic = next((at.topic for at in mark.sources.offsets), None)
    assert view_topic is not None, "a view has a partition"
    return Seed(topic, view_topic, mark.sources.offsets)


def _write(cluster: Cluster, owner: Owner, sink: str, topic: str, url: str, name: str) -> Mark:
    view = find_view(cluster, name)
    store = open_store(url, name)
    try:
        declared, rows, place = read_whole(store)
    finally:
        store.close()
    number = generation_of(place.generation)
    generation = next((one for one in view.generations if one.number == number), None)
    if generation is None or number != view.live:
        raise UsageError(
            f"{redacted(url)} shows generation {number} of view {name}, and {view.live} is live; is it being applied?"
        )
    now, at = int(time.time() * 1000), TopicPartition(topic, 0)
    mark = Mark(sink, f"seed {name}", 0, Sources(begin_of(place, generation)), {at: 0}, now)
    with owner.transaction() as outgoing:
        outgoing.send(at, ((*encode(declared, row), (), now) for row in rows))
        outgoing.send(TopicPartition(marks.topic_of(sink), 0), [(*marks.encode(mark), (), now)])
    return mark


def read_whole(store: Store) -> tuple[Declaration, list[Row], Place]:
    """All rows of one place."""
    for _ in range(TRIES):
        pages = list(_pages(store))
        places = {_at(page_place) for _, page_place in pages}
        if len(places) == 1:
            place = pages[0][1]
            return store.generations()[place.generation], [row for rows, _ in pages for row in rows], place
        time.sleep(WAIT_S)
    raise UsageError(f"the store has gone on {TRIES} times while it was read; start when fewer changes come")


def _pages(store: Store) -> Iterator[tuple[list[Row], Place]]:
    after = None
    while True:
        page = store.read(Ask(after=after, limit=PAGE_ROWS_MAX))
        yield list(page.rows), page.place
        if not page.more:
            return
        key = store.generations()[page.place.generation].key
        after = tuple(page.rows[-1][name] for name in key)


def _at(place: Place) -> tuple[int, tuple[tuple[TopicPartition, int], ...]]:
    return place.generation, tuple(sorted(place.ends.items()))


def _ensure(cluster: Cluster, topic: str, configs: Mapping[str, str] | None = None) -> None:
    topics.ensure(cluster, topic, partitions=1, configs={"retention.ms": "-1", **(configs or {})})
