"""Offsets by topic and partition in the one form that records and answers have: `{"orders": {"0": 12, "1": 7}}`.

Topics are sorted by name and partitions by number, so that equal offsets are equal text.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.metadata import TopicPartition

Offsets = Mapping[TopicPartition, int]


def to_fields(offsets: Offsets) -> dict[str, dict[str, int]]:
    grouped: dict[str, dict[str, int]] = {}
    for at in sorted(offsets):
        grouped.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return grouped


def from_fields(fields: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(index)): int(offset)
        for topic, offsets in fields.items()
        for index, offset in offsets.items()
    }
