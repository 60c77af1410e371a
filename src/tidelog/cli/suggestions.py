"""Names that were perhaps meant: a topic that is not there is mostly a slip of the fingers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, TidelogError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.metadata import TopicPartition

CUTOFF = 0.7  # how much alike, of 1: at less, names that merely have a word in common are near


def near_topic(cluster: Cluster, name: str) -> str | None:
    """The topic whose name is nearest, if one is near; None also where topics cannot be listed."""
    from tidelog.client.admin import topics

    try:
        there = [one for one in topics.names(cluster) if one != name]
    except TidelogError:
        return None
    return nearest(name, there)


def nearest(name: str, there: Iterable[str]) -> str | None:
    """The name that was perhaps meant: also `shop.revenue` of who wrote `revenue`."""
    names = sorted(set(there))
    behind = [one for one in names if one.endswith(f".{name}")]
    return next(iter(behind or get_close_matches(name, names, n=1, cutoff=CUTOFF)), None)


@contextmanager
def misspelt(cluster: Cluster, names: Iterable[str]) -> Iterator[None]:
    """What fails because one of these topics is not there, fails with the name that was perhaps meant. Looked up only
    then: who may change a topic's settings need not be allowed to describe it.
    """
    from tidelog.wire.error_code import ErrorCode

    try:
        yield
    except BrokerError as error:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            for name in names:
                partitions_of(cluster, name)
        raise


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


def missing_group(cluster: Cluster, name: str) -> BrokerError:
    """Of a consumer group that the broker does not have: it may be a share group, or one that is nearly so called."""
    from tidelog.client.admin import groups
    from tidelog.wire.error_code import ErrorCode

    kinds = {one.group: one.kind for one in groups.list_all(cluster)}
    if kinds.pop(name, None) == "share":
        said = f"group {name!r} is a share group; `tidelog queues describe {name}` shows it"
    else:
        near = nearest(name, kinds)
        way = "`tidelog groups` lists what there is" if near is None else f"did you mean {near}?"
        said = f"group {name!r} does not exist; {way}"
    return BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, said)
