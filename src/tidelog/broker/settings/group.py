"""The settings of a group: Kafka's. They are stored and shown; groups go by the broker's settings for now.

A key's synonym is the broker's key that gives it its default; the broker's `min` and `max` keys bound it (`bounds`).
"""

from __future__ import annotations

from tidelog.broker.settings.setting import BOOLEAN, INT, STORED, STRING, Setting, at_least, one_of, table

LATER = "for share groups, which come with a later release"
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
            "share.assignment.interval.ms", INT, "1000", f"Between two assignments; {LATER}.", at_least(0), STORED, True
        ),
        Setting("share.auto.offset.reset", STRING, "latest", f"Where a new group begins; {LATER}.", None, STORED, True),
        Setting(
            "share.delivery.count.limit", INT, "5", f"Deliveries of one record; {LATER}.", at_least(2), STORED, True
        ),
        Setting(
            "share.heartbeat.interval.ms", INT, "5000", f"Between two heartbeats; {LATER}.", at_least(1), STORED, True
        ),
        Setting(
            "share.isolation.level",
            STRING,
            "read_uncommitted",
            f"Whether records of open transactions are seen; {LATER}.",
            one_of("read_committed", "read_uncommitted"),
            STORED,
            True,
        ),
        Setting(
            "share.partition.max.record.locks",
            INT,
            "2000",
            f"Records in delivery, by partition; {LATER}.",
            at_least(100),
            STORED,
            True,
        ),
        Setting(
            "share.record.lock.duration.ms",
            INT,
            "30000",
            f"How long a delivery is locked; {LATER}.",
            at_least(1000),
            STORED,
            True,
        ),
        Setting(
            "share.renew.acknowledge.enable",
            BOOLEAN,
            "true",
            f"Whether a lock can be renewed; {LATER}.",
            None,
            STORED,
            True,
        ),
        Setting("share.session.timeout.ms", INT, "45000", f"Without a heartbeat; {LATER}.", at_least(1), STORED, True),
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
    if key not in ("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"):
        return None
    rest = key.removeprefix("consumer.")
    return f"group.consumer.min.{rest}", f"group.consumer.max.{rest}"
