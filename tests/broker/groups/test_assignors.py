"""The server-side assignors: every partition once, evenly, and as few moves as that allows."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.broker.groups.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform
from tidelog.broker.groups.consumer_group import NO_PARTITIONS, Partitions

TOPICS = [bytes([number]) * 16 for number in range(5)]


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Subscriber], dict[bytes, int]]:
    """Members with any subscriptions and any earlier targets, which need not fit them any more."""
    counts = {topic: draw(st.integers(1, 7)) for topic in TOPICS}
    owners = {(topic, index): draw(st.integers(-1, 5)) for topic in TOPICS for index in range(draw(st.integers(0, 8)))}
    size = draw(st.integers(1, 6))
    alike = draw(st.booleans())
    shared = frozenset(draw(st.sets(st.sampled_from(TOPICS), min_size=1)))
    subscribers = []
    for number in range(size):
        topics = shared if alike else frozenset(draw(st.sets(st.sampled_from(TOPICS))))
        target = frozenset(place for place, owner in owners.items() if owner == number)
        instance = draw(st.sampled_from([None, f"instance-{9 - number}"]))
        subscribers.append(Subscriber(f"member-{number}", instance, topics, target))
    wanted = {topic for one in subscribers for topic in one.topics}
    return subscribers, {topic: count for topic, count in counts.items() if topic in wanted}


def everything(partitions: dict[bytes, int]) -> set[tuple[bytes, int]]:
    return {(topic, index) for topic, count in partitions.items() for index in range(count)}


def applied(subscribers: list[Subscriber], given: dict[str, Partitions]) -> list[Subscriber]:
    return [one._replace(target=given[one.member_id]) for one in subscribers]


@proves("T3")
@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_goes_to_exactly_one_of_its_subscribers(
    group: tuple[list[Subscriber], dict[bytes, int]], name: str
) -> None:
    subscribers, partitions = group
    result = ASSIGNORS[name](subscribers, partitions)
    assert set(result) == {one.member_id for one in subscribers}
    owners = Counter(place for places in result.values() for place in places)
    assert set(owners) == everything(partitions)
    assert set(owners.values()) <= {1}
    for one in subscribers:
        assert {topic for topic, _ in result[one.member_id]} <= one.topics


@proves("T3")
@given(groups())
def test_uniform_is_even_and_moves_nothing_when_nothing_changed(
    group: tuple[list[Subscriber], dict[bytes, int]],
) -> None:
    subscribers, partitions = group
    result = assign_uniform(subscribers, partitions)
    loads = {one.member_id: len(result[one.member_id]) for one in subscribers}
    for giver in subscribers:
        for taker in subscribers:
            could = {place for place in result[giver.member_id] if place[0] in taker.topics}
            assert not could or loads[giver.member_id] - loads[taker.member_id] <= 1
    assert assign_uniform(applied(subscribers, result), partitions) == result


@proves("T3")
@given(st.integers(1, 8), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_uniform_moves_only_what_a_newcomer_and_a_goer_make_necessary(size: int, counts: list[int]) -> None:
    partitions = dict(zip(TOPICS, counts, strict=False))
    topics = frozenset(partitions)
    members = [Subscriber(f"member-{number}", None, topics, NO_PARTITIONS) for number in range(size)]
    before = applied(members, assign_uniform(members, partitions))
    newcomer = Subscriber("newcomer", None, topics, NO_PARTITIONS)
    after = assign_uniform([*before, newcomer], partitions)
    for one in before:
        assert after[one.member_id] <= one.target, "who was there takes nothing from the others"
    rest = applied([*before, newcomer], after)[1:]
    again = assign_uniform(rest, partitions)
    for one in rest:
        assert one.target <= again[one.member_id], "who stays keeps what it has"


@proves("T3")
@given(groups())
def test_range_gives_neighbours_in_the_order_of_names(group: tuple[list[Subscriber], dict[bytes, int]]) -> None:
    subscribers, partitions = group
    result = assign_range(subscribers, partitions)
    ordered = sorted(subscribers, key=lambda one: (one.instance_id is None, one.instance_id or "", one.member_id))
    for topic, count in partitions.items():
        runs = [
            sorted(index for where, index in result[one.member_id] if where == topic)
            for one in ordered
            if topic in one.topics
        ]
        assert [index for run in runs for index in run] == list(range(count))
        assert all(0 <= len(left) - len(right) <= 1 for left, right in pairwise(runs))


@proves("T3")
def test_nobody_gets_nothing() -> None:
    for assign in ASSIGNORS.values():
        assert assign([], {}) == {}
        assert assign([Subscriber("a", None, frozenset(), NO_PARTITIONS)], {}) == {"a": NO_PARTITIONS}
