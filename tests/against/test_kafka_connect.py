"""Kafka Connect 4.3 in distributed mode with Debezium 3.6 for PostgreSQL, as the guide has users start them, and with a
sink: on Tidelog and on Apache Kafka.

The worker's three internal topics, its group and its transactions are all that it has: whatever a broker gets wrong
there shows as a connector that forgets, repeats or does not start.
"""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Message, TopicPartition

from against.apache_kafka import ApacheKafka, Missing
from against.brokers import BROKER_SETTINGS, Broker
from against.confluent import consumer_of, dotted, producer_of, read_partition
from against.connect_worker import EXAMPLE, PASSWORD, ConnectWorker
from against.patience import eventually
from against.tidelog_process import TidelogProcess
from crash.port import free_port
from postgres_server import PostgresServer
from proving import proves

pytestmark = [pytest.mark.external, pytest.mark.full]

StartWorker = Callable[..., ConnectWorker]
QUICK_COMPACTION = {"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "500"}
SMALL_SEGMENTS = {"internal.segment.bytes": "300", "min.cleanable.dirty.ratio": "0.01", "partitions": "1"}
# Who reads a slot and is not heard of for so long loses it to another.
DATABASE_SETTINGS = {"wal_level": "logical", "wal_sender_timeout": "5s"}
SNAPSHOT = [(1, "r", "tea"), (2, "r", "rum"), (3, "r", "milk")]


class Database(NamedTuple):
    server: PostgresServer
    port: int

    def run(self, *statements: str) -> None:
        """All of them in one transaction."""
        with psycopg.connect(self.server.url()) as connection:
            for statement in statements:
                connection.execute(statement)

    def is_read(self, slot: str) -> bool:
        """Whether somebody reads the changes that this slot keeps."""
        with psycopg.connect(self.server.url()) as connection:
            asked = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
            return connection.execute(asked, (slot,)).fetchone() == (True,)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        port = free_port()
        server = PostgresServer(Path(folder).resolve(), DATABASE_SETTINGS, port=port)
        server.start()
        yield Database(server, port)
        server.stop()


@pytest.fixture(params=["tidelog", pytest.param("apache_kafka", marks=pytest.mark.twin)])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """One of its own, since they are restarted and killed here, and compact often."""
    kind = TidelogProcess if request.param == "tidelog" else ApacheKafka
    try:
        started = kind(tmp_path / "broker", {**BROKER_SETTINGS, **QUICK_COMPACTION}).start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield started
    started.stop()


@pytest.fixture
def start_worker(broker: Broker, tmp_path: Path) -> Iterator[StartWorker]:
    started: list[ConnectWorker] = []

    def start(**settings: str) -> ConnectWorker:
        try:
            started.append(ConnectWorker(tmp_path / f"worker-{len(started)}", broker.bootstrap, dotted(settings)))
        except Missing as missing:
            pytest.skip(str(missing))
        return started[-1].start()

    yield start
    for worker in started:
        worker.kill()


class Captured(NamedTuple):
    """A table with a connector of its own; the table's name is the connector's, the prefix's and the slot's."""

    name: str
    config: dict[str, str]

    @property
    def topic(self) -> str:
        return f"{self.name}.public.{self.name}"


def captured(database: Database, **settings: str) -> Captured:
    """The connector of the example, for a new table of three rows."""
    name = f"t{uuid4().hex[:8]}"
    database.run(
        f"CREATE TABLE {name} (id int PRIMARY KEY, item text)",
        f"INSERT INTO {name} VALUES (1, 'tea'), (2, 'rum'), (3, 'milk')",
    )
    own = {"database.port": str(database.port), "database.dbname": "postgres", "topic.prefix": name, "slot.name": name}
    publication = {"table.include.list": f"public.{name}", "publication.name": name}
    example = json.loads((EXAMPLE / "orders.json").read_text())["config"]
    return Captured(name, {**example, **own, **publication, **dotted(settings)})


def change_of(message: Message) -> tuple[Any, ...]:
    """Key, kind of change, the item before and after; a tombstone is its key alone."""
    key, value = message.key(), message.value()
    assert key is not None
    if value is None:
        return (json.loads(key)["id"],)
    change = json.loads(value)
    return json.loads(key)["id"], change["op"], change["after"] and change["after"]["item"]


def changes(broker: Broker, table: Captured, count: int) -> list[tuple[Any, ...]]:
    return [change_of(one) for one in read_partition(broker, table.topic, count, isolation_level="read_committed")]


def all_of(broker: Broker, topic: str) -> list[Message]:
    """All that is committed now."""
    consumer = consumer_of(broker, isolation_level="read_committed", enable_partition_eof="true")
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Message] = []
    try:
        while (message := consumer.poll(60.0)) is not None and message.error() is None:
            found.append(message)
    finally:
        consumer.close()
    return found


def all_changes(broker: Broker, table: Captured) -> list[tuple[Any, ...]]:
    return [change_of(message) for message in all_of(broker, table.topic)]


