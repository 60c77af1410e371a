"""Names that were perhaps meant: a topic that is not there is mostly a slip of the fingers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, TidelogError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.metadata import TopicPartition

CUTOFF = 0.7  # how much alike, of 1: at less, names that merely have a word in common are near


def near_topic(cluster: Cluster, name: str) -> str | None:
    """The topic whose name is nearest, if one is near; None also where topics cannot be listed."""
    from difflib import get_close_matches

    from tidelog.client.admin import topics

    try:
        there = [one for one in topics.names(cluster) if one != name]
    except TidelogError:
        return None
    return next(iter(get_close_matches(name, there, n=1, cutoff=CUTOFF)), None)


def partitions_of(cluster: Cluster, topic: str) -> list[TopicPartition]:
    """Of a topic that must be there; the error names the one that was perhaps meant."""
    from tidelog.wire.error_code import ErrorCode

    try:
        return cluster.partitions(topic)
    except BrokerError as error:
        near = near_topic(cluster, topic) if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None
        if near is None:
            raise
        raise BrokerError(error.code, f"topic {topic!r} does not exist; did you mean {near}?") from error
