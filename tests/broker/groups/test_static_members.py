"""Static members of classic groups: they come back under their instance id, and nobody else has to move."""

from __future__ import annotations

import pytest

from broker.groups.shell import GROUP, Shell, subscription
from proving import proves
from tidelog.broker.groups.phases import Phase
from tidelog.wire.error_code import ErrorCode as E


def phase(shell: Shell) -> Phase:
    live = shell.state.live_group(GROUP)
    assert live is not None
    return live.phase


def two_static_members(shell: Shell) -> tuple[str, str]:
    """The leader "a" and the follower "b", stable in generation 2."""
    a = shell.joined(shell.join(instance="a", version=5)).member_id
    newcomer = shell.join(instance="b", version=5)
    shell.join(a, instance="a", version=5)
    b = shell.joined(newcomer).member_id
    shell.sync(b, 2, instance="b")
    shell.sync(a, 2, {a: b"for a", b: b"for b"}, instance="a")
    assert phase(shell) is Phase.STABLE
    return a, b


@proves("T3")
def test_a_static_member_that_comes_back_gets_a_new_id_and_its_old_assignment_without_a_rebalance() -> None:
    shell = Shell()
    a, b = two_static_members(shell)
    back = shell.joined(shell.join(instance="b", version=5))
    assert back.error_code == 0
    assert back.member_id not in (a, b)
    assert back.generation_id == 2
    assert (phase(shell), back.leader, back.members) == (Phase.STABLE, a, [])
    assert shell.synced(shell.sync(back.member_id, 2, instance="b")).assignment == b"for b"
    assert shell.heartbeat(a, 2, instance="a") == 0
    shell.check_folds()


@proves("T3")
def test_the_process_that_had_the_instance_before_is_fenced() -> None:
    shell = Shell({"orders": 1})
    _, b = two_static_members(shell)
    shell.join(instance="b", version=5)
    assert shell.heartbeat(b, 2, instance="b") == E.FENCED_INSTANCE_ID
    assert shell.synced(shell.sync(b, 2, instance="b")).error_code == E.FENCED_INSTANCE_ID
    assert shell.joined(shell.join(b, instance="b", version=5)).error_code == E.FENCED_INSTANCE_ID
    codes = shell.commit_offsets({("orders", 0): 1}, member_id=b, generation=2, instance="b")
    assert codes == [E.FENCED_INSTANCE_ID]
    assert shell.leave((b, "b")).members[0].error_code == E.FENCED_INSTANCE_ID
    assert shell.heartbeat(b, 2, instance="unknown") == E.UNKNOWN_MEMBER_ID


@proves("T3")
def test_metadata_that_only_tell_what_a_member_owns_do_not_rebalance() -> None:
    shell = Shell()
    two_static_members(shell)
    again = {"range": subscription("orders", version=3) + b"and what it owns"}
    assert shell.joined(shell.join(instance="b", version=5, protocols=again)).error_code == 0
    assert phase(shell) is Phase.STABLE


@proves("T3")
@pytest.mark.parametrize("protocols", [{"range": subscription("payments")}, {"range": b""}])
def test_a_static_member_that_comes_back_with_another_subscription_rebalances(protocols: dict[str, bytes]) -> None:
    shell = Shell()
    a, _ = two_static_members(shell)
    waiting = shell.join(instance="b", version=5, protocols=protocols)
    assert phase(shell) is Phase.PREPARING
    joined = shell.joined(shell.join(a, instance="a", version=5))
    assert {one.group_instance_id for one in joined.members} == {"a", "b"}
    assert shell.joined(waiting).generation_id == 3


@proves("T3")
def test_a_static_leader_that_comes_back_is_told_to_skip_the_assignment() -> None:
    shell = Shell()
    two_static_members(shell)
    back = shell.joined(shell.join(instance="a", version=9))
    assert back.leader == back.member_id
    assert back.skip_assignment
    assert {one.group_instance_id for one in back.members} == {"a", "b"}
    assert shell.synced(shell.sync(back.member_id, 2, instance="a")).assignment == b"for a"


@proves("T3")
def test_an_older_static_leader_that_comes_back_is_not_told_that_it_leads() -> None:
    shell = Shell()
    a, _ = two_static_members(shell)
    back = shell.joined(shell.join(instance="a", version=8))
    assert (back.leader, back.skip_assignment, back.members) == (a, False, [])
    # It does lead: if it joins again, there is a rebalance.
    shell.join(back.member_id, instance="a", version=8)
    assert phase(shell) is Phase.PREPARING


@proves("T3")
def test_a_static_member_that_comes_back_between_join_and_sync_begins_the_rebalance_again() -> None:
    shell = Shell()
    a, b = two_static_members(shell)
    shell.join(a, instance="a", version=5)
    waiting_join = shell.join(b, instance="b", version=5)
    assert phase(shell) is Phase.COMPLETING
    waiting = shell.sync(b, shell.joined(waiting_join).generation_id, instance="b")
    back = shell.join(instance="b", version=5)
    assert shell.synced(waiting).error_code == E.FENCED_INSTANCE_ID
    assert phase(shell) is Phase.PREPARING
    leader = shell.joined(shell.join(a, instance="a", version=5))
    assert shell.joined(back).member_id in {one.member_id for one in leader.members}


@proves("T3")
def test_a_static_member_that_comes_back_while_its_older_self_waits_takes_its_place() -> None:
    shell = Shell()
    a, b = two_static_members(shell)
    waiting = shell.join(b, instance="b", version=5, protocols={"range": subscription("payments")})
    back = shell.join(instance="b", version=5, protocols={"range": subscription("payments")})
    assert shell.joined(waiting).error_code == E.FENCED_INSTANCE_ID
    shell.join(a, instance="a", version=5)
    assert shell.joined(back).error_code == 0


@proves("T3")
def test_a_static_member_that_stays_away_is_part_of_a_rebalance_until_its_session_ends() -> None:
    shell = Shell()
    a, _ = two_static_members(shell)
    for _ in range(2):
        shell.wait(4_000)
        shell.heartbeat(a, 2, instance="a")
    shell.join(a, instance="a", version=5)
    assert shell.unanswered() != []
    shell.wait(2_000)
    joined = shell.joined(shell.asked[-1])
    assert [one.group_instance_id for one in joined.members] == ["a"], "b was silent for ten seconds"


@proves("T3")
def test_an_administrator_removes_a_static_member_by_its_name() -> None:
    shell = Shell()
    a, b = two_static_members(shell)
    reply = shell.leave(("", "b"))
    assert (reply.members[0].error_code, reply.members[0].group_instance_id) == (0, "b")
    assert shell.heartbeat(b, 2, instance="b") == E.UNKNOWN_MEMBER_ID
    assert shell.heartbeat(a, 2, instance="a") == E.REBALANCE_IN_PROGRESS


@proves("T3", "T6")
def test_static_members_are_known_after_a_restart() -> None:
    shell = Shell()
    _, b = two_static_members(shell)
    shell.restart()
    back = shell.joined(shell.join(instance="b", version=5))
    assert back.generation_id == 2
    assert shell.heartbeat(b, 2, instance="b") == E.FENCED_INSTANCE_ID
