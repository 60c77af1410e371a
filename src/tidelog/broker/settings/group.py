"""The settings of a group: Kafka's. Share groups go by theirs; consumer groups go by the broker's for now.

A key's synonym is the broker's key that gives it its default; the broker's `min` and `max` keys bound it (`bounds`).
"""

from __future__ import annotations

from tidelog.broker.queues.settings import BOUNDS, is_reset
from tidelog.broker.settings.setting import BOOLEAN, INT, STORED, STRING, Check, Setting, at_least, one_of, table

STREAMS = "for Kafka Streams groups, which Tidelog does not support"

GROUP: dict[str, Setting] = table(
    [
        Setting(
            "consumer.assignment.interval.ms",
            INT,
            "1000",
            "The shortest time between two assignments of a group in Kafka; ours are made when they are due.",
            at_least(0),
            STORED,
            True,
            ("group.consumer.assignment.interval.ms",),
        ),
        Setting(
            "consumer.heartbeat.interval.ms",
            INT,
            "5000",
            "How often members of this group send a heartbeat; for now the broker's setting counts for all groups.",
            at_least(1),
            STORED,
            True,
            ("group.consumer.heartbeat.interval.ms",),
        ),
        Setting(
            "consumer.session.timeout.ms",
            INT,
            "45000",
            "When a silent member of this group is taken for dead; for now all groups go by the broker's.",
            at_least(1),
            STORED,
            True,
            ("group.consumer.session.timeout.ms",),
        ),
        Setting(
            "errors.deadletterqueue.topic.name",
            STRING,
            "",
            "The topic that a share group's records go to that were rejected or delivered too often (KIP-1191). It must"
            " exist, have errors.deadletterqueue.group.enable=true, and begin with the broker's prefix for them.",
            dynamic=True,
        ),
        Setting(
            "errors.deadletterqueue.copy.record.enable",
            BOOLEAN,
            "true",
            "Whether a dead letter has the key, the value and the headers of its record (KIP-1191).",
            dynamic=True,
            kafka="false",
            because="retention may delete what a letter without its content is about",
        ),
        Setting(
            "share.assignment.interval.ms",
            INT,
            "1000",
            "The shortest time between two assignments of a share group in Kafka; ours are made when they are due.",
            at_least(0),
            STORED,
            True,
        ),
        Setting(
            "share.auto.offset.reset",
            STRING,
            "latest",
            "Where a share group begins in a partition that it has not read: latest, earliest or by_duration:PT1H.",
            Check("latest, earliest or by_duration:P1DT2H3M4S", lambda value: is_reset(str(value))),
            dynamic=True,
        ),
        Setting(
            "share.delivery.count.limit",
            INT,
            "5",
            "How often a record is delivered before it is given up.",
            at_least(2),
            dynamic=True,
            synonyms=("group.share.delivery.count.limit",),
        ),
        Setting(
            "share.heartbeat.interval.ms",
            INT,
            "5000",
            "How often members of this share group send a heartbeat.",
            at_least(1),
            dynamic=True,
            synonyms=("group.share.heartbeat.interval.ms",),
        ),
        Setting(
            "share.isolation.level",
            STRING,
            "read_uncommitted",
            "Whether a share group gets records of open and of aborted transactions.",
            one_of("read_committed", "read_uncommitted"),
            dynamic=True,
        ),
        Setting(
            "share.partition.max.record.locks",
            INT,
            "2000",
            "How many records of one partition a share group has acquired at a time.",
            at_least(100),
            dynamic=True,
            synonyms=("group.share.partition.max.record.locks",),
        ),
        Setting(
            "share.record.lock.duration.ms",
            INT,
            "30000",
            "How long a record is its consumer's, before it is given to another.",
            at_least(1000),
            dynamic=True,
            synonyms=("group.share.record.lock.duration.ms",),
        ),
        Setting(
            "share.renew.acknowledge.enable",
            BOOLEAN,
            "true",
            "Whether a consumer can renew its lock on a record.",
            dynamic=True,
        ),
        Setting(
            "share.session.timeout.ms",
            INT,
            "45000",
            "When a silent member of this share group is taken for dead.",
            at_least(1),
            dynamic=True,
            synonyms=("group.share.session.timeout.ms",),
        ),
        Setting(
            "tidelog.retry.backoff.ms",
            INT,
            "0",
            "How long a record waits after its first delivery that failed, before it is given to anybody; twice as long"
            " after each further one. 0: it does not wait.",
            at_least(0),
            dynamic=True,
        ),
        Setting(
            "tidelog.retry.backoff.max.ms",
            INT,
            "600000",
            "The longest such wait.",
            at_least(0),
            dynamic=True,
        ),
        Setting(
            "streams.assignment.interval.ms",
            INT,
            "1000",
            f"Between two assignments; {STREAMS}.",
            at_least(0),
            STORED,
            True,
        ),
        Setting(
            "streams.heartbeat.interval.ms",
            INT,
            "5000",
            f"Between two heartbeats; {STREAMS}.",
            at_least(1),
            STORED,
            True,
        ),
        Setting(
            "streams.initial.rebalance.delay.ms",
            INT,
            "3000",
            f"Before the first assignment; {STREAMS}.",
            at_least(0),
            STORED,
            True,
        ),
        Setting("streams.num.standby.replicas", INT, "0", f"Copies of state; {STREAMS}.", at_least(0), STORED, True),
        Setting(
            "streams.session.timeout.ms", INT, "45000", f"Without a heartbeat; {STREAMS}.", at_least(1), STORED, True
        ),
    ]
)


def bounds(key: str) -> tuple[str, str] | None:
    """The broker's keys between whose values a group's value must lie."""
    if key in ("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"):
        rest = key.removeprefix("consumer.")
        return f"group.consumer.min.{rest}", f"group.consumer.max.{rest}"
    return BOUNDS.get(key)
