"""Who gets which partition in a KIP-848 group: the server-side assignors `uniform` and `range`, as pure functions.

    uniform   even and sticky: members keep what they have, and differ by one partition at most where all subscribe
              to the same
    range     for each topic a run of neighbouring partitions to each subscriber, in the order of instance ids, then
              of member ids; topics with equally many partitions and the same subscribers are split alike, which joins
              by partition need

Both give every partition of a subscribed topic to exactly one of its subscribers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heapreplace
from typing import NamedTuple, TypeAlias

from tidelog.broker.groups.consumer_group import Partitions, TopicPartition


class Subscriber(NamedTuple):
    """A member as an assignor sees it: the ids of existing topics it subscribes to, and its present target."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    target: Partitions


def assign_range(subscribers: list[Subscriber], partitions: Mapping[bytes, int]) -> dict[str, Partitions]:
    ordered = sorted(subscribers, key=lambda one: (one.instance_id is None, one.instance_id or "", one.member_id))
    given: dict[str, list[TopicPartition]] = {one.member_id: [] for one in subscribers}
    for topic, count in partitions.items():
        members = [one.member_id for one in ordered if topic in one.topics]
        start = 0
        for index, member in enumerate(members):
            end = start + count // len(members) + (index < count % len(members))
            given[member] += [(topic, partition) for partition in range(start, end)]
            start = end
    return {member: frozenset(pairs) for member, pairs in given.items()}


def assign_uniform(subscribers: list[Subscriber], partitions: Mapping[bytes, int]) -> dict[str, Partitions]:
    if not subscribers:
        return {}
    if all(one.topics == subscribers[0].topics for one in subscribers):
        return _uniform_alike(subscribers, partitions)
    return _uniform_mixed(subscribers, partitions)


def _uniform_alike(subscribers: list[Subscriber], partitions: Mapping[bytes, int]) -> dict[str, Partitions]:
    """All subscribe to the same: each keeps up to its quota, and what is left fills those below theirs."""
    wanted = {(topic, partition) for topic in subscribers[0].topics for partition in range(partitions[topic])}
    # Those who have most keep most, so that the extra partitions stay where they are.
    ordered = sorted(subscribers, key=lambda one: (-len(one.target & wanted), one.member_id))
    quota, extra = divmod(len(wanted), len(ordered))
    given: dict[str, list[TopicPartition]] = {}
    for index, one in enumerate(ordered):
        given[one.member_id] = sorted(one.target & wanted)[: quota + (index < extra)]
        wanted.difference_update(given[one.member_id])
    free = iter(sorted(wanted))
    for index, one in enumerate(ordered):
        mine = given[one.member_id]
        for _ in range(quota + (index < extra) - len(mine)):
            mine.append(next(free))
    return {member: frozenset(pairs) for member, pairs in given.items()}


def _uniform_mixed(subscribers: list[Subscriber], partitions: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Subscriptions differ: keep what is still wanted, give the rest to the least loaded, then even out by topic."""
    given: dict[str, set[TopicPartition]] = {}
    taken: set[TopicPartition] = set()
    for one in subscribers:
        kept = {pair for pair in one.target if pair[0] in one.topics and pair[1] < partitions[pair[0]]} - taken
        taken |= kept
        given[one.member_id] = kept
    readers = {topic: sorted(one.member_id for one in subscribers if topic in one.topics) for topic in partitions}
    # Topics with few subscribers first: they have the least choice.
    topics = sorted((topic for topic in partitions if readers[topic]), key=lambda topic: (len(readers[topic]), topic))
    for topic in topics:
        heap = [(len(given[member]), member) for member in readers[topic]]
        heapify(heap)
        for partition in range(partitions[topic]):
            if (topic, partition) not in taken:
                load, member = heap[0]
                given[member].add((topic, partition))
                heapreplace(heap, (load + 1, member))
    # Every move lowers the sum of the squared loads, so this ends.
    while sum(_even_out(topic, readers[topic], given) for topic in topics):
        pass
    return {member: frozenset(pairs) for member, pairs in given.items()}


def _even_out(topic: bytes, readers: list[str], given: dict[str, set[TopicPartition]]) -> bool:
    """Moves partitions of one topic from its most to its least loaded subscribers; False if nothing is gained."""
    owned = {member: sorted(pair for pair in given[member] if pair[0] == topic) for member in readers}
    moved = False
    while owners := [member for member in readers if owned[member]]:
        most = max(owners, key=lambda member: len(given[member]))
        least = min(readers, key=lambda member: len(given[member]))
        if len(given[most]) - len(given[least]) <= 1:
            break
        pair = owned[most].pop()
        given[most].remove(pair)
        given[least].add(pair)
        owned[least].append(pair)
        moved = True
    return moved


Assignor: TypeAlias = Callable[[list[Subscriber], Mapping[bytes, int]], dict[str, Partitions]]

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
