"""The classic protocol, scene by scene: joining, syncing, leaving, falling silent."""

from __future__ import annotations

import pytest

from broker.groups.shell import GROUP, Shell, subscription
from proving import proves
from tidelog.broker.groups.phases import MOVES, GroupEvent, Phase
from tidelog.wire.error_code import ErrorCode as E


def phase(shell: Shell, group: str = GROUP) -> Phase | None:
    live = shell.state.live_group(group)
    return live.phase if live is not None else None


@proves("T3")
def test_the_first_member_leads_and_gets_its_own_assignment() -> None:
    shell = Shell()
    joined = shell.joined(shell.join())
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    assert [one.member_id for one in joined.members] == [joined.member_id]
    assert phase(shell) is Phase.COMPLETING
    synced = shell.synced(shell.sync(joined.member_id, 1, {joined.member_id: b"all"}))
    assert (synced.error_code, synced.assignment) == (0, b"all")
    assert phase(shell) is Phase.STABLE
    shell.check_folds()


@proves("T3")
def test_from_version_4_on_a_new_member_learns_its_id_first() -> None:
    shell = Shell()
    told = shell.joined(shell.join(version=4))
    assert told.error_code == E.MEMBER_ID_REQUIRED
    assert told.member_id.startswith("client-")
    assert phase(shell) is Phase.EMPTY
    joined = shell.joined(shell.join(told.member_id, version=4))
    assert (joined.error_code, joined.generation_id, joined.member_id) == (0, 1, told.member_id)


@proves("T3")
def test_a_member_id_that_was_given_out_and_not_used_expires() -> None:
    shell = Shell()
    told = shell.joined(shell.join(version=4, session_ms=10_000))
    shell.wait(10_000)
    assert GROUP not in shell.state.ids()
    late = shell.joined(shell.join(told.member_id, version=4))
    assert late.error_code == E.UNKNOWN_MEMBER_ID


@proves("T3")
def test_a_second_member_makes_the_first_join_again() -> None:
    shell = Shell()
    [first] = shell.stable(1)
    ticket = shell.join()
    assert ticket in shell.unanswered()
    assert shell.heartbeat(first, 1) == E.REBALANCE_IN_PROGRESS
    again = shell.joined(shell.join(first))
    second = shell.joined(ticket)
    assert again.generation_id == second.generation_id == 2
    assert again.leader == second.leader == first
    assert {one.member_id for one in again.members} == {first, second.member_id}
    assert second.members == []


@proves("T3")
def test_followers_wait_for_the_leaders_assignment() -> None:
    shell = Shell()
    [first] = shell.stable(1)
    newcomer = shell.join()
    shell.join(first)
    second = shell.joined(newcomer).member_id
    waiting = shell.sync(second, 2)
    assert waiting in shell.unanswered()
    shell.sync(first, 2, {first: b"a", second: b"b"})
    assert shell.synced(waiting).assignment == b"b"
    # A client that lost the reply asks again, and gets the same.
    assert shell.synced(shell.sync(second, 2)).assignment == b"b"


@proves("T3")
def test_a_member_that_the_leader_left_out_gets_an_empty_assignment() -> None:
    shell = Shell()
    first, second = shell.stable(2)
    shell.join(second, protocols={"range": subscription("orders", "payments")})
    generation = shell.joined(shell.join(first)).generation_id
    shell.sync(first, generation, {})
    reply = shell.synced(shell.sync(second, generation))
    assert (reply.error_code, reply.assignment) == (0, b"")


@proves("T3")
def test_the_protocol_that_most_prefer_among_those_all_know_wins() -> None:
    shell = Shell()
    shell.join(protocols={"range": b"1", "sticky": b"2"})
    first = shell.joined(shell.asked[-1]).member_id
    shell.join(protocols={"sticky": b"3", "range": b"4", "only-mine": b"5"})
    shell.join(protocols={"sticky": b"6", "range": b"7"})
    won = shell.joined(shell.join(first, protocols={"range": b"1", "sticky": b"2"}))
    assert won.protocol_name == "sticky"
    assert sorted(one.metadata for one in won.members) == [b"2", b"3", b"6"]


@proves("T3")
@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("consumer", {"unheard-of": b""}),
        ("connect", {"range": b""}),
        ("consumer", {}),
        ("", {"range": b""}),
    ],
)
def test_a_protocol_that_the_group_does_not_share_is_refused(protocol_type: str, protocols: dict[str, bytes]) -> None:
    shell = Shell()
    shell.stable(1)
    reply = shell.joined(shell.join(protocol_type=protocol_type, protocols=protocols))
    assert reply.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert phase(shell) is Phase.STABLE


