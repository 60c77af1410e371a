"""`topic_writer` where Spark tells little, as under Spark Connect, and what it does to the process that it runs in.

The frame is a stand-in: its tasks run here. The writers, what they stage and what they commit are real.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from proving import proves
from spark.sinking import QUERY, arrow_of, committed, numbers_of, staged_numbers, up_to, writing_of
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.errors import UsageError
from tidelog.spark import worker_memory
from tidelog.spark.foreach_batch import topic_writer
from tidelog.spark.reach import borrow, give_back, read_reach
from tidelog.spark.sink import Staged, TopicStreamWriter, commit_micro_batch, lent
from tidelog.spark.sink_options import read_sink_options
from tidelog.spark.staging import Stage
from tidelog.testing.broker import TestBroker

SCHEMA = StructType().add("key", "binary").add("value", "binary")
Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Untold:
    """A session that says nothing at all."""


class Connected(NamedTuple):
    """A session of Spark Connect: one for each run of a query."""

    session_id: str


class Rows(NamedTuple):
    """A micro-batch, with as much of a DataFrame as the writer asks for."""

    numbers: Sequence[int]
    sparkSession: object
    schema: StructType = SCHEMA
    columns: Sequence[str] = ("key", "value")

    def select(self, *_: str) -> Rows:
        return self

    def mapInArrow(self, task: Task, _: str) -> Mapped:
        return Mapped(self, task)


class Mapped(NamedTuple):
    rows: Rows
    task: Task

    def collect(self) -> list[dict[str, bytes]]:
        return [row for batch in self.task([arrow_of(self.rows.numbers)]) for row in batch.to_pylist()]


@pytest.fixture
def cluster(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as made:
        for name in ("a", "b"):
            topics.create(made, name, partitions=1)
        yield made


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    folder = tmp_path / "checkpoint"
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    for batch_id in range(3):
        (folder / "offsets" / str(batch_id)).write_text(f'v1\n{{}}\n{{"in":{{"0":{batch_id + 1}}}}}')
    return str(folder)


@proves("eo.1")
@pytest.mark.parametrize("session", [Connected("run-1"), Untold()])
def test_two_writers_of_one_name_are_refused_where_spark_does_not_tell_the_run(
    tidelog_broker: TestBroker, cluster: Cluster, checkpoint: str, session: object
) -> None:
    sink = f"one-{type(session).__name__}"
    first = topic_writer("a", bootstrap=tidelog_broker.bootstrap, sink_name=sink, checkpoint=checkpoint)
    second = topic_writer("b", bootstrap=tidelog_broker.bootstrap, sink_name=sink, checkpoint=checkpoint)

    def both(rows: object, batch_id: int) -> None:
        first(rows, batch_id)  # type: ignore[arg-type]
        second(rows, batch_id)  # type: ignore[arg-type]

    sent = cloudpickle.loads(cloudpickle.dumps(both))
    with pytest.raises(UsageError, match="give each topic_writer a sink_name of its own"):
        sent(Rows([0, 1], session), 0)
    assert (committed(cluster, "a"), committed(cluster, "b")) == ([0, 1], [])


@proves("eo.1")
def test_one_writer_goes_on_from_micro_batch_to_micro_batch_and_a_new_run_may_write_the_last_again(
    tidelog_broker: TestBroker, cluster: Cluster, checkpoint: str
) -> None:
    told = topic_writer("a", bootstrap=tidelog_broker.bootstrap, sink_name="told", checkpoint=checkpoint)
    untold = topic_writer("b", bootstrap=tidelog_broker.bootstrap, sink_name="untold", checkpoint=checkpoint)
    for batch_id, run in ((0, "run-1"), (1, "run-1"), (1, "run-2"), (2, "run-2")):
        told(Rows([batch_id], Connected(run)), batch_id)  # type: ignore[arg-type]
        untold(Rows([batch_id], Untold()), batch_id)  # type: ignore[arg-type]
    assert committed(cluster, "a") == committed(cluster, "b") == [0, 1, 2]
    with pytest.raises(UsageError, match="was written to sink 'told' already"):
        told(Rows([7], Connected("run-2")), 2)  # type: ignore[arg-type]


@pytest.fixture
def as_started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process whose memory nobody has touched yet."""
    gc.unfreeze()
    monkeypatch.setattr(worker_memory, "_kept", False)
    yield
    gc.unfreeze()


@proves("P1")
def test_a_commit_leaves_the_memory_of_the_users_own_process_as_it_is(
    tidelog_broker: TestBroker, cluster: Cluster, checkpoint: str, as_started: None
) -> None:
    given = {"kafka.bootstrap.servers": tidelog_broker.bootstrap, "topic": "a", "checkpointLocation": checkpoint}
    stages = staged_numbers(cluster, "a", "s", numbers_of(0))
    assert commit_micro_batch(read_sink_options(given, streaming=True), writing_of("s", 0, "a"), stages)
    assert committed(cluster, "a") == up_to(1)
    assert (gc.get_freeze_count(), worker_memory._kept) == (0, False)
    TopicStreamWriter(given, SCHEMA, False).commit([Staged(Stage(QUERY, 0))], 0)
    assert (gc.get_freeze_count() > 0, worker_memory._kept) == (True, True)


@proves("P1")
def test_queries_that_commit_at_once_leave_no_connections_behind(tidelog_broker: TestBroker) -> None:
    reach = read_reach({"kafka.bootstrap.servers": tidelog_broker.bootstrap, "kafka.client.id": "at-once"})
    with lent(reach) as one, lent(reach) as other:
        connections = [one.any_node(), other.any_node()]
    assert sorted(connection.closed for connection in connections) == [False, True]
    kept = borrow(reach)
    assert not kept.any_node().closed and kept.any_node() in connections
    give_back(reach, kept)
    assert borrow(reach) is kept and not kept.any_node().closed
    kept.close()
