"""The commit of a query that has had its sink from its first micro-batch on, as the outputs of apps have: it finds out
that the sink, or a topic that it has read, is not the one that it was. Without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from proving import proves
from spark.sinking import arrow_of, committed, connected, last_mark, numbers_of, staged_numbers, up_to, writing_of
from tidelog.client.admin import topics
from tidelog.client.cluster import UNKNOWN_TOPIC_TRIES, Cluster
from tidelog.client.metadata import Metadata, TopicPartition
from tidelog.control.marks import Sources, topic_of
from tidelog.errors import DataLoss, LostCheckpoint
from tidelog.spark import routing
from tidelog.spark.commit import commit
from tidelog.spark.routing import Router


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))


@pytest.fixture
def sink(cluster: Cluster, topic: str) -> str:
    for name in (topic, f"{topic}-input"):
        topics.create(cluster, name, partitions=1)
    return f"s-{topic}"


def run(cluster: Cluster, topic: str, sink: str, batch_id: int, *, marked: bool = True) -> bool:
    """By a process of its own."""
    read = Sources({TopicPartition(f"{topic}-input", 0): batch_id + 1})
    with connected(cluster) as mine:
        stages = staged_numbers(mine, topic, sink, numbers_of(batch_id))
        writing = writing_of(sink, batch_id, topic, marked=marked, sources=read)
        return commit(mine, writing, stages, lambda: connected(cluster))


@proves("eo.6", "F4")
def test_a_later_micro_batch_without_a_mark_is_refused_where_there_was_no_other_sink(
    cluster: Cluster, topic: str, sink: str
) -> None:
    with pytest.raises(LostCheckpoint, match=r"has no mark, and this is micro-batch 3: .*delete the checkpoint"):
        run(cluster, topic, sink, 3)
    assert committed(cluster, topic) == []
    assert all(run(cluster, topic, sink, batch) for batch in range(2))
    topics.delete(cluster, topic_of(sink))
    with pytest.raises(LostCheckpoint, match="has no mark, and this is micro-batch 2"):
        run(cluster, topic, sink, 2)
    assert run(cluster, topic, sink, 2, marked=False), "one that came from another sink is written"
    assert committed(cluster, topic) == up_to(3)


@proves("eo.3", "F4")
def test_marks_have_the_ids_of_what_was_read_and_another_topic_of_the_same_name_is_refused(
    cluster: Cluster, topic: str, sink: str
) -> None:
    source = f"{topic}-input"
    assert run(cluster, topic, sink, 0)
    known = cluster.ask_metadata([source, topic]).topics
    assert last_mark(cluster, sink).ids == {name: known[name].topic_id.hex() for name in (source, topic)}
    topics.delete(cluster, source)
    topics.create(cluster, source, partitions=1)
    with pytest.raises(DataLoss, match=rf"topic {source} was deleted and created again after micro-batch 0 had read"):
        run(cluster, topic, sink, 1)
    assert committed(cluster, topic) == up_to(1)
    assert run(cluster, topic, sink, 1, marked=False) and last_mark(cluster, sink).ids == {}


@proves("eo.14", "F4")
def test_a_topic_that_was_deleted_under_its_query_is_not_made_by_writing_to_it(
    cluster: Cluster, topic: str, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "LOST_AFTER_S", 0.2)
    assert run(cluster, topic, sink, 0)
    with connected(cluster) as mine:
        stages = staged_numbers(mine, topic, sink, numbers_of(1))
        topics.delete(cluster, topic)
        with pytest.raises(DataLoss, match=rf"topic {topic}, where this query writes, was deleted; what it had is"):
            commit(mine, writing_of(sink, 1, topic, marked=True), stages, lambda: connected(cluster))
    with connected(cluster) as mine, pytest.raises(DataLoss, match=rf"topic {topic}, .* was deleted; what it had is"):
        list(Router(mine, topic, "none", [topic]).route([arrow_of(numbers_of(1))]))
    assert topic not in topics.names(cluster)
    topics.create(cluster, topic, partitions=1)
    with pytest.raises(
        DataLoss, match=rf"topic {topic}, .* was deleted and created again after micro-batch 0; .* is lost"
    ):
        run(cluster, topic, sink, 1)
    assert committed(cluster, topic) == []
    topics.delete(cluster, topic)
    assert run(cluster, topic, sink, 1, marked=False), "others may write to what comes by being written to"


class Stale(Cluster):
    """Whose broker knows nothing of a topic the first so many times that it is asked for it."""

    def __init__(self, cluster: Cluster, topic: str, denials: int) -> None:
        super().__init__([str(address) for address in cluster.bootstrap])
        self._denied = topic
        self.denials = denials

    def ask_metadata(self, topics: Iterable[str] | None, *, auto_create: bool = False) -> Metadata:
        names = None if topics is None else list(topics)
        read = super().ask_metadata(names, auto_create=auto_create)
        if self.denials and self._denied in (names or ()):
            self.denials -= 1
            self._topics.pop(self._denied, None)
            return replace(read, topics={name: one for name, one in read.topics.items() if name != self._denied})
        return read


@proves("eo.14", "F4")
def test_a_topic_that_one_broker_knows_nothing_of_for_a_moment_is_not_lost(
    cluster: Cluster, topic: str, sink: str
) -> None:
    assert run(cluster, topic, sink, 0)
    denials = UNKNOWN_TOPIC_TRIES + 2  # more than any other request would take
    with Stale(cluster, topic, denials) as mine:
        routed = list(Router(mine, topic, "none", [topic]).route([arrow_of(numbers_of(1))]))
        assert sum(one.rows for one in routed) == len(numbers_of(1)) and not mine.denials
    with connected(cluster) as mine, Stale(cluster, topic, denials) as stale:
        stages = staged_numbers(mine, topic, sink, numbers_of(1))
        assert commit(stale, writing_of(sink, 1, topic, marked=True), stages, lambda: connected(cluster))
        assert not stale.denials
    assert committed(cluster, topic) == up_to(2)
    assert last_mark(cluster, sink).ids[topic] == cluster.ask_metadata([topic]).topics[topic].topic_id.hex()


@proves("eo.14", "F4")
def test_a_target_that_had_nothing_yet_may_be_made_anew_and_one_that_is_read_may_not(
    cluster: Cluster, topic: str, sink: str
) -> None:
    """As an app does at its start with an output that is not there, and from whose marks nothing is missing."""
    read = Sources({TopicPartition(f"{topic}-input", 0): 1})
    assert commit(cluster, writing_of(sink, 0, topic, marked=True, sources=read), [], lambda: connected(cluster))
    before = last_mark(cluster, sink)
    assert before.ends == {TopicPartition(topic, 0): 0}
    topics.delete(cluster, topic)
    topics.create(cluster, topic, partitions=1)
    assert run(cluster, topic, sink, 1)
    assert committed(cluster, topic) == numbers_of(1)
    assert last_mark(cluster, sink).ids[topic] not in ("", before.ids[topic])
    topics.delete(cluster, f"{topic}-input")
    topics.create(cluster, f"{topic}-input", partitions=1)
    with pytest.raises(
        DataLoss, match=rf"topic {topic}-input was deleted and created again after micro-batch 1 had read"
    ):
        run(cluster, topic, sink, 2)
