"""What the broker works with for one topic: its settings, resolved through all layers, as values.

Retention is for `delete` alone: from a topic that is only compacted, or has no cleanup policy, nothing is deleted. With
`tidelog.retention.hold` from no topic anything is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.broker.overload.policy import BUFFER, DROP, OverloadLimit, OverloadPolicy
from tidelog.broker.settings.broker import BROKER
from tidelog.broker.settings.configuring import LIMITS, POLICY, WATCHED
from tidelog.broker.settings.describing import DURABILITY, BrokerValues, describe_broker, topic_text
from tidelog.broker.settings.setting import parse
from tidelog.broker.settings.topic import SEGMENT_BYTES_MIN, TOPIC
from tidelog.config import Value
from tidelog.log.settings import FOREVER, LogSettings

PRODUCER_EXPIRATION = "producer.id.expiration.ms"
RETENTION_HOLD = "tidelog.retention.hold"
SEGMENTS_OF_LIMIT = 4


class TopicConfig(NamedTuple):
    log: LogSettings
    max_message_bytes: int
    timestamp_after_max_ms: int
    timestamp_before_max_ms: int
    compact: bool
    overload: OverloadPolicy | None = None  # None: buffer
    delay_max_ms: int = 0  # the longest delay that a record may ask for
    by_key: bool = False  # queues keep the order of records with the same key
    delete_groups: tuple[str, ...] = ()  # what all of them are done with is deleted
    writers: str = ""  # what the transactional id of whoever writes here begins with


def topic_config(own: Mapping[str, str], broker: BrokerValues) -> TopicConfig:
    """`own` are the topic's settings; `broker` are the layers below, from `config_changes.broker_values`."""
    policy = _value("cleanup.policy", own, broker)
    assert isinstance(policy, tuple)
    held = parse(BROKER[RETENTION_HOLD], describe_broker(BROKER[RETENTION_HOLD], broker).value or "false")
    deletes = "delete" in policy and not held
    expiration = describe_broker(BROKER[PRODUCER_EXPIRATION], broker).value
    max_message_bytes = _number("max.message.bytes", own, broker)
    segment_ms, max_lag_ms = _number("segment.ms", own, broker), _number("max.compaction.lag.ms", own, broker)
    compact = "compact" in policy
    overload = _overload(own, broker, deletes=deletes and not compact)
    log = LogSettings(
        segment_bytes=_segment_bytes(own, broker, overload),
        # The segment that grows is not compacted, so none may grow for longer than its records may wait.
        segment_ms=min(segment_ms, max_lag_ms) if compact else segment_ms,
        index_interval_bytes=_number("index.interval.bytes", own, broker),
        retention_ms=_number("retention.ms", own, broker) if deletes else FOREVER,
        retention_bytes=_number("retention.bytes", own, broker) if deletes else FOREVER,
        max_message_bytes=max_message_bytes,
        producer_expiration_ms=int(expiration or 0),
        durable=_value(DURABILITY, own, broker) == "disk",
        append_time=_value("message.timestamp.type", own, broker) == "LogAppendTime",
        compact=compact,
        min_cleanable_ratio=_ratio("min.cleanable.dirty.ratio", own, broker),
        min_compaction_lag_ms=_number("min.compaction.lag.ms", own, broker),
        max_compaction_lag_ms=max_lag_ms,
        delete_retention_ms=_number("delete.retention.ms", own, broker),
        kept_ms=_number("tidelog.delay.max.ms", own, broker),
    )
    return TopicConfig(
        log=log,
        max_message_bytes=max_message_bytes,
        timestamp_after_max_ms=_number("message.timestamp.after.max.ms", own, broker),
        timestamp_before_max_ms=_number("message.timestamp.before.max.ms", own, broker),
        compact=compact,
        overload=overload,
        delay_max_ms=_number("tidelog.delay.max.ms", own, broker),
        by_key=_value("tidelog.queue.order", own, broker) == "key",
        delete_groups=_delete_groups(own, broker),
        writers=str(_value("tidelog.writers", own, broker)),
    )


def _overload(own: Mapping[str, str], broker: BrokerValues, *, deletes: bool) -> OverloadPolicy | None:
    """`deletes`: records may go. Where the broker's own settings say otherwise, nothing is dropped."""
    kind = str(_value(POLICY, own, broker))
    if kind == BUFFER or (kind == DROP and not deletes):
        return None
    most = [_number(key, own, broker) for key in LIMITS]
    limit = OverloadLimit(*(None if one == FOREVER else one for one in most))
    groups = _value(WATCHED, own, broker)
    assert isinstance(groups, tuple)
    return OverloadPolicy(kind, limit, groups, _number("tidelog.block.dead.ms", own, broker))


def _delete_groups(own: Mapping[str, str], broker: BrokerValues) -> tuple[str, ...]:
    groups = _value("tidelog.delete.groups", own, broker)
    assert isinstance(groups, tuple)
    return groups if _value("tidelog.delete.when", own, broker) == "acknowledged" else ()


def _segment_bytes(own: Mapping[str, str], broker: BrokerValues, overload: OverloadPolicy | None) -> int:
    if "internal.segment.bytes" in own:
        return _number("internal.segment.bytes", own, broker)
    most = _number("segment.bytes", own, broker)
    if overload is None or overload.kind != DROP or overload.limit.bytes is None:
        return most
    # Segments are deleted whole: with large ones the disk would hold far more than the limit.
    return min(most, max(SEGMENT_BYTES_MIN, overload.limit.bytes // SEGMENTS_OF_LIMIT))


def _number(key: str, own: Mapping[str, str], broker: BrokerValues) -> int:
    value = _value(key, own, broker)
    assert isinstance(value, int), f"{key} is {value!r}"
    return value


def _ratio(key: str, own: Mapping[str, str], broker: BrokerValues) -> float:
    value = _value(key, own, broker)
    assert isinstance(value, int | float), f"{key} is {value!r}"
    return float(value)


def _value(key: str, own: Mapping[str, str], broker: BrokerValues) -> Value:
    text = topic_text(TOPIC[key], own, broker)
    assert text is not None, f"{key} has neither a value nor a default"
    return parse(TOPIC[key], text)
