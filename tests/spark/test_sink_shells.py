"""The sink driven as Spark drives it, without a session: writers that are pickled, a checkpoint's files, one message a
task.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, WriterCommitMessage
from pyspark.sql.types import StructType

import tidelog
from crash.port import free_port
from proving import proves
from spark.sinking import arrow_of, committed, last_mark
from spark.test_faults import LOGIN, _users
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.security import Security
from tidelog.errors import PeerError, UsageError
from tidelog.spark.sink import Staged, TopicStreamWriter, TopicWriter
from tidelog.spark.source import TidelogSource
from tidelog.spark.staging import Stage
from tidelog.testing.broker import TestBroker

SCHEMA = StructType().add("key", "binary").add("value", "binary")


class Written:
    """A query's sink and its checkpoint."""

    def __init__(self, bootstrap: str, folder: Path, **options: str) -> None:
        self.folder = folder
        (folder / "offsets").mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": "query-1"}))
        given = {"kafka.bootstrap.servers": bootstrap, "topic": "out", "checkpointLocation": str(folder), **options}
        self.source = TidelogSource(CaseInsensitiveDict(given))

    def writer(self) -> TopicStreamWriter:
        made: TopicStreamWriter = pickle.loads(pickle.dumps(self.source.streamWriter(SCHEMA, False)))
        return made

    def micro_batch(self, batch_id: int, tasks: Sequence[Sequence[int]], end: int) -> None:
        (self.folder / "offsets" / str(batch_id)).write_text(f'v1\n{{}}\n{{"in":{{"0":{end}}}}}')
        messages = [self.writer().write(iter([arrow_of(numbers)])) for numbers in tasks]
        carried: list[WriterCommitMessage | None] = pickle.loads(pickle.dumps(messages))
        self.writer().commit(carried, batch_id)


@pytest.fixture
def cluster(tidelog_broker: TestBroker) -> Cluster:
    made = Cluster(tidelog_broker.bootstrap)
    topics.create(made, "in", partitions=1)
    topics.create(made, "out", partitions=2)
    return made


@proves("P1", "eo.5", "eo.7", "eo.11")
def test_messages_of_tasks_become_a_transaction(tidelog_broker: TestBroker, cluster: Cluster, tmp_path: Path) -> None:
    written = Written(tidelog_broker.bootstrap, tmp_path / "c", queryName="q", sinkName="s")
    written.micro_batch(0, [[0, 1, 2], [3, 4], []], 5)
    written.micro_batch(1, [[5]], 6)
    written.micro_batch(1, [[], [5]], 6)
    assert committed(cluster, "out") == list(range(6))
    mark = last_mark(cluster, "s")
    assert (mark.query_id, mark.batch_id, dict(mark.sources.offsets)) == ("query-1", 1, {TopicPartition("in", 0): 6})
    cluster.wait_until(lambda: bool(groups.committed(cluster, "tidelog.q")))
    assert {at.topic: one.offset for at, one in groups.committed(cluster, "tidelog.q").items()} == {"in": 6}


@proves("eo.7")
def test_a_checkpoint_of_another_query_is_refused(tidelog_broker: TestBroker, cluster: Cluster, tmp_path: Path) -> None:
    written = Written(tidelog_broker.bootstrap, tmp_path / "c")
    (written.folder / "offsets" / "0").write_text("v1\n{}\n-")
    with pytest.raises(UsageError, match="is that of query query-1, and this is query query-2"):
        written.writer().commit([Staged(Stage("query-2", 0))], 0)
    with pytest.raises(PeerError, match="without the messages of all tasks"):
        written.writer().commit([None], 0)
    assert committed(cluster, "out") == []


@proves("P1", "eo.8")
@pytest.mark.parametrize("staging", ["auto", "topic"])
def test_a_batch_write_leaves_no_stages_behind(
    tidelog_broker: TestBroker, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staging: str
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "blockmgr-1"))
    options = {"kafka.bootstrap.servers": tidelog_broker.bootstrap, "topic": "out", "staging": staging}
    large = pa.record_batch({"key": pa.array([b"k"] * 2000), "value": pa.array([b"1" * 1000] * 2000)})
    for wanted in ("commit", "abort"):
        writer: TopicWriter = pickle.loads(pickle.dumps(TidelogSource(options).writer(SCHEMA, False)))
        message = writer.write(iter([large]))
        assert isinstance(message, Staged)
        at = message.stage.staging
        assert (at is not None, len(files(tmp_path))) == ((True, 0) if staging == "topic" else (False, 1))
        cluster.forget()
        assert at is None or cluster.partitions(at.topic)
        getattr(writer, wanted)([message])
        assert files(tmp_path) == []
        cluster.forget()
        if at is not None:
            with pytest.raises(PeerError, match="UNKNOWN_TOPIC"):
                cluster.topic(at.topic)
    assert len(committed(cluster, "out")) == 2000


@proves("P1", "eo.8")
def test_a_micro_batch_that_is_given_up_leaves_no_files(
    tidelog_broker: TestBroker, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    written = Written(tidelog_broker.bootstrap, tmp_path / "c")
    large = pa.record_batch({"value": pa.array([b"1" * 1000] * 2000)})
    message = written.writer().write(iter([large]))
    assert len(files(tmp_path)) == 1
    written.writer().abort([message, None], 0)
    assert files(tmp_path) == []


def files(folder: Path) -> list[Path]:
    return list(folder.glob("tidelog-stages-*/*/*"))


@proves("secrets", "P1")
def test_a_sink_logs_in_by_a_file_and_carries_no_secret(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "client.properties"
    broker = tidelog.Broker(data, listen=f"SASL_PLAINTEXT://127.0.0.1:{free_port()}")
    _users("add", "reader", "--data", str(data), says="never seen")
    file.write_text(LOGIN + "never seen")
    with broker, Cluster(broker.bootstrap, security=Security.from_file(file)) as cluster:
        topics.create(cluster, "out", partitions=1)
        written = Written(broker.bootstrap, tmp_path / "c", securityFile=str(file), sourceGroup="none")
        assert b"never seen" not in pickle.dumps(written.writer())
        written.micro_batch(0, [[0, 1]], 2)
        assert committed(cluster, "out") == [0, 1]
