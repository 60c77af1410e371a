"""The broker's settings for compaction, by Kafka's names."""

from __future__ import annotations

from tidelog.broker.settings.setting import (
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    STORED,
    Check,
    Setting,
    at_least,
    between,
)
from tidelog.broker.settings.topic import NEVER

KEYS_MIN = 1 << 20  # bytes; as Kafka's for each of its threads
FASTEST = "1.7976931348623157E308"


def _of_topics(key: str, kind: str, default: str, topic_key: str, check: Check) -> Setting:
    return Setting(key, kind, default, f"{topic_key} of topics that do not set it.", check, dynamic=True)


CLEANER = [
    _of_topics("log.cleaner.delete.retention.ms", LONG, "86400000", "delete.retention.ms", at_least(0)),
    _of_topics("log.cleaner.max.compaction.lag.ms", LONG, NEVER, "max.compaction.lag.ms", at_least(1)),
    _of_topics("log.cleaner.min.compaction.lag.ms", LONG, "0", "min.compaction.lag.ms", at_least(0)),
    _of_topics("log.cleaner.min.cleanable.ratio", DOUBLE, "0.5", "min.cleanable.dirty.ratio", between(0, 1)),
    Setting("log.cleaner.enable", BOOLEAN, "true", "Whether topics with cleanup.policy=compact are compacted."),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        "134217728",
        "Bytes of memory for the keys of one pass, 27 for each. More keys than fit take more passes.",
        at_least(KEYS_MIN),
        dynamic=True,
    ),
    Setting(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        FASTEST,
        "How many bytes compaction reads in a second, at most.",
        dynamic=True,
    ),
    Setting(
        "log.cleaner.backoff.ms",
        LONG,
        "15000",
        "How long compaction rests after it has looked at every partition.",
        at_least(0),
        dynamic=True,
    ),
    Setting(
        "log.cleaner.threads",
        INT,
        "1",
        "How many threads compact in Kafka; here it is one at a time.",
        at_least(0),
        STORED,
        True,
    ),
    Setting(
        "log.cleaner.io.buffer.size",
        INT,
        "524288",
        "The memory for reading and writing in Kafka; ours is a few megabytes.",
        at_least(0),
        STORED,
        True,
    ),
    Setting(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        "0.9",
        "How full Kafka's table of keys may become; ours is as large as its keys need.",
        effect=STORED,
        dynamic=True,
    ),
]
