"""Offsets as Spark's Kafka connector writes them into checkpoints and takes them in options: `{"topic": {"0": 12}}`.

Rules:
- A checkpoint of either connector continues under the other: the JSON is the same, and so is its meaning (the next
  offset to be read).
- Spark compares offsets as text, so one set of offsets has one form: topics sorted, then partitions by number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidelog.client.metadata import TopicPartition, by_topic
from tidelog.errors import UsageError

LATEST, EARLIEST = -1, -2  # in options, and never in a checkpoint

Offsets = dict[TopicPartition, int]
OffsetsJson = dict[str, dict[str, int]]


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetsJson:
    return {
        topic: {str(partition): offsets[TopicPartition(topic, partition)] for partition in partitions}
        for topic, partitions in by_topic(sorted(offsets)).items()
    }


def from_json(given: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in given.items()
        for partition, offset in partitions.items()
    }


def parse_offsets(text: str, option: str, example: str = '{"topic": {"0": 23, "1": -2}}') -> Offsets:
    """The text of an option: numbers by partition by topic."""
    given = _parsed(text, option, example)
    try:
        read = {
            TopicPartition(topic, _partition(partition)): offset
            for topic, partitions in given.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, ValueError):
        raise _unfit(text, option, example) from None
    if any(type(number) is not int for number in read.values()):
        raise _unfit(text, option, example)
    return read


def parse_partitions(text: str, option: str) -> list[TopicPartition]:
    example = '{"topic": [0, 1]}'
    given = _parsed(text, option, example)
    read = []
    for topic, partitions in given.items():
        if not isinstance(partitions, list) or any(type(one) is not int or one < 0 for one in partitions):
            raise _unfit(text, option, example)
        read += [TopicPartition(topic, partition) for partition in partitions]
    if not read:
        raise _unfit(text, option, example)
    return sorted(set(read))


def _partition(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError
    return int(text)


def _parsed(text: str, option: str, example: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError:
        raise _unfit(text, option, example) from None
    if not isinstance(given, dict):
        raise _unfit(text, option, example)
    return given


def _unfit(text: str, option: str, example: str) -> UsageError:
    return UsageError(f"option {option} is {text!r}; write it like {example}")