@proves("D4")
def test_debezium_captures_a_table_and_is_ruled_over_rest(
    broker: Broker, start_worker: StartWorker, database: Database
) -> None:
    worker, table = start_worker(), captured(database)
    worker.ask("POST", "/connectors", {"name": table.name, "config": table.config})
    assert changes(broker, table, 3) == SNAPSHOT
    worker.await_state(table.name, "RUNNING", "RUNNING")

    database.run(f"INSERT INTO {table.name} VALUES (4, 'gin')", f"UPDATE {table.name} SET item = 'oat' WHERE id = 3")
    database.run(f"DELETE FROM {table.name} WHERE id = 1")
    seen = [*SNAPSHOT, (4, "c", "gin"), (3, "u", "oat"), (1, "d", None), (1,)]
    assert changes(broker, table, 7) == seen

    worker.ask("PUT", f"/connectors/{table.name}/pause")
    worker.await_state(table.name, "PAUSED", "PAUSED")
    database.run(f"INSERT INTO {table.name} VALUES (5, 'ale')")
    worker.ask("PUT", f"/connectors/{table.name}/resume")
    seen.append((5, "c", "ale"))
    assert changes(broker, table, 8) == seen

    worker.ask("POST", f"/connectors/{table.name}/restart?includeTasks=true")
    database.run(f"INSERT INTO {table.name} VALUES (6, 'port')")
    seen.append((6, "c", "port"))
    assert changes(broker, table, 9) == seen
    worker.await_state(table.name, "RUNNING", "RUNNING")
    assert worker.ask("GET", f"/connectors/{table.name}/topics") == {table.name: {"topics": [table.topic]}}

    worker.ask("PUT", f"/connectors/{table.name}/stop")
    worker.await_state(table.name, "STOPPED")
    [offset] = worker.ask("GET", f"/connectors/{table.name}/offsets")["offsets"]
    assert offset["partition"] == {"server": table.name}
    assert offset["offset"]["lsn"] > 0
    worker.ask("DELETE", f"/connectors/{table.name}/offsets")
    assert worker.ask("GET", f"/connectors/{table.name}/offsets") == {"offsets": []}
    worker.ask("PUT", f"/connectors/{table.name}/resume")
    again = sorted(changes(broker, table, 14)[9:])
    assert again == [(2, "r", "rum"), (3, "r", "oat"), (4, "r", "gin"), (5, "r", "ale"), (6, "r", "port")]

    kept = b"".join(message.value() or b"" for message in all_of(broker, "connect-configs"))
    assert b"${env:SHOP_PASSWORD}" in kept
    assert PASSWORD.encode() not in kept

    worker.ask("DELETE", f"/connectors/{table.name}")
    eventually(lambda: worker.ask("GET", "/connectors"), lambda names: names == [])
    eventually(lambda: not database.is_read(table.name))
    database.run(f"INSERT INTO {table.name} VALUES (7, 'none')")
    assert len(all_changes(broker, table)) == 14


@proves("D4")
def test_a_killed_worker_goes_on_from_compacted_topics_while_the_broker_was_away(
    broker: Broker, start_worker: StartWorker, database: Database
) -> None:
    small = {f"{kind}.storage.{key}": value for kind in ("offset", "status") for key, value in SMALL_SEGMENTS.items()}
    default = {f"{kind}.storage.replication.factor": "-1" for kind in ("config", "offset", "status")}
    worker = start_worker(
        **small, **default, **{"exactly.once.source.support": "disabled", "offset.flush.interval.ms": "50"}
    )
    table = captured(database, **{"exactly.once.support": "requested"})
    assert worker.refuses({"name": "x", "config": {**table.config, "exactly.once.support": "required"}})
    worker.ask("POST", "/connectors", {"name": table.name, "config": table.config})
    expected = [*SNAPSHOT]
    assert changes(broker, table, 3) == expected

    def write_one() -> None:
        number = len(expected) + 1
        database.run(f"INSERT INTO {table.name} VALUES ({number}, 'item')")
        expected.append((number, "c", "item"))

    def offsets_kept() -> tuple[int, int]:
        """How many records of the worker's offsets there are, and how many were written."""
        write_one()
        kept = all_of(broker, "connect-offsets")
        return len(kept), (kept[-1].offset() or 0) + 1 if kept else 0

    eventually(offsets_kept, lambda seen: seen[1] >= 12 and seen[0] <= seen[1] / 2)
    worker.kill()
    broker.restart()
    write_one()
    worker.start()
    worker.await_state(table.name, "RUNNING", "RUNNING")
    write_one()
    eventually(lambda: list(dict.fromkeys(all_changes(broker, table))), lambda seen: len(seen) == len(expected))
    found = all_changes(broker, table)
    assert list(dict.fromkeys(found)) == expected, "each change, in order; the last ones before the kill may come twice"
    assert found.count(SNAPSHOT[0]) == 1, "the snapshot is not taken again"

    broker.restart()  # beside a worker that runs
    write_one()
    eventually(lambda: list(dict.fromkeys(all_changes(broker, table))), lambda seen: seen == expected)


