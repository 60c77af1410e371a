"""What a partition is told about itself, named after Kafka's topic settings; the broker has checked the values."""

from __future__ import annotations

from dataclasses import dataclass

DAY_MS = 86_400_000
FOREVER = -1
NO_LAG = (1 << 63) - 1  # max.compaction.lag.ms when nobody asks for one
MAX_SEGMENT_BYTES = 0x7FFFFFFF  # positions are stored in 32 bits


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`durable` False is `tidelog.durability=memory`; `append_time` True is `message.timestamp.type=LogAppendTime`.

    `max_message_bytes` is for whoever appends to look at: a log takes any batch that it is given.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = FOREVER
    max_message_bytes: int = 1_048_588
    producer_expiration_ms: int = DAY_MS
    durable: bool = True
    append_time: bool = False
    compact: bool = False
    min_cleanable_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NO_LAG
    delete_retention_ms: int = DAY_MS
    kept_ms: int = 0  # retention deletes nothing that is younger
