"""A group that changes its protocol while it has members: what each of them is told, and who has which partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from broker.groups.shell import GROUP, Shell, assigned, subscription, topic_id
from proving import proves
from tidelog.broker.decision import Decision
from tidelog.broker.groups.describe import describe_consumer
from tidelog.broker.groups.migration import parse_assignment
from tidelog.broker.groups.phases import Phase
from tidelog.broker.groups.refusal import decide_refusal
from tidelog.wire.codec import encode
from tidelog.wire.error_code import ErrorCode as E
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.wire.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
)
from tidelog.wire.messages.join_group import JoinGroupResponse

ORDERS = topic_id(1)
ALL = range(4)


def embedded(message: Any, version: int = 1) -> bytes:
    return version.to_bytes(2, "big") + b"".join(bytes(chunk) for chunk in encode(message, version))  # type: ignore[arg-type]


def wants(owned: Iterable[int] = ()) -> dict[str, bytes]:
    has = [SubscriptionTopicPartition(topic="orders", partitions=list(owned))]
    return {"range": embedded(ConsumerProtocolSubscription(topics=["orders"], owned_partitions=has))}


def gives(*partitions: int) -> bytes:
    some = [AssignmentTopicPartition(topic="orders", partitions=list(partitions))]
    return embedded(ConsumerProtocolAssignment(assigned_partitions=some))


def got(shell: Shell, ticket: str) -> set[int]:
    reply = shell.synced(ticket)
    assert reply.error_code == 0
    return {index for _, index in parse_assignment(shell.state, reply.assignment)}


def joins(shell: Shell, member_id: str = "", **join: Any) -> JoinGroupResponse:
    return shell.joined(shell.join(member_id, **{"protocols": wants(), **join}))


def classic_with_all(shell: Shell, **join: Any) -> str:
    """A stable classic group of one, which has all of the topic."""
    first = joins(shell, **join)
    shell.sync(first.member_id, first.generation_id, {first.member_id: gives(*ALL)}, instance=join.get("instance"))
    return first.member_id


def mixed(**settings: Any) -> tuple[Shell, str]:
    """A group with a classic member and "new", which speaks KIP-848; each has two partitions."""
    shell = Shell({"orders": 4}, **settings)
    old = classic_with_all(shell)
    assert shell.enter("new", "orders").error_code == 0
    reply = joins(shell, old)
    assert (reply.error_code, reply.generation_id, reply.leader) == (0, 2, "")
    assert len(got(shell, shell.sync(old, 2))) == 2
    assert len(assigned(shell.beat("new", 2))) == 2
    return shell, old


def places(shell: Shell) -> dict[str, set[int]]:
    return {one.member_id: {index for _, index in one.assigned} for one in shell.state.consumer[GROUP].members.values()}


@proves("T3", "T7")
def test_the_first_member_of_the_consumer_protocol_turns_a_classic_group_with_members() -> None:
    shell = Shell({"orders": 4})
    old = classic_with_all(shell)
    assert shell.commit_offsets({("orders", 0): 7}, member_id=old, generation=1) == [0]
    reply = shell.enter("new", "orders")
    assert (reply.error_code, reply.member_epoch, assigned(reply)) == (0, 2, set()), "the other has everything yet"
    assert GROUP not in shell.state.classic
    assert GROUP not in shell.state.live.classic
    assert places(shell) == {old: set(ALL), "new": set()}
    assert shell.heartbeat(old, 1) == E.REBALANCE_IN_PROGRESS
    assert shell.synced(shell.sync(old, 1)).error_code == E.REBALANCE_IN_PROGRESS
    assert joins(shell, old).generation_id == 2
    kept = got(shell, shell.sync(old, 2, protocol_type="consumer", protocol="range"))
    freed = {index for _, index in assigned(shell.beat("new", 2))}
    assert (len(kept), kept | freed, kept & freed) == (2, set(ALL), set())
    assert shell.heartbeat(old, 2) == 0
    assert shell.committed("orders") == 7
    shell.check_folds()


@proves("T3")
def test_who_waits_in_the_classic_group_is_told_to_join_again() -> None:
    shell = Shell({"orders": 4})
    old = classic_with_all(shell)
    newcomer = shell.join(protocols=wants())
    follower = joins(shell, old, protocols=wants(ALL))
    assert shell.state.live.classic[GROUP].phase is Phase.COMPLETING
    waiting = shell.sync(shell.joined(newcomer).member_id, follower.generation_id)
    third = shell.join("", protocols=wants())
    shell.enter("new", "orders")
    assert shell.synced(waiting).error_code == E.REBALANCE_IN_PROGRESS
    assert shell.joined(third).error_code == E.REBALANCE_IN_PROGRESS
    assert shell.unanswered() == []
    assert shell.joined(third).member_id not in shell.state.consumer[GROUP].members, "it had no part in the group yet"
    assert joins(shell, shell.joined(third).member_id).error_code == 0
    assert set(shell.state.consumer[GROUP].members) == {
        old,
        shell.joined(newcomer).member_id,
        "new",
        shell.joined(third).member_id,
    }


@proves("T3")
def test_what_a_cooperative_member_is_about_to_drop_is_not_given_to_another() -> None:
    shell = Shell({"orders": 4})
    old = classic_with_all(shell)
    again = joins(shell, old, protocols=wants(ALL))
    shell.sync(old, again.generation_id, {old: gives(0, 1)})
    assert assigned(shell.enter("new", "orders")) == set(), "it may still read all four"
    reply = joins(shell, old, protocols=wants([0, 1]))
    assert (reply.error_code, got(shell, shell.sync(old, reply.generation_id))) == (0, {0, 1})
    assert {index for _, index in assigned(shell.beat("new", reply.generation_id))} == {2, 3}


@proves("T3")
def test_a_cooperative_member_gives_back_before_another_gets_it() -> None:
    shell = Shell({"orders": 4})
    old = classic_with_all(shell)
    shell.enter("new", "orders")
    reply = joins(shell, old, protocols=wants(ALL))
    assert (reply.error_code, reply.generation_id) == (0, 1), "it stays behind until it has dropped what it must"
    kept = got(shell, shell.sync(old, 1))
    assert len(kept) == 2
    assert shell.heartbeat(old, 1) == E.REBALANCE_IN_PROGRESS
    assert shell.beat("new", 2).assignment is None
    assert joins(shell, old, protocols=wants(kept)).generation_id == 2
    assert got(shell, shell.sync(old, 2)) == kept
    assert {index for _, index in assigned(shell.beat("new", 2))} == set(ALL) - kept
    shell.check_folds()


@proves("T3")
def test_a_member_that_waits_for_others_is_told_when_all_is_free() -> None:
    shell = Shell({"orders": 4})
    shell.enter("new", "orders")
    reply = joins(shell)
    assert (reply.error_code, reply.generation_id) == (0, 2)
    assert got(shell, shell.sync(reply.member_id, 2)) == set()
    assert shell.heartbeat(reply.member_id, 2) == 0
    kept = assigned(shell.beat("new", 1))
    assert shell.heartbeat(reply.member_id, 2) == 0
    shell.beat("new", 1, owned=kept)
    assert shell.heartbeat(reply.member_id, 2) == E.REBALANCE_IN_PROGRESS
    assert joins(shell, reply.member_id).generation_id == 2
    assert len(got(shell, shell.sync(reply.member_id, 2))) == 2


@proves("T3")
def test_the_group_goes_back_when_the_last_member_of_the_consumer_protocol_leaves() -> None:
    shell, old = mixed()
    assert shell.beat("new", -1).error_code == 0
    assert GROUP not in shell.state.consumer
    assert shell.state.live.classic[GROUP].phase is Phase.PREPARING
    shell.check_folds()
    assert shell.heartbeat(old, 2) == E.REBALANCE_IN_PROGRESS
    reply = joins(shell, old)
    assert (reply.generation_id, reply.leader) == (3, old)
    assert got(shell, shell.sync(old, 3, {old: gives(*ALL)})) == set(ALL)
    shell.check_folds()
    shell.wait(10_000)
    assert shell.state.classic[GROUP].members == ()
    assert len(shell.state.live.deadlines) == 1, "only retention is left"


@proves("T3")
def test_the_group_goes_back_when_the_last_member_of_the_consumer_protocol_is_lost() -> None:
    shell, old = mixed(consumer_session_timeout_ms=5_000)
    shell.wait(5_000)
    assert GROUP not in shell.state.consumer
    assert joins(shell, old).leader == old
    assert shell.beat("new", 2).error_code == E.UNKNOWN_MEMBER_ID, "it joins anew on this"
    assert shell.enter("new", "orders").error_code == 0
    assert set(places(shell)) == {"new", old}


@proves("T3")
def test_a_classic_member_leaves_or_is_lost_and_the_others_get_its_part() -> None:
    shell, old = mixed()
    assert shell.leave((old, None)).members[0].error_code == 0
    assert len(assigned(shell.beat("new", 2))) == 4
    other = joins(shell).member_id
    shell.beat("new", 3)
    shell.wait(10_000)
    assert set(places(shell)) == {"new"}, "it was not heard of for its own session time-out"
    assert shell.leave((other, None), version=2).error_code == E.UNKNOWN_MEMBER_ID
    assert shell.leave(("new", None)).members[0].error_code == E.UNKNOWN_MEMBER_ID


@proves("T3")
@pytest.mark.parametrize("joins_in_time", [False, True])
def test_a_classic_member_that_does_not_come_again_in_time_is_out(joins_in_time: bool) -> None:
    shell, old = mixed()
    shell.set_topics(orders=6)
    assert shell.heartbeat(old, 2) == E.REBALANCE_IN_PROGRESS
    if joins_in_time:
        assert joins(shell, old).generation_id == 3, "but does not fetch the outcome"
    generation = 3 if joins_in_time else 2
    for _ in range(12):
        assert shell.heartbeat(old, generation) in (0, E.REBALANCE_IN_PROGRESS)
        shell.beat("new", shell.state.consumer[GROUP].members["new"].epoch)
        shell.wait(5_000)
    assert shell.heartbeat(old, generation) == E.UNKNOWN_MEMBER_ID


@proves("T3")
def test_a_classic_member_that_came_again_in_time_stays() -> None:
    shell, old = mixed()
    shell.set_topics(orders=6)
    assert shell.heartbeat(old, 2) == E.REBALANCE_IN_PROGRESS
    assert joins(shell, old).generation_id == 3
    got(shell, shell.sync(old, 3))
    for _ in range(15):
        assert shell.heartbeat(old, 3) in (0, E.REBALANCE_IN_PROGRESS)
        epoch = shell.state.consumer[GROUP].members["new"].epoch
        shell.beat("new", epoch, owned=shell.state.consumer[GROUP].members["new"].assigned)
        if shell.heartbeat(old, 3) == E.REBALANCE_IN_PROGRESS:
            joins(shell, old)
            got(shell, shell.sync(old, 3))
        shell.wait(5_000)
    assert shell.heartbeat(old, 3) == 0


@proves("T3")
def test_who_waited_longer_than_its_session_in_the_classic_group_is_heard_of_again_or_out() -> None:
    shell = Shell({"orders": 4})
    one, two = shell.stable(2, protocols=wants())
    generation = shell.state.classic[GROUP].generation
    for member in shell.state.live.classic[GROUP].members.values():
        member.kept = member.kept._replace(assignment=b"")
    parked = shell.join(one, protocols=wants())
    for _ in range(3):
        assert shell.heartbeat(two, generation) == E.REBALANCE_IN_PROGRESS
        shell.wait(5_000)
    shell.enter("new", "orders")
    assert shell.joined(parked).error_code == E.REBALANCE_IN_PROGRESS
    shell.wait(9_999)
    assert set(places(shell)) == {one, two, "new"}
    shell.wait(1)
    assert set(places(shell)) == {"new"}


@proves("T3", "T6")
def test_a_restart_keeps_a_group_with_members_of_both_protocols() -> None:
    shell, old = mixed()
    before = places(shell)
    shell.restart()
    assert places(shell) == before
    assert shell.heartbeat(old, 2) == 0
    assert shell.beat("new", 2).error_code == 0
    shell.wait(9_999)
    assert set(places(shell)) == {"new", old}
    shell.wait(1)
    assert set(places(shell)) == {"new"}


@proves("T3")
def test_a_static_member_changes_its_protocol_and_keeps_its_part() -> None:
    shell = Shell({"orders": 4})
    old = classic_with_all(shell, instance="one")
    reply = shell.enter("new", "orders", instance_id="one")
    assert (reply.error_code, len(assigned(reply))) == (0, 4)
    assert shell.heartbeat(old, 1, instance="one") == E.FENCED_INSTANCE_ID
    assert shell.synced(shell.sync(old, 1, instance="one")).error_code == E.FENCED_INSTANCE_ID
    assert shell.leave((old, "one")).members[0].error_code == E.FENCED_INSTANCE_ID
    assert joins(shell, old, instance="one").error_code == E.FENCED_INSTANCE_ID
    assert joins(shell, "who", instance="two").error_code == E.UNKNOWN_MEMBER_ID
    back = joins(shell, instance="one")
    assert (back.error_code, back.leader, back.generation_id) == (0, back.member_id, 3)
    assert GROUP not in shell.state.consumer
    assert shell.beat("new", 2, instance_id="one").error_code == E.UNKNOWN_MEMBER_ID
    shell.check_folds()


@proves("T3")
def test_an_administrator_removes_a_static_classic_member_by_its_name() -> None:
    shell, _ = mixed()
    static = joins(shell, instance="one").member_id
    assert shell.leave(("", "one")).members[0].error_code == 0
    assert static not in places(shell)


@proves("T3")
def test_a_classic_member_that_was_lost_drops_all_before_it_joins_anew() -> None:
    shell, old = mixed()
    shell.wait(10_000)
    assert len(assigned(shell.beat("new", 2))) == 4
    assert joins(shell, old, protocols=wants([0, 1])).error_code == E.UNKNOWN_MEMBER_ID
    assert joins(shell, old, protocols=wants()).error_code == 0


@proves("T3")
def test_a_new_classic_member_is_told_its_id_first() -> None:
    shell, _ = mixed()
    told = joins(shell, version=4)
    assert told.error_code == E.MEMBER_ID_REQUIRED
    assert set(places(shell)) != {told.member_id}
    assert joins(shell, told.member_id, version=4).error_code == 0
    assert told.member_id in places(shell)


@proves("T3")
@pytest.mark.parametrize(
    ("join", "code"),
    [
        ({"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {"roundrobin": subscription("orders")}}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {"range": b"\0"}}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {}}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "new"}, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_classic_member_that_does_not_fit_is_refused(join: dict[str, Any], code: int) -> None:
    shell, _ = mixed()
    before = places(shell)
    assert joins(shell, **join).error_code == code
    assert places(shell) == before


@proves("T3")
def test_a_full_group_takes_no_member_of_either_protocol() -> None:
    shell, old = mixed(consumer_max_members=2)
    assert joins(shell).error_code == E.GROUP_MAX_SIZE_REACHED
    assert shell.enter("third", "orders").error_code == E.GROUP_MAX_SIZE_REACHED
    assert joins(shell, old).error_code == 0


@proves("T3")
@pytest.mark.parametrize(
    ("join", "assignment", "reason"),
    [
        ({"protocol_type": "connect"}, b"", "'connect'"),
        ({"protocols": {"own": b"mine"}}, b"", "not understood"),
        ({}, b"mine", "not understood"),
        ({"settings": {"consumer_max_members": 1}}, b"", "group.consumer.max.size"),
        ({"settings": {"consumer_migration_policy": "disabled"}}, b"", "group.consumer.migration.policy"),
        ({"settings": {"consumer_migration_policy": "downgrade"}}, b"", "group.consumer.migration.policy"),
    ],
)
def test_a_classic_group_that_cannot_be_turned_stays_as_it_is(
    join: dict[str, Any], assignment: bytes, reason: str
) -> None:
    shell = Shell({"orders": 4}, **join.pop("settings", {}))
    old = joins(shell, **join)
    shell.sync(old.member_id, 1, {old.member_id: assignment})
    reply = shell.enter("new", "orders")
    assert reply.error_code == E.GROUP_ID_NOT_FOUND
    assert reply.error_message is not None
    assert reason in reply.error_message
    assert shell.heartbeat(old.member_id, 1) == 0
    shell.check_folds()


@proves("T3")
def test_a_group_that_may_not_go_back_serves_its_classic_members_as_it_is() -> None:
    shell, old = mixed(consumer_migration_policy="upgrade")
    shell.beat("new", -1)
    assert shell.heartbeat(old, 2) == E.REBALANCE_IN_PROGRESS
    assert joins(shell, old).generation_id == 3
    assert got(shell, shell.sync(old, 3)) == set(ALL)
    assert shell.enter("new", "orders").error_code == 0
    shell.check_folds()


@proves("T3")
def test_each_member_speaks_its_own_protocol() -> None:
    shell, old = mixed()
    assert shell.beat(old, 2).error_code == E.UNKNOWN_MEMBER_ID
    assert shell.beat(old, -1).error_code == E.UNKNOWN_MEMBER_ID
    assert shell.heartbeat("new", 2) == E.UNKNOWN_MEMBER_ID
    assert shell.synced(shell.sync("new", 2)).error_code == E.UNKNOWN_MEMBER_ID
    assert shell.heartbeat(old, 1) == E.ILLEGAL_GENERATION
    assert shell.synced(shell.sync(old, 2, protocol="sticky")).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert shell.synced(shell.sync(old, 2, protocol_type="connect")).error_code == E.INCONSISTENT_GROUP_PROTOCOL


@proves("T7")
@pytest.mark.parametrize(("version", "generation", "code"), [(7, 2, 0), (9, 2, 0), (7, 1, E.ILLEGAL_GENERATION)])
def test_a_classic_member_commits_in_any_version(version: int, generation: int, code: int) -> None:
    shell, old = mixed()
    place = {("orders", 0): 5}
    assert shell.commit_offsets(place, member_id=old, generation=generation, version=version) == [code]
    assert shell.commit_offsets(place, member_id="new", generation=2, version=7) == [E.UNSUPPORTED_VERSION]


@proves("T3", "T10")
def test_members_are_described_with_their_protocol() -> None:
    shell, old = mixed()
    [group] = describe_consumer(shell.state, ConsumerGroupDescribeRequest(group_ids=[GROUP])).groups
    assert {one.member_id: one.member_type for one in group.members} == {old: 0, "new": 1}


@proves("T3")
def test_a_change_of_protocol_that_could_not_be_written_has_not_happened() -> None:
    shell, old = mixed(consumer_session_timeout_ms=5_000)
    real, shell.commit = shell.commit, lambda decision: _refuse(shell, decision)  # type: ignore[method-assign]
    assert shell.beat("new", -1).error_code == E.COORDINATOR_NOT_AVAILABLE
    shell.commit = real  # type: ignore[method-assign]
    assert set(places(shell)) == {old, "new"}
    assert shell.heartbeat(old, 2) == 0
    shell.wait(5_000)
    assert GROUP not in shell.state.consumer, "its session goes on, and ends"
    shell.commit = lambda decision: _refuse(shell, decision)  # type: ignore[method-assign]
    assert shell.enter("new", "orders").error_code == E.COORDINATOR_NOT_AVAILABLE
    shell.commit = real  # type: ignore[method-assign]
    assert set(shell.state.live.classic[GROUP].members) == {old}
    shell.wait(10_000)
    assert shell.state.classic[GROUP].members == ()


def _refuse(shell: Shell, decision: Decision) -> None:
    for ticket, reply in decide_refusal(shell.state, decision, shell.now).replies:
        shell.replies[ticket] = reply