@proves("D4")
def test_a_change_is_captured_exactly_once_whoever_is_killed(
    broker: Broker, start_worker: StartWorker, database: Database
) -> None:
    worker, table = start_worker(), captured(database)
    worker.ask("POST", "/connectors", {"name": table.name, "config": table.config})
    assert changes(broker, table, 3) == SNAPSHOT
    eventually(lambda: database.is_read(table.name))
    numbers = iter(range(4, 10_000))
    expected: list[tuple[Any, ...]] = [*SNAPSHOT]

    def write() -> None:
        """Some transactions of two rows each."""
        for _ in range(20):
            pair = next(numbers), next(numbers)
            database.run(*(f"INSERT INTO {table.name} VALUES ({number}, 'item')" for number in pair))
            expected.extend((number, "c", "item") for number in pair)

    for kill in (worker.kill, broker.kill):
        seen = len(expected)
        write()
        eventually(lambda: len(all_changes(broker, table)), lambda count, seen=seen: count > seen)
        kill()
        write()
        (worker if kill == worker.kill else broker).start()
        eventually(lambda: len(all_changes(broker, table)), lambda count: count >= len(expected))
        assert all_changes(broker, table) == expected


@proves("D4")
def test_a_worker_that_was_taken_for_dead_repeats_nothing_when_it_wakes_up(
    broker: Broker, start_worker: StartWorker, database: Database
) -> None:
    settings = {"scheduled.rebalance.max.delay.ms": "0", "session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
    first = start_worker(**settings)
    table = captured(database, **{"slot.max.retries": "60", "slot.retry.delay.ms": "500"})
    first.ask("POST", "/connectors", {"name": table.name, "config": table.config})
    expected: list[tuple[Any, ...]] = [*SNAPSHOT]
    assert changes(broker, table, 3) == expected
    eventually(lambda: database.is_read(table.name))
    second = start_worker(**settings)
    first.await_state(table.name, "RUNNING", "RUNNING")

    def write(count: int) -> None:
        for number in range(len(expected) + 1, len(expected) + 1 + count):
            database.run(f"INSERT INTO {table.name} VALUES ({number}, 'item')")
            expected.append((number, "c", "item"))

    workers = {worker.url.removeprefix("http://"): worker for worker in (first, second)}
    sleeper = workers[first.ask("GET", f"/connectors/{table.name}/status")["tasks"][0]["worker_id"]]
    heir = second if sleeper is first else first
    write(20)
    sleeper.signal(signal.SIGSTOP)
    write(20)
    eventually(lambda: all_changes(broker, table), lambda seen: len(seen) >= len(expected))
    sleeper.signal(signal.SIGCONT)
    write(20)
    eventually(lambda: all_changes(broker, table), lambda seen: len(seen) >= len(expected))
    assert all_changes(broker, table) == expected
    heir.await_state(table.name, "RUNNING", "RUNNING")


@proves("D4")
def test_a_sink_has_its_offsets_in_its_group_and_sets_bad_records_aside(
    broker: Broker, start_worker: StartWorker, topic: str, tmp_path: Path
) -> None:
    worker, written = start_worker(), tmp_path / "written"
    producer = producer_of(broker)
    for value in ('"tea"', "not JSON", '"rum"'):
        producer.produce(topic, value)
    producer.flush()
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "topics": topic,
        "file": str(written),
        "offset.flush.interval.ms": "100",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{topic}-dead",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    worker.ask("POST", "/connectors", {"name": "file", "config": config})

    def lines() -> list[str]:
        return written.read_text().splitlines() if written.exists() else []

    eventually(lines, lambda seen: seen == ["tea", "rum"])
    [dead] = read_partition(broker, f"{topic}-dead", 1)
    assert dead.value() == b"not JSON"
    worker.ask("PUT", "/connectors/file/stop")
    worker.await_state("file", "STOPPED")
    place = {"kafka_topic": topic, "kafka_partition": 0}
    assert worker.ask("GET", "/connectors/file/offsets") == {
        "offsets": [{"partition": place, "offset": {"kafka_offset": 3}}]
    }
    [committed] = consumer_of(broker, "connect-file").committed([TopicPartition(topic, 0)])
    assert committed.offset == 3
    back = {"offsets": [{"partition": place, "offset": {"kafka_offset": 2}}]}
    worker.ask("PATCH", "/connectors/file/offsets", back)
    worker.ask("PUT", "/connectors/file/resume")
    eventually(lines, lambda seen: seen == ["tea", "rum", "rum"])
    worker.ask("PUT", "/connectors/file/stop")
    worker.await_state("file", "STOPPED")
    worker.ask("DELETE", "/connectors/file/offsets")
    assert worker.ask("GET", "/connectors/file/offsets") == {"offsets": []}
