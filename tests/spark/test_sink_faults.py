"""What goes wrong around a query that writes: a full disk, a changed password, an older cluster, epochs that are used
up. Each time a clear error or none at all, and in the end every row once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclOperation,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from against.apache_kafka import ApacheKafka, Missing
from against.patience import eventually
from against.secured import ITERATIONS, PASSWORD, USER, Secured, start_kafka, start_tidelog
from against.test_epochs import LAST_EPOCH, use_up
from certificates import make_certificates
from contract import TIMEOUT_S
from crash.powered_broker import PoweredBroker
from proving import proves
from spark.filling import fill, numbers
from spark.sinking import committed, connected, last_mark, numbers_of, run, staged_numbers, up_to, writing_of
from spark.test_sink import seen, stream, writing, written
from tidelog.client import transactions
from tidelog.client.admin import topics
from tidelog.client.admin.transactions import describe
from tidelog.client.cluster import Cluster
from tidelog.control.marks import transactional_id_of
from tidelog.spark.commit import Kept, commit
from tidelog.testing.broker import TestBroker

pytestmark = pytest.mark.full

MECHANISM = "SCRAM-SHA-512"
PATIENCE_S = 900.0
ROOM = 20_000
LARGE = 2_000


@proves("P1", "F2", "T6")
@pytest.mark.timeout(900)
def test_a_full_disk_is_said_and_when_there_is_room_the_query_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    broker = PoweredBroker(tmp_path / "broker", {})
    assert broker.start()
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        for name in ("in", "out"):
            topics.create(cluster, name, partitions=1)

        def copy() -> None:
            rows = stream(spark, broker.bootstrap, "in")
            options = {"sinkName": "s", "kafka.request.timeout.ms": "10000"}
            writing(rows, broker.bootstrap, "out", str(tmp_path / "checkpoint"), **options).start().awaitTermination()

        fill(cluster, "in", 0, numbers(0, 10))
        copy()
        fill(cluster, "in", 0, [b"%0*d" % (LARGE, number) for number in range(10, 60)])
        broker.disk.capacity = used_bytes(broker) + ROOM
        with pytest.raises(StreamingQueryException, match=r"no room on the disk.*free some space"):
            copy()
        assert sorted(map(int, seen(cluster, "out"))) == list(range(10))
        broker.disk.mend()
        copy()
        assert [int(value) for value in written(cluster, "out")] == list(range(60))
    broker.end()


def used_bytes(broker: PoweredBroker) -> int:
    return sum(path.stat().st_size for path in broker.disk.folder.rglob("*") if path.is_file())


# Passwords ------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["tidelog", pytest.param("apache_kafka", marks=pytest.mark.external)])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Secured]:
    """With sessions of seconds: whoever stays connected logs in again and again."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    start = start_tidelog if request.param == "tidelog" else start_kafka
    try:
        made = start(tmp_path / "broker", make_certificates(folder))
    except Missing as missing:
        pytest.skip(str(missing))
    every = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    made.allow(*((kind, "*", AclOperation.ALL) for kind in every))
    yield made
    made.broker.kill()


@proves("secrets", "P1", "T10")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("side", ["source", "sink"])
def test_a_password_that_was_changed_ends_the_query_which_says_where_the_old_one_is_and_goes_on_with_the_new(
    spark: SparkSession, secured: Secured, tmp_path: Path, side: str
) -> None:
    """The other side has a listener without logins."""
    plain, login = secured.broker.bootstrap, f"localhost:{secured.login_port}"
    file = secured.properties(tmp_path, MECHANISM)
    with Cluster(plain, timeout_s=TIMEOUT_S) as cluster:
        for name in ("in", "out"):
            topics.create(cluster, name, partitions=1)
        fill(cluster, "in", 0, numbers(0, 10))
        logged_in = {"securityFile": str(file)}
        rows = stream(spark, login, "in", **logged_in) if side == "source" else stream(spark, plain, "in")
        where = (plain, {}) if side == "source" else (login, logged_in)
        write = writing(rows, where[0], "out", str(tmp_path / "checkpoint"), **where[1])
        query = started(write.trigger(processingTime="0 seconds"), lambda: len(seen(cluster, "out")) == 10)
        try:
            assert query.exception() is None
            change_password(secured, "another one")
            added = 10
            while query.exception() is None:
                fill(cluster, "in", 0, numbers(added, added + 1))
                added += 1
                time.sleep(0.1)
        finally:
            query.stop()
        said = str(query.exception())
        assert f"as '{USER}' by {MECHANISM} (from {file})" in said and "check the user and the password" in said
        file.write_text(file.read_text().replace(PASSWORD, "another one"))
        write.trigger(availableNow=True).start().awaitTermination()
        assert written(cluster, "out") == numbers(0, added)


