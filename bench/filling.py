"""Topics are filled by batches as a busy producer makes them."""

from __future__ import annotations

import pyarrow as pa

from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.record.arrow import arrow_to_partitions
from tidelog.record.codec import patch

BATCH_BYTES = 100_000


def send_rows(producer: Producer, place: TopicPartition, rows: pa.RecordBatch, *, timestamp_ms: int) -> None:
    """Columns `key`, `value` and, if there is one, `timestamp`; the time given is that of rows without one."""
    for _, batch in arrow_to_partitions(rows, partitions=1, spare=0, timestamp_ms=timestamp_ms, target=BATCH_BYTES):
        patch(batch, 0, -1)  # a producer's batches begin at 0
        producer.send_batch(place, batch)
