"""What goes wrong around a read: brokers that restart, bytes that are broken, passwords that change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tidelog
from crash.port import free_port
from proving import proves
from spark.filling import Query, fill, numbers, reader, rows_of
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Fetched
from tidelog.client.metadata import TopicPartition
from tidelog.client.security import Security
from tidelog.errors import BrokerError, ConfigError, CorruptBatch
from tidelog.record.columns import encode
from tidelog.spark.arrow_rows import COLUMNS, ArrowRows
from tidelog.spark.reach import borrow, give_back, read_reach, security_of
from tidelog.spark.reading import decoded
from tidelog.testing.broker import TestBroker

AT = TopicPartition("t", 0)
LOGIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=reader\nsasl.password="


@proves("P1", "T6")
def test_a_broker_that_restarts_under_a_read_costs_nothing(tmp_path: Path) -> None:
    broker = tidelog.Broker(tmp_path, listen=f"127.0.0.1:{free_port()}")
    broker.start()
    with Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "t", partitions=1)
        for start in range(0, 60, 20):
            fill(cluster, "t", 0, [number * 30_000 for number in numbers(start + 10, start + 30)])
    read = reader(broker.bootstrap, subscribe="t", **{"kafka.max.partition.fetch.bytes": "100000"})
    batches = read.read(read.partitions()[0])
    rows = rows_of([next(batches)])
    broker.kill()
    broker.start()
    rows += rows_of(batches)
    assert [row["offset"] for row in rows] == list(range(60))
    query = Query(broker.bootstrap, subscribe="t", startingOffsets="earliest")
    broker.stop()
    broker.start()
    assert query.trigger() == 60, "the driver asks again, and a new worker waits for a broker that was there"
    query.stop()
    broker.stop()


@proves("P1", "T6")
def test_a_broken_batch_is_said_with_its_place() -> None:
    batch = encode([(b"k", b"value", (), 0)], base_offset=7)
    batch[-2] ^= 1
    fetched = Fetched(AT, 7, 8, memoryview(batch), 8, 8, 0, 0)
    with pytest.raises(CorruptBatch, match=r"^t\[0\] is broken at offset 7: .*startingOffsets"):
        list(decoded(fetched, ArrowRows(AT, COLUMNS), 8))


@proves("P1")
def test_a_kept_connection_that_the_broker_ended_is_replaced(tidelog_broker: TestBroker) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "t", partitions=1)
        fill(cluster, "t", 0, numbers(0, 3))
    read = reader(tidelog_broker.bootstrap, subscribe="t")
    (partition,) = read.partitions()
    assert len(rows_of(read.read(partition))) == 3
    half = read.read(partition)
    next(half)
    half.close()  # as when Spark wants no more rows
    assert len(rows_of(read.read(partition))) == 3


# --- secrets ---------------------------------------------------------------------------------------------------------


@proves("secrets")
def test_secrets_are_read_from_a_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", "kafka.sasl.mechanism": "PLAIN"}
    file = tmp_path / "client.properties"
    file.write_text(LOGIN + "from a file")
    monkeypatch.setenv("READER_LOGIN", LOGIN + "from a variable")
    by_file = read_reach({**given, "securityFile": str(file)})
    by_variable = read_reach({**given, "securityVariable": "READER_LOGIN"})
    login = Security("SASL_PLAINTEXT", "PLAIN", "reader")
    assert security_of(by_file) == login._replace(password="from a file", where=str(file))
    told = "environment variable READER_LOGIN"
    assert security_of(by_variable) == login._replace(password="from a variable", where=told)
    assert "from a" not in repr(by_file) + repr(by_variable)
    assert security_of(read_reach({"kafka.bootstrap.servers": "localhost:9092"})) is None


@proves("secrets")
def test_a_missing_file_or_variable_is_named(tmp_path: Path) -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092"}
    with pytest.raises(ConfigError, match="nowhere, named by securityFile, cannot be read: no such file"):
        security_of(read_reach({**given, "securityFile": str(tmp_path / "nowhere")}))
    with pytest.raises(ConfigError, match="NO_SUCH_LOGIN, named by securityVariable, is not set"):
        security_of(read_reach({**given, "securityVariable": "NO_SUCH_LOGIN"}))


@proves("secrets", "P1")
def test_a_password_that_changed_is_read_anew_and_a_wrong_one_is_said(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "client.properties"
    broker = tidelog.Broker(data, listen=f"SASL_PLAINTEXT://127.0.0.1:{free_port()}")
    _users("add", "reader", "--data", str(data), says="the first password")
    file.write_text(LOGIN + "the first password")
    broker.start()
    with Cluster(broker.bootstrap, security=Security.from_file(file)) as cluster:
        topics.create(cluster, "t", partitions=1)
        fill(cluster, "t", 0, numbers(0, 3))
    query = Query(broker.bootstrap, subscribe="t", startingOffsets="earliest", securityFile=str(file))
    assert query.trigger() == 3
    reached = ["--bootstrap", broker.bootstrap, "--command-config", str(file)]
    _users("password", "reader", *reached, says="the second password")
    broker.stop()
    broker.start()
    with pytest.raises(BrokerError, match="SASL_AUTHENTICATION_FAILED"):
        query.trigger()
    file.write_text(LOGIN + "the second password")
    with Cluster(broker.bootstrap, security=Security.from_file(file)) as cluster:
        fill(cluster, "t", 0, numbers(3, 5))
    assert query.trigger() == 2
    query.stop()
    broker.stop()


@proves("secrets", "P1")
def test_a_login_that_was_changed_in_its_file_is_the_next_tasks(tidelog_broker: TestBroker, tmp_path: Path) -> None:
    """Before the broker asks for it: sessions end, and a kept connection would log in by the old one again."""
    file = tmp_path / "client.properties"
    file.write_text("sasl.username=reader\nsasl.password=old")
    reach = read_reach({"kafka.bootstrap.servers": tidelog_broker.bootstrap, "securityFile": str(file)})
    first = borrow(reach)
    first.any_node()
    give_back(reach, first)
    assert borrow(reach) is first
    give_back(reach, first)
    file.write_text("sasl.username=reader\nsasl.password=new")
    second = borrow(reach)
    assert second is not first and second.security == security_of(reach)
    first.close()


def _users(*words: str, says: str) -> None:
    command = [sys.executable, "-m", "tidelog", "users", *words]
    subprocess.run(command, input=f"{says}\n", text=True, check=True, capture_output=True)
