"""What a share group goes by: its own setting if it has one, or else the broker's of the same meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MAX_GROUP_ID_LENGTH = 1024
LATEST = "latest"
EARLIEST = "earliest"
BY_DURATION = "by_duration:"
READ_COMMITTED = "read_committed"

# A group's key -> the broker's that gives it its default.
SYNONYMS = {
    "share.session.timeout.ms": "group.share.session.timeout.ms",
    "share.heartbeat.interval.ms": "group.share.heartbeat.interval.ms",
    "share.record.lock.duration.ms": "group.share.record.lock.duration.ms",
    "share.delivery.count.limit": "group.share.delivery.count.limit",
    "share.partition.max.record.locks": "group.share.partition.max.record.locks",
}

# A group's key -> the broker's keys between whose values it must lie.
BOUNDS = {
    "share.heartbeat.interval.ms": ("group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"),
    "share.session.timeout.ms": ("group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"),
    "share.record.lock.duration.ms": (
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    "share.delivery.count.limit": ("group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"),
    "share.partition.max.record.locks": (
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
}


class ShareSettings(NamedTuple):
    """Of one group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    lock_ms: int = 30_000
    deliveries: int = 5
    locks: int = 2_000
    reset: str = LATEST
    committed: bool = False
    renewable: bool = True
    dead_letters: str = ""  # the topic they go to
    copies: bool = True  # they have what their record had
    backoff_ms: int = 0
    backoff_max_ms: int = 600_000

    def backoff_after(self, failures: int) -> int:
        """How long a record waits after so many deliveries that failed."""
        return min(self.backoff_max_ms, self.backoff_ms << min(max(failures - 1, 0), 32))


def settings_of(own: Mapping[str, str], broker: Mapping[str, object]) -> ShareSettings:
    def number(key: str) -> int:
        return int(own[key]) if key in own else int(str(broker[SYNONYMS[key]]))

    return ShareSettings(
        number("share.session.timeout.ms"),
        number("share.heartbeat.interval.ms"),
        number("share.record.lock.duration.ms"),
        number("share.delivery.count.limit"),
        number("share.partition.max.record.locks"),
        own.get("share.auto.offset.reset", LATEST),
        own.get("share.isolation.level") == READ_COMMITTED,
        own.get("share.renew.acknowledge.enable", "true") == "true",
        own.get("errors.deadletterqueue.topic.name", ""),
        own.get("errors.deadletterqueue.copy.record.enable", "true") == "true",
        int(own.get("tidelog.retry.backoff.ms", 0)),
        int(own.get("tidelog.retry.backoff.max.ms", 600_000)),
    )


def duration_ms(text: str) -> int | None:
    """The milliseconds of `by_duration:PnDTnHnMn.nS`; None if it is not one, or a negative one."""
    import re

    if not text.startswith(BY_DURATION):
        return None
    parts = re.fullmatch(
        r"P(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?",
        text.removeprefix(BY_DURATION).upper(),
        re.ASCII,
    )
    if parts is None or not any(parts.groups()):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def is_reset(text: str) -> bool:
    return text in (LATEST, EARLIEST) or duration_ms(text) is not None
