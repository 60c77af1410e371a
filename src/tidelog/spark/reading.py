"""One range of offsets as Arrow record batches with the columns of Spark's Kafka connector. Runs in a Python worker.

Rules:
- The next fetch is under way while the last is decoded, and none is asked for beyond the range's end.
- A range is done when the fetch position has reached its end, whether or not a record is there: offsets may be of a
  transaction's end, of an aborted transaction, or compacted away.
- Offsets that are gone (deleted, truncated, of a topic made anew) are data loss: an error, or with `fail_on_data_loss`
  false a warning, and reading goes on with what there is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.consumer import Consumer, Fetched
from tidelog.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from tidelog.errors import BrokerError, DataLoss, Disconnected, MalformedBatch
from tidelog.record.codec import scan
from tidelog.spark.arrow_rows import WITH_HEADERS, ArrowRows
from tidelog.spark.options import GO_ON
from tidelog.spark.ranges import OffsetRange
from tidelog.spark.reach import Reach, borrow, give_back
from tidelog.spark.worker_memory import keep_buffers
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.field import ZERO_UUID

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client.cluster import Cluster

FIRST_BYTES = 1 << 20  # asked for while nobody knows how large a record is
LEAST_BYTES = 64 << 10
MAX_WAIT_MS = 500

LOST = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Reading(NamedTuple):
    """What a task needs to know beside its range."""

    reach: Reach
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    poll_timeout_ms: int
    decode: str | None = None  # how values are decoded, as the option says it

    @property
    def columns_read(self) -> tuple[str, ...]:
        """Of the records themselves: what is decoded is made of the value, and who cannot be is told by its place."""
        if self.decode is None:
            return self.columns
        place = (name for name in ("topic", "partition", "offset", "value") if name not in self.columns)
        return (*(name for name in self.columns if name in WITH_HEADERS), *place)


def read_range(reading: Reading, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    keep_buffers()
    rows = ArrowRows(wanted.at, reading.columns_read)
    cluster = borrow(reading.reach)
    try:
        if wanted.token:
            from tidelog.spark.reporting import introduce  # once a query

            introduce(cluster, wanted.at, wanted.start, wanted.token)
        for fetched in fetch_range(cluster, reading, wanted):
            yield from decoded(fetched, rows, wanted.end)
    except BaseException:
        # Also when Spark wants no more rows: a fetch may be under way, and nobody will take its answer.
        cluster.close()
        raise
    give_back(reading.reach, cluster)


def decoded(fetched: Fetched, rows: ArrowRows, end: int) -> Iterator[pa.RecordBatch]:
    try:
        for columns in fetched.columns():
            if columns.count and (batch := rows.batch(columns, fetched.offset, end)).num_rows:
                yield batch
    except MalformedBatch as error:
        sound = scan(fetched.batches).headers
        offset = sound[-1].next_offset if sound else fetched.offset
        raise type(error)(
            f"{fetched.at} is broken at offset {offset}: {error}; restore the topic, or start a query behind it by"
            " startingOffsets"
        ) from error


def fetch_range(cluster: Cluster, reading: Reading, wanted: OffsetRange) -> Iterator[Fetched]:
    """Each after the next was asked for."""
    at, end, most = wanted.at, wanted.end, reading.reach.partition_bytes
    consumer = Consumer(
        cluster,
        max_wait_ms=MAX_WAIT_MS,
        max_partition_bytes=min(most, FIRST_BYTES),
        read_committed=reading.reach.read_committed,
    )
    consumer.assign({at: wanted.start})
    deadline = time.monotonic() + reading.poll_timeout_ms / 1000
    while consumer.positions[at] < end:
        try:
            came = consumer.fetch()
        except BrokerError as error:
            if error.code not in LOST:
                raise
            consumer.seek(at, _past_loss(cluster, reading, wanted, consumer.positions[at], error))
            continue
        if not came:
            _check_end(cluster, reading, wanted, consumer, deadline)
            continue
        fetched = came[0]
        if _is_another(fetched, wanted):
            gone = f"{at} was deleted and created again after it was planned to read it from {wanted.start} up to {end}"
            consumer.seek(at, lose(reading, gone, end))
            continue
        consumer.max_partition_bytes = _bytes_for(end - fetched.next_offset, fetched, most)
        if fetched.next_offset < end:
            consumer.ask_ahead()
        yield fetched
        deadline = time.monotonic() + reading.poll_timeout_ms / 1000


def _is_another(fetched: Fetched, wanted: OffsetRange) -> bool:
    """Whether a topic of the same name has answered. Brokers before topic ids do not tell."""
    return ZERO_UUID not in (fetched.topic_id, wanted.topic_id) and fetched.topic_id != wanted.topic_id


def _bytes_for(left: int, fetched: Fetched, most: int) -> int:
    """As many as the offsets that are left are likely to take: what comes beyond the end is thrown away."""
    by_offset = len(fetched.batches) / max(fetched.next_offset - fetched.offset, 1)
    return max(min(int(left * by_offset * 1.1), most), LEAST_BYTES)


def _past_loss(cluster: Cluster, reading: Reading, wanted: OffsetRange, position: int, error: BrokerError) -> int:
    """Where to go on after offsets were found gone; the range's end when nothing of it is left."""
    if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
        return lose(
            reading, f"{wanted.at} is gone, which was to be read from {position} up to {wanted.end}", wanted.end
        )
    first, last = _bounds(cluster, reading, wanted)
    if first <= position <= last:
        gone = f"{wanted.at} was truncated below {position}, or created again, and written again"
        return lose(reading, gone, position)
    gone = f"{wanted.at} was to be read from {position} up to {wanted.end} and now has {first} up to {last}"
    return lose(reading, gone, min(first, wanted.end) if position < first else wanted.end)


def _check_end(cluster: Cluster, reading: Reading, wanted: OffsetRange, consumer: Consumer, deadline: float) -> None:
    """A fetch has brought nothing, though the range's end was there when it was planned."""
    position = consumer.positions[wanted.at]
    _, last = _bounds(cluster, reading, wanted)
    if last < wanted.end and position >= last:
        gone = f"{wanted.at} was to be read from {position} up to {wanted.end} and now ends at {last}"
        consumer.seek(wanted.at, lose(reading, gone, wanted.end))
    elif time.monotonic() > deadline:
        waited = reading.poll_timeout_ms / 1000
        raise Disconnected(f"no record of {wanted} came within {waited:g} s of offset {position}; is the broker well?")


def _bounds(cluster: Cluster, reading: Reading, wanted: OffsetRange) -> tuple[int, int]:
    isolation = READ_COMMITTED if reading.reach.read_committed else READ_UNCOMMITTED
    first = list_offsets(cluster, {wanted.at: EARLIEST})[wanted.at].offset
    last = list_offsets(cluster, {wanted.at: LATEST}, isolation=isolation)[wanted.at].offset
    return first, last


def lose(reading: Reading, gone: str, go_on_at: int) -> int:
    if reading.fail_on_data_loss:
        raise DataLoss(f"{gone}; data may be lost: {GO_ON}")
    warn_of_loss(gone)
    return go_on_at


def warn_of_loss(gone: str) -> None:
    import logging

    logging.getLogger(__name__).warning("%s; failOnDataLoss is false: going on without it", gone)
