"""`compression.type` is taken from programs that set it, and a batch stays as its producer compressed it."""

from __future__ import annotations

import pytest

import tidelog
from proving import proves
from tidelog.client import Cluster, Consumer, Producer, TopicPartition
from tidelog.client.admin import topics
from tidelog.record.codec import peek
from tidelog.record.columns import encode
from tidelog.record.header import MAGIC_AT

ROWS = [(b"key", b"value " * 50, (), 1_700_000_000_000)] * 20


@proves("T1")
@pytest.mark.parametrize("asked", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_stays_as_it_was_sent_whatever_the_topic_says(asked: str) -> None:
    at = TopicPartition("orders", 0)
    with tidelog.Broker() as broker, Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, at.topic, partitions=1, configs={"compression.type": asked})
        offset = 0
        for sent in ("none", "lz4", "zstd"):
            batch = encode(ROWS, compression=sent)
            with Producer(cluster, idempotent=False) as producer:
                producer.send_batch(at, batch)
                producer.flush()
            consumer = Consumer(cluster)
            consumer.assign({at: offset})
            stored = bytes(consumer.fetch()[0].batches)
            offset += len(ROWS)
            assert stored[MAGIC_AT:] == bytes(batch)[MAGIC_AT:]
            assert peek(stored).compression == peek(batch).compression
