"""The commit of a query that has had its sink from its first micro-batch on, as the outputs of apps have: it finds out
that the sink, or a topic that it has read, is not the one that it was. Without Spark.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from proving import proves
from spark.sinking import arrow_of, committed, connected, last_mark, numbers_of, staged_numbers, up_to, writing_of
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.marks import Sources, topic_of
from tidelog.client.metadata import TopicPartition
from tidelog.errors import DataLoss, LostCheckpoint
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
    with pytest.raises(LostCheckpoint, match=r"has no mark, and this is micro-batch 3: .*take the checkpoint away"):
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
    with pytest.raises(DataLoss, match=rf"topic {source} was deleted and made anew after micro-batch 0 had read"):
        run(cluster, topic, sink, 1)
    assert committed(cluster, topic) == up_to(1)
    assert run(cluster, topic, sink, 1, marked=False) and last_mark(cluster, sink).ids == {}


@proves("eo.14", "F4")
def test_a_topic_that_was_deleted_under_its_query_is_not_made_by_writing_to_it(
    cluster: Cluster, topic: str, sink: str
) -> None:
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
    with pytest.raises(DataLoss, match=rf"topic {topic}, .* was deleted and made anew after micro-batch 0; .* is lost"):
        run(cluster, topic, sink, 1)
    assert committed(cluster, topic) == []
    topics.delete(cluster, topic)
    assert run(cluster, topic, sink, 1, marked=False), "others may write to what comes by being written to"