@proves("T3", "D4")
def test_a_group_of_connect_workers_may_hold_any_bytes() -> None:
    shell = Shell()
    opaque = bytes(range(256))
    joined = shell.joined(shell.join(protocol_type="connect", protocols={"sessioned": opaque}))
    assert joined.protocol_type == "connect"
    assert joined.members[0].metadata == opaque
    shell.sync(joined.member_id, 1, {joined.member_id: opaque[::-1]})
    shell.restart()
    assert shell.synced(shell.sync(joined.member_id, 1)).assignment == opaque[::-1]


@proves("T3")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": ""}, E.INVALID_GROUP_ID),
        ({"group": "g" * 1025}, E.INVALID_GROUP_ID),
        ({"session_ms": 5_999}, E.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, E.INVALID_SESSION_TIMEOUT),
        ({"member_id": "somebody"}, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_join_that_cannot_be_is_refused(fields: dict[str, object], code: int) -> None:
    shell = Shell()
    assert shell.joined(shell.join(**fields)).error_code == code  # type: ignore[arg-type]
    assert shell.state.ids() == set()


@proves("T3")
def test_requests_of_strangers_and_of_old_generations_are_refused() -> None:
    shell = Shell()
    [member] = shell.stable(1)
    assert shell.heartbeat("stranger", 1) == E.UNKNOWN_MEMBER_ID
    assert shell.heartbeat(member, 0) == E.ILLEGAL_GENERATION
    assert shell.heartbeat(member, 1, group="other") == E.UNKNOWN_MEMBER_ID
    assert shell.heartbeat(member, 1, group="") == E.INVALID_GROUP_ID
    assert shell.synced(shell.sync("stranger", 1)).error_code == E.UNKNOWN_MEMBER_ID
    assert shell.synced(shell.sync(member, 2)).error_code == E.ILLEGAL_GENERATION
    assert shell.synced(shell.sync(member, 1, group="other")).error_code == E.UNKNOWN_MEMBER_ID
    wrong = shell.sync(member, 1, protocol_type="connect", protocol="range")
    assert shell.synced(wrong).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    wrong = shell.sync(member, 1, protocol_type="consumer", protocol="sticky")
    assert shell.synced(wrong).error_code == E.INCONSISTENT_GROUP_PROTOCOL


@proves("T3")
def test_a_sync_during_a_rebalance_is_sent_back_to_join() -> None:
    shell = Shell()
    [member] = shell.stable(1)
    shell.join()
    assert phase(shell) is Phase.PREPARING
    assert shell.synced(shell.sync(member, 1)).error_code == E.REBALANCE_IN_PROGRESS


@proves("T3")
def test_a_member_that_leaves_is_gone_at_once() -> None:
    shell = Shell()
    first, second = shell.stable(2)
    assert shell.leave((second, None)).members[0].error_code == 0
    assert shell.heartbeat(first, 2) == E.REBALANCE_IN_PROGRESS
    alone = shell.joined(shell.join(first))
    assert [one.member_id for one in alone.members] == [first]
    assert alone.generation_id == 3


@proves("T3")
def test_the_last_to_leave_empties_the_group_and_its_generation_goes_on() -> None:
    shell = Shell()
    [member] = shell.stable(1)
    assert shell.leave((member, None), version=0).error_code == 0
    assert phase(shell) is Phase.EMPTY
    assert shell.heartbeat(member, 2) == E.UNKNOWN_MEMBER_ID
    shell.check_folds()
    assert shell.joined(shell.join()).generation_id == 3


@proves("T3")
def test_a_batch_of_members_leaves_each_with_its_own_answer() -> None:
    shell = Shell()
    first = shell.joined(shell.join(instance="one")).member_id
    shell.sync(first, 1, {first: b""})
    pending = shell.joined(shell.join(version=5)).member_id
    reply = shell.leave(("", "one"), (pending, None), ("stranger", None), ("", "two"), ("wrong", "one"))
    codes = [one.error_code for one in reply.members]
    assert codes == [0, 0, E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID]
    assert reply.error_code == 0
    assert phase(shell) is Phase.EMPTY


@proves("T3")
@pytest.mark.parametrize("version", [0, 3])
def test_leaving_a_group_that_is_not_there_is_told_by_member(version: int) -> None:
    reply = Shell().leave(("somebody", None), version=version)
    assert (reply.error_code if version < 3 else reply.members[0].error_code) == E.UNKNOWN_MEMBER_ID


@proves("T3")
def test_a_pending_member_that_leaves_disturbs_nobody() -> None:
    shell = Shell()
    [member] = shell.stable(1)
    pending = shell.joined(shell.join(version=4)).member_id
    shell.leave((pending, None))
    assert phase(shell) is Phase.STABLE
    assert shell.heartbeat(member, 1) == 0


@proves("T3")
def test_a_rebalance_waits_for_a_member_that_was_just_told_its_id() -> None:
    shell = Shell()
    [first] = shell.stable(1)
    pending = shell.joined(shell.join(version=4)).member_id
    rejoined = shell.join(first)
    assert rejoined in shell.unanswered()
    shell.join(pending, version=4)
    assert shell.joined(rejoined).generation_id == 2
    assert len(shell.joined(rejoined).members) == 2


@proves("T3")
def test_a_silent_member_is_out_after_its_session() -> None:
    shell = Shell()
    first, second = shell.stable(2, session_ms=10_000)
    for _ in range(4):
        shell.wait(3_000)
        shell.heartbeat(first, 2)
    assert phase(shell) is Phase.PREPARING
    assert [one.member_id for one in shell.joined(shell.join(first)).members] == [first]
    assert shell.heartbeat(second, 2) == E.UNKNOWN_MEMBER_ID


@proves("T3")
def test_heartbeats_and_commits_keep_a_session() -> None:
    shell = Shell({"orders": 1})
    [member] = shell.stable(1, session_ms=10_000)
    for _ in range(10):
        shell.wait(9_999)
        assert shell.heartbeat(member, 1) == 0
        shell.wait(9_999)
        assert shell.commit_offsets({("orders", 0): 1}, member_id=member, generation=1) == [0]
    shell.wait(10_000)
    assert phase(shell) is Phase.EMPTY


@proves("T3")
def test_who_does_not_rejoin_in_time_is_out_and_the_rest_goes_on() -> None:
    shell = Shell()
    first, _ = shell.stable(2, rebalance_ms=20_000, session_ms=60_000)
    newcomer = shell.join()
    waiting = shell.join(first, rebalance_ms=20_000, session_ms=60_000)
    shell.wait(19_999)
    assert waiting in shell.unanswered()
    shell.wait(60_000)
    assert {one.member_id for one in shell.joined(waiting).members} == {first, shell.joined(newcomer).member_id}


@proves("T3")
def test_when_the_leader_does_not_rejoin_another_leads() -> None:
    shell = Shell()
    _, second = shell.stable(2, rebalance_ms=20_000, session_ms=60_000)
    ticket = shell.join(second, rebalance_ms=20_000, protocols={"range": subscription("payments")})
    shell.wait(60_000)
    joined = shell.joined(ticket)
    assert joined.leader == second
    assert [one.member_id for one in joined.members] == [second]


@proves("T3")
def test_who_joins_and_never_syncs_is_out_and_the_others_rebalance() -> None:
    shell = Shell()
    [first] = shell.stable(1, rebalance_ms=20_000, session_ms=60_000)
    newcomer = shell.join(rebalance_ms=20_000, session_ms=60_000)
    shell.join(first, rebalance_ms=20_000, session_ms=60_000)
    second = shell.joined(newcomer).member_id
    shell.sync(first, 2, {first: b"a", second: b"b"})
    assert phase(shell) is Phase.STABLE
    shell.wait(20_000)
    assert shell.heartbeat(first, 2) == E.REBALANCE_IN_PROGRESS
    assert shell.heartbeat(second, 2) == E.UNKNOWN_MEMBER_ID


@proves("T3")
def test_who_joins_and_vanishes_is_out_after_its_session() -> None:
    shell = Shell()
    shell.join(session_ms=10_000, rebalance_ms=60_000)
    shell.wait(9_999)
    assert phase(shell) is Phase.COMPLETING
    shell.wait(1)
    assert phase(shell) is Phase.EMPTY


@proves("T3")
def test_a_leader_that_never_assigns_does_not_hold_up_the_others() -> None:
    shell = Shell()
    [first] = shell.stable(1, rebalance_ms=20_000, session_ms=60_000)
    newcomer = shell.join(rebalance_ms=20_000, session_ms=60_000)
    shell.join(first, rebalance_ms=20_000, session_ms=60_000)
    second = shell.joined(newcomer).member_id
    waiting = shell.sync(second, 2)
    shell.wait(20_000)
    assert shell.synced(waiting).error_code == E.REBALANCE_IN_PROGRESS
    joined = shell.joined(shell.join(second, rebalance_ms=20_000))
    assert joined.leader == second


@proves("T3")
def test_a_newcomer_between_join_and_sync_begins_the_rebalance_again() -> None:
    shell = Shell()
    first, second = shell.stable(2)
    shell.join(second, protocols={"range": subscription("payments")})
    generation = shell.joined(shell.join(first)).generation_id
    waiting = shell.sync(second, generation)
    shell.join()
    assert phase(shell) is Phase.PREPARING
    assert shell.synced(waiting).error_code == E.REBALANCE_IN_PROGRESS
    assert shell.synced(shell.sync(first, generation, {})).error_code == E.REBALANCE_IN_PROGRESS


@proves("T3")
def test_a_follower_that_joins_again_unchanged_is_told_this_generation() -> None:
    shell = Shell()
    first, second = shell.stable(2)
    reply = shell.joined(shell.join(second))
    assert (reply.generation_id, reply.members, reply.leader) == (2, [], first)
    assert phase(shell) is Phase.STABLE
    assert shell.synced(shell.sync(second, 2)).assignment == second.encode()


@proves("T3")
def test_a_leader_that_joins_again_gets_a_rebalance() -> None:
    shell = Shell()
    first, second = shell.stable(2)
    shell.join(first)
    assert phase(shell) is Phase.PREPARING
    assert shell.heartbeat(second, 2) == E.REBALANCE_IN_PROGRESS


@proves("T3")
def test_a_lost_join_reply_is_given_again_while_the_group_completes() -> None:
    shell = Shell()
    first, second = shell.stable(2)
    shell.join(second, protocols={"range": subscription("payments")})
    generation = shell.joined(shell.join(first)).generation_id
    again = shell.joined(shell.join(first))
    assert again.generation_id == generation
    assert {one.member_id for one in again.members} == {first, second}


@proves("T3")
def test_an_older_request_of_a_member_that_asks_again_is_answered_too() -> None:
    shell = Shell()
    first, second = shell.stable(2)
    waiting = shell.join(first)
    later = shell.join(first)
    assert shell.joined(waiting).error_code == E.REBALANCE_IN_PROGRESS
    shell.join(second)
    assert shell.joined(later).error_code == 0
    generation = shell.joined(later).generation_id
    waiting = shell.sync(second, generation)
    later = shell.sync(second, generation)
    assert shell.synced(waiting).error_code == E.REBALANCE_IN_PROGRESS
    shell.sync(first, generation, {second: b"mine"})
    assert shell.synced(later).assignment == b"mine"


@proves("T3")
def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    shell = Shell()
    first, second = shell.stable(2)
    waiting = shell.join(second, protocols={"range": subscription("payments")})
    shell.leave((second, None))
    assert shell.joined(waiting).error_code == E.UNKNOWN_MEMBER_ID
    third = shell.join()
    generation = shell.joined(shell.join(first)).generation_id
    waiting = shell.sync(shell.joined(third).member_id, generation)
    shell.leave((shell.joined(third).member_id, None))
    assert shell.synced(waiting).error_code == E.UNKNOWN_MEMBER_ID


@proves("T3")
def test_the_first_rebalance_can_wait_for_more_members() -> None:
    shell = Shell(initial_rebalance_delay_ms=3_000)
    first = shell.join(rebalance_ms=10_000)
    shell.wait(2_000)
    second = shell.join(rebalance_ms=10_000)
    shell.wait(1_000)
    assert shell.unanswered() == [first, second], "a newcomer prolongs the delay"
    shell.wait(3_000)
    assert shell.joined(first).generation_id == shell.joined(second).generation_id == 1


@proves("T3")
def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout() -> None:
    shell = Shell(initial_rebalance_delay_ms=3_000)
    first = shell.join(rebalance_ms=10_000)
    for _ in range(20):
        shell.wait(500)
        shell.join(rebalance_ms=10_000)
    assert first in shell.replies


@proves("T3")
def test_version_0_uses_its_session_timeout_to_rebalance() -> None:
    shell = Shell()
    first, _ = shell.stable(2, version=0, rebalance_ms=-1, session_ms=30_000)
    waiting = shell.join(first, version=0, rebalance_ms=-1, session_ms=30_000)
    shell.wait(29_999)
    assert waiting in shell.unanswered()
    shell.wait(1)
    assert waiting in shell.replies


@proves("T3")
def test_a_new_member_that_is_parked_for_too_long_is_forgotten() -> None:
    shell = Shell()
    [first] = shell.stable(1, rebalance_ms=1_000_000, session_ms=1_000_000)
    waiting = shell.join()
    shell.wait(300_000)
    assert shell.joined(waiting).error_code == E.UNKNOWN_MEMBER_ID
    assert [one.member_id for one in shell.joined(shell.join(first)).members] == [first]


@proves("T3")
def test_a_full_group_takes_nobody_else() -> None:
    shell = Shell(max_members=2)
    first, second = shell.stable(2)
    assert shell.joined(shell.join()).error_code == E.GROUP_MAX_SIZE_REACHED
    assert phase(shell) is Phase.STABLE
    shell.join(first)
    assert shell.joined(shell.join(second)).error_code == 0


@proves("T3")
@pytest.mark.parametrize("members", [0, 1])
def test_no_more_ids_are_given_out_than_there_may_be_members(members: int) -> None:
    """Whatever the phase: who never comes again with its id would fill the broker's memory."""
    shell = Shell(max_members=3)
    if members:
        shell.stable(members)
    codes = [shell.joined(shell.join(version=4)).error_code for _ in range(5)]
    assert codes == [E.MEMBER_ID_REQUIRED] * 3 + [E.GROUP_MAX_SIZE_REACHED] * 2
    shell.wait(10_000)
    assert shell.joined(shell.join(version=4)).error_code == E.MEMBER_ID_REQUIRED


@proves("T3")
def test_when_the_maximum_was_lowered_who_rejoins_last_is_out() -> None:
    shell = Shell(max_members=2)
    first, second = shell.stable(2)
    shell.settings = type(shell.settings)(max_members=1)
    shell.state.live.settings = shell.settings
    waiting = shell.join(first)
    assert shell.joined(shell.join(second)).error_code == E.GROUP_MAX_SIZE_REACHED
    assert [one.member_id for one in shell.joined(waiting).members] == [first]


@proves("T3")
def test_there_are_only_so_many_groups() -> None:
    shell = Shell({"orders": 1}, max_groups=2)
    shell.stable(1, group="one")
    assert shell.commit_offsets({("orders", 0): 1}, group="two") == [0]
    assert shell.joined(shell.join(group="three")).error_code == E.POLICY_VIOLATION
    assert shell.commit_offsets({("orders", 0): 1}, group="three") == [E.POLICY_VIOLATION]
    refused = shell.enter("m", "orders", group="three")
    assert refused.error_code == E.POLICY_VIOLATION
    assert shell.joined(shell.join(group="two")).error_code == 0


@proves("T3", "T6")
def test_after_a_restart_members_go_on_in_the_same_generation() -> None:
    shell = Shell()
    first, second = shell.stable(2, session_ms=10_000)
    shell.restart()
    assert phase(shell) is Phase.STABLE
    assert shell.heartbeat(first, 2) == 0
    assert shell.synced(shell.sync(second, 2)).assignment == second.encode()
    shell.wait(9_999)
    assert shell.heartbeat(first, 2) == 0
    shell.wait(1)
    assert phase(shell) is Phase.PREPARING, "the second was not heard of since the restart"


@proves("T3", "T6")
def test_a_rebalance_that_a_restart_cut_off_begins_again() -> None:
    shell = Shell()
    first, second = shell.stable(2)
    shell.join()
    shell.join(first)
    shell.join(second)
    live = shell.state.live_group(GROUP)
    assert live is not None
    assert (live.phase, live.generation) == (Phase.COMPLETING, 3)
    shell.restart()
    assert shell.heartbeat(first, 3) == E.ILLEGAL_GENERATION
    assert shell.heartbeat(first, 2) == 0


@proves("T3")
def test_the_table_of_phases_is_closed() -> None:
    assert {before for before, _ in MOVES} | {Phase.DEAD} == set(Phase)
    assert set(MOVES.values()) == set(Phase)
    assert {event for _, event in MOVES} == set(GroupEvent)
