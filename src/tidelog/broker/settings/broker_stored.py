"""Kafka's broker settings that are kept and shown, and change nothing here.

They are the defaults of topic settings that are themselves only stored, and what people commonly have in their
configuration: threads, the layout of Kafka's own internal topics.
"""

from __future__ import annotations

from tidelog.broker.settings.setting import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    SHORT,
    STORED,
    Check,
    Setting,
    at_least,
    between,
    one_of,
)
from tidelog.broker.settings.topic import GZIP_LEVELS, NEVER

THREADS = "Kafka's threads; Tidelog has one loop and a few threads of its own"
LAYOUT = "the layout of Kafka's internal topics; ours are fixed"


def _stored(
    key: str, kind: str, default: str | None, doc: str, check: Check | None = None, dynamic: bool = False
) -> Setting:
    return Setting(key, kind, default, f"{doc[0].upper()}{doc[1:]}.", check, STORED, dynamic)


def _of_topics(key: str, kind: str, default: str | None, topic_key: str, check: Check | None = None) -> Setting:
    return Setting(key, kind, default, f"{topic_key} of topics that do not set it.", check, STORED, True)


STORED_BY_BROKER = [
    _of_topics("compression.gzip.level", INT, "-1", "compression.gzip.level", one_of(*GZIP_LEVELS)),
    _of_topics("compression.lz4.level", INT, "9", "compression.lz4.level", between(1, 17)),
    _of_topics("compression.zstd.level", INT, "3", "compression.zstd.level", between(-131072, 22)),
    _of_topics("log.flush.interval.ms", LONG, None, "flush.ms", at_least(0)),
    _of_topics("log.index.size.max.bytes", INT, "10485760", "segment.index.bytes", at_least(4)),
    _of_topics("log.local.retention.bytes", LONG, "-2", "local.retention.bytes", at_least(-2)),
    _of_topics("log.local.retention.ms", LONG, "-2", "local.retention.ms", at_least(-2)),
    _of_topics("log.preallocate", BOOLEAN, "false", "preallocate"),
    _of_topics("log.roll.jitter.ms", LONG, None, "segment.jitter.ms", at_least(0)),
    _stored("log.roll.jitter.hours", INT, "0", "the same in hours, where log.roll.jitter.ms is not set", at_least(0)),
    _of_topics("log.segment.delete.delay.ms", LONG, "60000", "file.delete.delay.ms", at_least(0)),
    _of_topics("unclean.leader.election.enable", BOOLEAN, "false", "unclean.leader.election.enable"),
    _stored("log.flush.scheduler.interval.ms", LONG, NEVER, "how often Kafka looks for logs to flush"),
    _stored(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        "60000",
        "how often Kafka writes down what it has flushed",
        at_least(0),
    ),
    _stored("background.threads", INT, "10", THREADS, at_least(1), True),
    _stored("num.io.threads", INT, "8", THREADS, at_least(1), True),
    _stored("num.network.threads", INT, "3", THREADS, at_least(1), True),
    _stored("num.recovery.threads.per.data.dir", INT, "2", THREADS, at_least(1), True),
    _stored("num.replica.fetchers", INT, "1", THREADS, at_least(1), True),
    _stored(
        "socket.receive.buffer.bytes", INT, "102400", "SO_RCVBUF of Kafka's connections; ours leave it to the system"
    ),
    _stored(
        "socket.listen.backlog.size", INT, "50", "connections that may wait to be accepted; ours is fixed", at_least(1)
    ),
    _stored(
        "max.incremental.fetch.session.cache.slots",
        INT,
        "1000",
        "incremental fetch sessions that Kafka keeps; ours keeps none, and clients send full fetches",
        at_least(0),
    ),
    _stored("queued.max.requests", INT, "500", "requests that may wait for Kafka's threads", at_least(1)),
    _stored("offsets.topic.num.partitions", INT, "50", LAYOUT, at_least(1)),
    _stored("offsets.topic.replication.factor", SHORT, "3", LAYOUT, at_least(1)),
    _stored("offsets.topic.segment.bytes", INT, "104857600", LAYOUT, at_least(1)),
    _stored("offsets.commit.timeout.ms", INT, "5000", "how long Kafka waits for replicas of a commit", at_least(1)),
    _stored("transaction.state.log.num.partitions", INT, "50", LAYOUT, at_least(1)),
    _stored("transaction.state.log.replication.factor", SHORT, "3", LAYOUT, at_least(1)),
    _stored("transaction.state.log.min.isr", INT, "2", LAYOUT, at_least(1)),
    _stored("transaction.state.log.segment.bytes", INT, "104857600", LAYOUT, at_least(1)),
    _stored(
        "group.consumer.assignment.interval.ms",
        INT,
        "1000",
        "the consumer.assignment.interval.ms of groups that do not set it",
        at_least(0),
        True,
    ),
    _stored("group.coordinator.rebalance.protocols", LIST, "classic,consumer", "the group protocols that are on: both"),
    _stored(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        "true",
        "whether leaders move back to their preferred broker; there is one broker",
    ),
    _stored(
        "controlled.shutdown.enable", BOOLEAN, "true", "whether leaders move away before a stop; there is one broker"
    ),
]