def started(write: DataStreamWriter, reached: Callable[[], bool]) -> StreamingQuery:
    """One that has got so far, or failed."""
    query = write.start()
    eventually(lambda: reached() or query.exception() is not None, seconds=PATIENCE_S)
    return query


def change_password(secured: Secured, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    made = UserScramCredentialUpsertion(USER, info, password.encode())
    secured.admin.alter_user_scram_credentials([made])[USER].result(180)


# Transaction versions and epochs --------------------------------------------------------------------------------------


@pytest.mark.external
@proves("P1", "F2", "F3", "eo.5", "T10")
@pytest.mark.timeout(900)
def test_a_cluster_of_transaction_version_1_is_written_to_once(
    spark: SparkSession, version_1_kafka: ApacheKafka, tmp_path: Path
) -> None:
    bootstrap = version_1_kafka.bootstrap
    with Cluster(bootstrap, timeout_s=TIMEOUT_S) as cluster:
        topics.create(cluster, "in", partitions=2)
        topics.create(cluster, "out", partitions=3)
        for turn in range(2):
            fill(cluster, "in", turn, numbers(turn * 60, turn * 60 + 60))
            rows = stream(spark, bootstrap, "in", maxOffsetsPerTrigger="20", minPartitions="4")
            checkpoint = tmp_path / "checkpoint"
            writing(rows, bootstrap, "out", str(checkpoint)).start().awaitTermination()
            assert written(cluster, "out") == numbers(0, turn * 60 + 60)
            for lost in (checkpoint / "commits").glob(f"*{3 * turn + 2}*"):
                lost.unlink()


@proves("P1", "F2", "F3", "eo.5")
def test_by_transaction_version_1_our_own_broker_is_written_to_once(
    tidelog_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a driver that keeps the id, and by those who take it in between."""
    monkeypatch.setattr(transactions, "transaction_version", lambda _: 1)
    kept: Kept = {}
    with Cluster(tidelog_broker.bootstrap) as cluster, connected(cluster) as driver:
        topics.create(cluster, "out", partitions=3)
        for batch in range(8):
            if batch in (3, 6):
                assert run(cluster, "out", "s", batch)
                continue
            for wrote in (True, False):
                stages = staged_numbers(cluster, "out", "s", numbers_of(batch))
                found = commit(driver, writing_of("s", batch, "out"), stages, lambda: connected(cluster), kept)
                assert found is wrote
        assert kept["s"].transactions.identity.version == 1
        assert committed(cluster, "out") == up_to(8)


@pytest.mark.external
@proves("eo.5", "F3", "T10")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("keeps", [True, False], ids=["a driver that keeps the id", "one that takes it each time"])
def test_a_sink_whose_epochs_are_used_up_goes_on_with_another_producer_id(
    broker: ApacheKafka, cluster: Cluster, topic: str, keeps: bool
) -> None:
    sink = f"s-{topic}"
    topics.create(cluster, topic, partitions=3)
    assert run(cluster, topic, sink, 0)
    use_up(broker, transactional_id_of(sink), LAST_EPOCH - 3)
    before = describe(cluster, transactional_id_of(sink)).producer_id
    kept: Kept = {}
    for batch in range(1, 9):
        stages = staged_numbers(cluster, topic, sink, numbers_of(batch))
        own = kept if keeps else {}
        assert commit(cluster, writing_of(sink, batch, topic), stages, lambda: connected(cluster), own)
        assert not run(cluster, topic, sink, batch)
    assert describe(cluster, transactional_id_of(sink)).producer_id != before
    assert committed(cluster, topic) == up_to(9)
    assert last_mark(cluster, sink).batch_id == 8
