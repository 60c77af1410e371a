"""A committed offset: how far a group has read a partition. Kept by topic name, as in Kafka, until the topic is
deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

NO_EXPIRY = -1


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_EXPIRY  # set by the retention time that OffsetCommit 2 to 4 may carry

    def expires_at(self, empty_since_ms: int, retention_ms: int) -> int:
        return self.expire_ms if self.expire_ms != NO_EXPIRY else max(self.commit_ms, empty_since_ms) + retention_ms


def offset_value(committed: CommittedOffset) -> dict[str, Any]:
    value: dict[str, Any] = {
        "offset": committed.offset,
        "epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "at": committed.commit_ms,
    }
    if committed.expire_ms != NO_EXPIRY:
        value["expires"] = committed.expire_ms
    return value


def parse_offset(value: Mapping[str, Any]) -> CommittedOffset:
    return CommittedOffset(
        value["offset"], value["epoch"], value["metadata"], value["at"], value.get("expires", NO_EXPIRY)
    )
