"""A backup taken while clients write, commit and end transactions; restored elsewhere, and compared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer as ForeignConsumer
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ForeignProducer
from confluent_kafka import TopicPartition as ForeignPartition

from against.patience import eventually
from proving import proves
from tidelog.broker.backup.manifest import Manifest
from tidelog.broker.backup.restoring import restore
from tidelog.broker.backup.taking import take
from tidelog.broker.backup.verifying import verify
from tidelog.broker.embedded import Broker
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.errors import BrokerError
from tidelog.log.files import RealFiles
from tidelog.record.columns import Row
from tidelog.wire.error_code import ErrorCode

PLAIN, MEMORY, SHORT, TABLE, PAIRED, MIRROR = "plain", "memory", "short", "table", "paired", "mirror"
TOPICS: dict[str, dict[str, str]] = {
    PLAIN: {"internal.segment.bytes": "65536"},
    MEMORY: {"tidelog.durability": "memory"},
    SHORT: {"internal.segment.bytes": "32768", "retention.bytes": "65536"},
    TABLE: {"internal.segment.bytes": "32768", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    PAIRED: {},
    MIRROR: {},
}
SETTINGS = {
    "log.retention.check.interval.ms": 200,
    "log.cleaner.backoff.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
    "tidelog.log.level": "ERROR",
}
AT_REST = {"log.cleaner.enable": "false"}
GROUP, TRANSACTIONAL_ID = "readers", "pairs"
PARTITIONS = 2
BEFORE_S = 2.0
TRIES = 20


class Written(NamedTuple):
    at: TopicPartition
    offset: int
    key: bytes
    value: bytes


def quiet(_done: int, _total: int) -> None:
    """Nobody watches."""


@contextmanager
def load(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """Runs each in a thread until the end; what one of them raises is raised here."""
    stopped = threading.Event()
    failed: list[BaseException] = []

    def guarded(work: Callable[[threading.Event], None]) -> None:
        try:
            work(stopped)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    assert not failed, failed


def writes(bootstrap: str, table: list[Written]) -> Callable[[threading.Event], None]:
    """`table` gets all that was written to the compacted topic."""

    def work(stopped: threading.Event) -> None:
        number = 0
        with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
            while not stopped.is_set():
                sent = []
                for topic in (PLAIN, MEMORY, SHORT, TABLE):
                    for _ in range(10):
                        number += 1
                        key, value = b"%d" % (number % 7), b"%d" % number * 100
                        sent.append((producer.send(topic, value, key=key, partition=number % PARTITIONS), key, value))
                producer.flush()
                table.extend(
                    Written(one.at, one.offset, key, value) for one, key, value in sent if one.at.topic == TABLE
                )
                time.sleep(0.002)

    return work


def reads(bootstrap: str) -> Callable[[threading.Event], None]:
    """A group that commits what it has just read."""

    def work(stopped: threading.Event) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
        consumer = ForeignConsumer({**settings, "enable.auto.commit": False})
        consumer.subscribe([PLAIN, MEMORY])
        try:
            while not stopped.is_set():
                if consumer.consume(50, timeout=0.1):
                    consumer.commit(asynchronous=False)
        finally:
            consumer.close()

    return work


def pairs(bootstrap: str) -> Callable[[threading.Event], None]:
    """Transactions, each with the same number in two topics and the number as a group's offset."""

    def work(stopped: threading.Event) -> None:
        producer = ForeignProducer(
            {"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID, "linger.ms": 0}
        )
        producer.init_transactions(180)
        reader = ForeignConsumer({"bootstrap.servers": bootstrap, "group.id": "pairs"})
        try:
            number = 0
            while not stopped.is_set():
                number += 1
                producer.begin_transaction()
                for topic in (PAIRED, MIRROR):
                    producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
                offset = ForeignPartition(PLAIN, 0, number)
                producer.send_offsets_to_transaction([offset], reader.consumer_group_metadata(), 180)
                producer.commit_transaction(180)
        except KafkaException as error:
            raise AssertionError(f"transaction {number}") from error
        finally:
            reader.close()

    return work


def rows_of(cluster: Cluster, at: TopicPartition, stop: int, *, committed: bool = False) -> list[Row]:
    """From the start up to an offset, as a consumer gets them; again, when retention comes between."""
    for _ in range(TRIES):
        try:
            return read(cluster, at, stop, committed)
        except BrokerError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
    raise AssertionError(f"the start of {at} moves all the time")


def read(cluster: Cluster, at: TopicPartition, stop: int, committed: bool) -> list[Row]:
    start = list_offsets(cluster, {at: EARLIEST})[at].offset
    consumer = Consumer(cluster, read_committed=committed, max_wait_ms=50)
    consumer.assign({at: start})
    rows: list[Row] = []
    for _ in range(1000):
        if consumer.positions[at] >= stop:
            break
        fetched = consumer.fetch()
        if committed and not fetched:
            break
        rows += [row for one in fetched for row in one.rows() if row.offset < stop]
    return rows


def ends_of(manifest: Manifest) -> dict[TopicPartition, int]:
    return {
        TopicPartition(one.topic, one.partition): one.mark.end_offset
        for one in manifest.partitions
        if not one.topic.startswith("__")
    }


@proves("T6", "T8")
@pytest.mark.slow
def test_a_backup_under_load_is_what_there_was_up_to_its_offsets(tmp_path: Path) -> None:
    data, saved, elsewhere = tmp_path / "data", tmp_path / "saved", tmp_path / "elsewhere"
    with Broker(data, settings=SETTINGS) as broker:
        with Cluster(broker.bootstrap) as cluster:
            for name, configs in TOPICS.items():
                topics.create(cluster, name, partitions=PARTITIONS, configs=configs)
        table: list[Written] = []
        with load(writes(broker.bootstrap, table), reads(broker.bootstrap), pairs(broker.bootstrap)):
            with Cluster(broker.bootstrap) as cluster:
                eventually(lambda: is_under_way(cluster))
            time.sleep(BEFORE_S)
            first = take(str(data), str(saved), RealFiles(), quiet)
            time.sleep(0.5)
            second = take(str(data), str(saved), RealFiles(), quiet)
            time.sleep(0.5)
        assert first.manifest.at_ms < second.manifest.at_ms
        ends = ends_of(second.manifest)
        assert {at.topic for at in ends} == set(TOPICS) and min(ends.values()) > 0
        with Cluster(broker.bootstrap) as cluster:
            there = {at: rows_of(cluster, at, end) for at, end in ends.items()}
    assert verify(str(saved), RealFiles(), quiet).faults == ()
    restore(str(saved), str(elsewhere), RealFiles(), quiet)
    with Broker(elsewhere, settings={**SETTINGS, **AT_REST}) as again, Cluster(again.bootstrap) as cluster:
        found = {at: one.offset for at, one in list_offsets(cluster, dict.fromkeys(ends, LATEST)).items()}
        check_ends(found, ends)
        check_rows(cluster, ends, there)
        check_table(cluster, ends, table)
        check_offsets(cluster, ends)
        eventually(lambda: numbers(cluster, PAIRED) == numbers(cluster, MIRROR))
        newest = int(numbers(cluster, PAIRED)[-1] or b"0")
        # What the transactions committed as offsets is what they committed as records.
        eventually(lambda: groups.committed(cluster, "pairs")[TopicPartition(PLAIN, 0)].offset == newest)


def is_under_way(cluster: Cluster) -> bool:
    places = [TopicPartition(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
    ends = list_offsets(cluster, dict.fromkeys(places, LATEST))
    return all(one.offset for one in ends.values()) and bool(groups.committed(cluster, GROUP))


def check_ends(found: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> None:
    """To the very offset; transactions that were being ended are ended by markers behind it."""
    for at, end in ends.items():
        assert found[at] == end or (at.topic in (PAIRED, MIRROR) and found[at] <= end + 1), at


def check_rows(cluster: Cluster, ends: dict[TopicPartition, int], there: dict[TopicPartition, list[Row]]) -> None:
    for at, end in ends.items():
        restored = rows_of(cluster, at, end)
        if at.topic == SHORT:
            first = max(restored[0].offset, there[at][0].offset) if there[at] and restored else end
            assert [row for row in restored if row.offset >= first] == [row for row in there[at] if row.offset >= first]
        elif at.topic != TABLE:
            assert restored == there[at], at


def check_table(cluster: Cluster, ends: dict[TopicPartition, int], table: list[Written]) -> None:
    """Compaction went on all the time; what was the last record of a key below the cut is there."""
    for at, end in ends.items():
        if at.topic == TABLE:
            latest = {one.key: one.value for one in table if one.at == at and one.offset < end}
            assert {row.key: row.value for row in rows_of(cluster, at, end)} == latest


def check_offsets(cluster: Cluster, ends: dict[TopicPartition, int]) -> None:
    committed = groups.committed(cluster, GROUP)
    assert committed
    for at, one in committed.items():
        assert one.offset <= ends[at], f"{GROUP} has read {at} up to {one.offset}, and it ends at {ends[at]}"


def numbers(cluster: Cluster, topic: str) -> list[bytes | None]:
    found = []
    for at in cluster.partitions(topic):
        end = list_offsets(cluster, {at: LATEST})[at].offset
        found += [row.value for row in rows_of(cluster, at, end, committed=True)]
    return sorted(found, key=lambda value: int(value or b"0"))


@proves("T6")
def test_a_second_backup_takes_over_what_has_not_changed(tmp_path: Path) -> None:
    data, saved = tmp_path / "data", tmp_path / "saved"
    with Broker(data, settings=SETTINGS) as broker, Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, PLAIN, configs={"internal.segment.bytes": "65536"})

        def write(count: int) -> None:
            with Producer(cluster) as producer:
                for number in range(count):
                    producer.send(PLAIN, b"%d" % number * 1000)

        write(300)
        first = take(str(data), str(saved), RealFiles(), quiet)
        write(50)
        second = take(str(data), str(saved), RealFiles(), quiet)
        assert first.taken_over == 0
        assert second.taken_over > first.manifest.bytes // 2
        assert second.manifest.bytes > first.manifest.bytes
        assert sorted(path.name for path in saved.iterdir()) == ["manifest", second.manifest.tree]
        assert not list(data.glob("backup*")) and not list(data.glob("cut*"))
    assert verify(str(saved), RealFiles(), quiet).faults == ()
