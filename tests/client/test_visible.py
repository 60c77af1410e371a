"""What a reader of committed data sees: checked against a slow model, and against Apache Kafka's own transactions."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer as ForeignProducer
from hypothesis import given
from hypothesis import strategies as st

from against.apache_kafka import ApacheKafka
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.visible import visible
from tidelog.record.codec import scan
from tidelog.record.columns import encode

# A step of a partition's history: a plain batch, a batch in a producer's transaction, or that transaction's end.
steps = st.lists(st.tuples(st.sampled_from(["plain", "inside", "commit", "abort"]), st.integers(0, 2)), max_size=25)


def history(script: list[tuple[str, int]]) -> tuple[bytearray, list[tuple[int, int]], list[int]]:
    """The log that a script writes, its aborted transactions, and the offsets that are visible in the end."""
    log = bytearray()
    offset = 0
    open_since: dict[int, list[int]] = {}
    aborted, seen = [], []
    for kind, producer in script:
        if kind in ("commit", "abort") and producer not in open_since:
            continue
        control = kind in ("commit", "abort")
        count = 1 if control or kind == "inside" else 2
        batch = encode(
            [(None, b"v", (), 0)] * count,
            base_offset=offset,
            producer_id=-1 if kind == "plain" else producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=kind != "plain",
            control=control,
        )
        offsets = list(range(offset, offset + count))
        if kind == "plain":
            seen += offsets
        elif kind == "inside":
            open_since.setdefault(producer, []).extend(offsets)
        elif kind == "commit":
            seen += open_since.pop(producer)
        else:
            aborted.append((producer, open_since.pop(producer)[0]))
        log += batch
        offset += count
    still_open = [at for offsets in open_since.values() for at in offsets]
    return log, aborted, sorted(seen + still_open)


@proves("T1", "F2")
@given(steps)
def test_aborted_transactions_and_markers_are_left_out_and_nothing_else(script: list[tuple[str, int]]) -> None:
    log, aborted, expected = history(script)
    runs = visible(memoryview(log), aborted)
    seen = [header.base_offset + delta for run in runs for header in scan(run).headers for delta in range(header.count)]
    assert seen == expected
    assert all(len(run) for run in runs)


@proves("T10", "F2")
@pytest.mark.external
def test_a_reader_of_committed_data_sees_no_aborted_record_of_apache_kafka(kafka: ApacheKafka, topic: str) -> None:
    with Cluster(kafka.bootstrap) as cluster:
        topics.create(cluster, topic, partitions=1)
        producer = ForeignProducer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            for part in range(3):
                producer.produce(topic, b"%d.%d" % (number, part))
            producer.flush()
            producer.commit_transaction() if number % 2 else producer.abort_transaction()
        committed = [b"%d.%d" % (number, part) for number in (1, 3, 5) for part in range(3)]
        assert values(cluster, topic, 9, read_committed=True) == committed
        assert len(values(cluster, topic, 18, read_committed=False)) == 18


def values(cluster: Cluster, topic: str, count: int, *, read_committed: bool) -> list[bytes | None]:
    consumer = Consumer(cluster, max_wait_ms=100, read_committed=read_committed)
    consumer.assign({TopicPartition(topic, 0): 0})
    found: list[bytes | None] = []
    deadline = time.monotonic() + 180
    while len(found) < count and time.monotonic() < deadline:
        found += [row.value for fetched in consumer.fetch() for row in fetched.rows()]
    return found
