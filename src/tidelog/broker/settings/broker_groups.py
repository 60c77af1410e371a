"""The settings of the broker about groups: how long members may be silent, how many there may be, what offsets keep.

Those of consumer groups (KIP-848) and of share groups (KIP-932) are the defaults of the groups' own settings
(`group.py`), and their bounds.
"""

from __future__ import annotations

from tidelog.broker.settings.setting import (
    BOOLEAN,
    INT,
    INT_MAX,
    LIST,
    LONG,
    STRING,
    Setting,
    at_least,
    between,
    each_of,
    one_of,
)

UNLIMITED = str(INT_MAX)
BOUNDED = "one process has a bound, and it has a name"

GROUPS = [
    Setting(
        "tidelog.max.groups",
        INT,
        "100000",
        "Groups in all; joining a further one is refused.",
        at_least(1),
        dynamic=True,
    ),
    Setting(
        "group.initial.rebalance.delay.ms",
        INT,
        "0",
        "How long the first member of a classic group waits for others before it is given its partitions.",
        at_least(0),
        kafka="3000",
        because="a test or a first program should not wait; Kafka's own sample configuration has 0 too",
    ),
    Setting(
        "group.min.session.timeout.ms",
        INT,
        "6000",
        "The shortest session timeout that a classic member may ask for.",
        at_least(1),
    ),
    Setting(
        "group.max.session.timeout.ms",
        INT,
        "1800000",
        "The longest session timeout that a classic member may ask for.",
        at_least(1),
    ),
    Setting(
        "group.max.size", INT, "10000", "Members of one classic group.", at_least(1), kafka=UNLIMITED, because=BOUNDED
    ),
    Setting(
        "group.consumer.assignors",
        LIST,
        "uniform,range",
        "The assignors of consumer groups (KIP-848), the first being the default.",
        each_of("uniform", "range"),
    ),
    Setting(
        "group.consumer.session.timeout.ms",
        INT,
        "45000",
        "consumer.session.timeout.ms of groups that do not set it.",
        at_least(1),
    ),
    Setting("group.consumer.min.session.timeout.ms", INT, "45000", "The shortest that a group may have.", at_least(1)),
    Setting("group.consumer.max.session.timeout.ms", INT, "60000", "The longest that a group may have.", at_least(1)),
    Setting(
        "group.consumer.heartbeat.interval.ms",
        INT,
        "5000",
        "consumer.heartbeat.interval.ms of groups that do not set it.",
        at_least(1),
    ),
    Setting(
        "group.consumer.min.heartbeat.interval.ms", INT, "5000", "The shortest that a group may have.", at_least(1)
    ),
    Setting(
        "group.consumer.max.heartbeat.interval.ms", INT, "15000", "The longest that a group may have.", at_least(1)
    ),
    Setting(
        "group.consumer.max.size",
        INT,
        "10000",
        "Members of one consumer group (KIP-848).",
        at_least(1),
        kafka=UNLIMITED,
        because=BOUNDED,
    ),
    Setting(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "Whether a group with members changes its protocol: to KIP-848 (upgrade), back (downgrade), both or never.",
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    Setting(
        "offset.metadata.max.bytes",
        INT,
        "4096",
        "The longest text that a member may store with an offset.",
        at_least(0),
    ),
    Setting(
        "offsets.retention.minutes",
        INT,
        "10080",
        "How long offsets are kept after a group has lost its last member.",
        at_least(1),
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        LONG,
        "600000",
        "How often offsets that have expired are looked for.",
        at_least(1),
    ),
    Setting(
        "group.share.heartbeat.interval.ms",
        INT,
        "5000",
        "share.heartbeat.interval.ms of share groups that do not set it.",
        at_least(1),
    ),
    Setting("group.share.min.heartbeat.interval.ms", INT, "5000", "The least that a group may have.", at_least(1)),
    Setting("group.share.max.heartbeat.interval.ms", INT, "15000", "The most that a group may have.", at_least(1)),
    Setting(
        "group.share.session.timeout.ms",
        INT,
        "45000",
        "share.session.timeout.ms of share groups that do not set it.",
        at_least(1),
    ),
    Setting("group.share.min.session.timeout.ms", INT, "45000", "The least that a group may have.", at_least(1)),
    Setting("group.share.max.session.timeout.ms", INT, "60000", "The most that a group may have.", at_least(1)),
    Setting(
        "group.share.record.lock.duration.ms",
        INT,
        "30000",
        "share.record.lock.duration.ms of share groups that do not set it.",
        at_least(1000),
    ),
    Setting("group.share.min.record.lock.duration.ms", INT, "15000", "The least that a group may have.", at_least(1)),
    Setting("group.share.max.record.lock.duration.ms", INT, "60000", "The most that a group may have.", at_least(1)),
    Setting(
        "group.share.delivery.count.limit",
        INT,
        "5",
        "share.delivery.count.limit of share groups that do not set it.",
        at_least(2),
    ),
    Setting("group.share.min.delivery.count.limit", INT, "2", "The least that a group may have.", at_least(1)),
    Setting("group.share.max.delivery.count.limit", INT, "10", "The most that a group may have.", at_least(1)),
    Setting(
        "group.share.partition.max.record.locks",
        INT,
        "2000",
        "share.partition.max.record.locks of share groups that do not set it.",
        at_least(100),
    ),
    Setting("group.share.min.partition.max.record.locks", INT, "100", "The least that a group may have.", at_least(1)),
    Setting("group.share.max.partition.max.record.locks", INT, "4000", "The most that a group may have.", at_least(1)),
    Setting(
        "errors.deadletterqueue.auto.create.topics.enable",
        BOOLEAN,
        "false",
        "Whether the dead-letter topic that a share group names is created with its first letter (KIP-1191).",
        dynamic=True,
    ),
    Setting(
        "errors.deadletterqueue.topic.name.prefix",
        STRING,
        "dlq.",
        "What the names of dead-letter topics of share groups begin with (KIP-1191).",
        dynamic=True,
    ),
    Setting("group.share.max.size", INT, "200", "Members of one share group.", between(1, 1000)),
    Setting(
        "group.share.max.share.sessions", INT, "2000", "Share sessions in all; a further one is refused.", at_least(1)
    ),
]
