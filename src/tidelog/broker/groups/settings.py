"""Settings and limits of consumer groups, each under Kafka's name where Kafka has one.

`settings_from` takes the broker's settings by Kafka's names; what is missing keeps the default given here. Defaults
are Kafka's, except `group.initial.rebalance.delay.ms` (0: the first consumer of a development broker should not wait
three seconds) and the sizes of groups (Kafka has no bound; a broker of one process has).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MAX_GROUP_ID_LENGTH = 1024
MAX_PATTERN_LENGTH = 4096
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member's parked JoinGroup is kept: it knows no member id yet, so it cannot send heartbeats."""

KAFKA_NAMES = {
    "group.min.session.timeout.ms": "min_session_timeout_ms",
    "group.max.session.timeout.ms": "max_session_timeout_ms",
    "group.initial.rebalance.delay.ms": "initial_rebalance_delay_ms",
    "group.max.size": "max_members",
    "group.consumer.max.size": "consumer_max_members",
    "group.consumer.heartbeat.interval.ms": "consumer_heartbeat_interval_ms",
    "group.consumer.session.timeout.ms": "consumer_session_timeout_ms",
    "offset.metadata.max.bytes": "offset_metadata_max_bytes",
    "offsets.retention.minutes": "offsets_retention_minutes",
    "offsets.retention.check.interval.ms": "offsets_retention_check_interval_ms",
    "tidelog.max.groups": "max_groups",
}


class GroupSettings(NamedTuple):
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    max_members: int = 10_000
    consumer_max_members: int = 10_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_session_timeout_ms: int = 45_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    max_groups: int = 100_000
    consumer_assignors: tuple[str, ...] = ("uniform", "range")  # the first is the default
    consumer_migration_policy: str = "bidirectional"

    @property
    def may_upgrade(self) -> bool:
        return self.consumer_migration_policy in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        return self.consumer_migration_policy in ("bidirectional", "downgrade")

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


def settings_from(values: Mapping[str, object]) -> GroupSettings:
    found = {field: int(str(values[name])) for name, field in KAFKA_NAMES.items() if values.get(name) is not None}
    assignors = values.get("group.consumer.assignors")
    if isinstance(assignors, str):
        assignors = [name.strip() for name in assignors.split(",")]
    names = tuple(str(name) for name in assignors) if isinstance(assignors, list | tuple) else ()
    kept = GroupSettings()
    return GroupSettings(
        **found,
        consumer_assignors=names or kept.consumer_assignors,
        consumer_migration_policy=str(values.get("group.consumer.migration.policy") or kept.consumer_migration_policy),
    )
