"""KIP-848 groups, scene by scene: joining, giving back before others take, epochs, static members, patterns, topics."""

from __future__ import annotations

from typing import Any

import pytest

from broker.groups.shell import GROUP, Shell, assigned, topic_id
from proving import proves
from tidelog.broker.groups.consumer_group import REVOKING, WAITING, Member
from tidelog.wire.error_code import ErrorCode as E

ORDERS = {(topic_id(1), index) for index in range(4)}


def member(shell: Shell, member_id: str) -> Member:
    return shell.state.consumer[GROUP].members[member_id]


def two_members(shell: Shell) -> tuple[set[tuple[bytes, int]], set[tuple[bytes, int]]]:
    """Members a and b, both settled at epoch 2, and what they have."""
    shell.enter("a", "orders")
    shell.enter("b", "orders")
    keeps = assigned(shell.beat("a", 1))
    assert assigned(shell.beat("a", 1, owned=keeps)) == keeps
    gets = assigned(shell.beat("b", 2))
    shell.beat("b", 2, owned=gets)
    assert shell.state.consumer[GROUP].state() == "Stable"
    return keeps, gets


@proves("T3")
def test_the_first_member_gets_everything_at_once() -> None:
    shell = Shell({"orders": 4})
    reply = shell.enter("a", "orders")
    assert (reply.error_code, reply.member_id, reply.member_epoch) == (0, "a", 1)
    assert reply.heartbeat_interval_ms == 5_000
    assert assigned(reply) == ORDERS
    assert shell.beat("a", 1).assignment is None, "nothing changed"
    shell.check_folds()


@proves("T3")
def test_partitions_move_only_when_they_were_given_back() -> None:
    shell = Shell({"orders": 4})
    shell.enter("a", "orders")
    waits = shell.enter("b", "orders")
    assert (waits.member_epoch, assigned(waits)) == (2, set())
    assert member(shell, "b").phase == WAITING
    asked = shell.beat("a", 1)
    assert asked.member_epoch == 1, "it stays in its epoch until it has given back"
    keeps = assigned(asked)
    assert len(keeps) == 2
    assert member(shell, "a").phase == REVOKING
    # It says nothing about what it owns, then that it still owns all.
    shell.beat("a", 1)
    shell.beat("a", 1, owned=ORDERS)
    assert shell.beat("b", 2).assignment is None
    moved = shell.beat("a", 1, owned=keeps)
    assert (moved.member_epoch, assigned(moved)) == (2, keeps)
    assert assigned(shell.beat("b", 2)) == ORDERS - keeps
    shell.check_folds()


@proves("T3")
def test_a_partition_that_comes_back_into_the_target_while_it_is_given_back_is_assigned_again() -> None:
    shell = Shell({"orders": 4})
    shell.enter("a", "orders")
    shell.enter("b", "orders")
    keeps = assigned(shell.beat("a", 1))
    shell.beat("b", -1)
    back = shell.beat("a", 1, owned=keeps)
    assert assigned(back) == ORDERS
    assert back.member_epoch == 3


@proves("T3")
def test_who_does_not_give_back_in_time_is_out() -> None:
    shell = Shell({"orders": 4})
    shell.enter("a", "orders", rebalance_timeout_ms=10_000)
    shell.enter("b", "orders")
    shell.beat("a", 1)
    shell.wait(9_999)
    shell.beat("a", 1)
    shell.wait(1)
    assert shell.beat("a", 1).error_code == E.UNKNOWN_MEMBER_ID
    assert assigned(shell.beat("b", 2)) == ORDERS


@proves("T3")
def test_who_falls_silent_is_out_and_the_others_get_its_part() -> None:
    shell = Shell({"orders": 4})
    two_members(shell)
    for _ in range(9):
        shell.wait(5_000)
        shell.beat("a", 2)
    assert set(shell.state.consumer[GROUP].members) == {"a"}
    reply = shell.beat("a", member(shell, "a").epoch, owned=set(), rebalance_timeout_ms=30_000)
    assert assigned(reply) == ORDERS


@proves("T3")
def test_who_leaves_is_gone_at_once() -> None:
    shell = Shell({"orders": 4})
    two_members(shell)
    left = shell.beat("b", -1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert assigned(shell.beat("a", 2)) == ORDERS
    assert shell.beat("b", 2).error_code == E.UNKNOWN_MEMBER_ID
    shell.beat("a", -1)
    group = shell.state.consumer[GROUP]
    assert (group.state(), group.since_ms) == ("Empty", shell.now.wall_ms)
    shell.check_folds()


@proves("T3")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": ""}, E.INVALID_REQUEST),
        ({"group": "g" * 1025}, E.INVALID_REQUEST),
        ({"member_id": ""}, E.INVALID_REQUEST),
        ({"instance_id": ""}, E.INVALID_REQUEST),
        ({"rack_id": ""}, E.INVALID_REQUEST),
        ({"epoch": -3}, E.INVALID_REQUEST),
        ({"epoch": -2}, E.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, E.INVALID_REQUEST),
        ({"owned": None}, E.INVALID_REQUEST),
        ({"owned": ORDERS}, E.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, E.INVALID_REQUEST),
        ({"server_assignor": "favourites"}, E.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, E.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": r"(a)\1"}, E.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "x" * 4097}, E.INVALID_REGULAR_EXPRESSION),
        ({"epoch": 7}, E.GROUP_ID_NOT_FOUND),
        ({"epoch": -1}, E.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_heartbeat_that_cannot_be_is_refused(fields: dict[str, Any], code: int) -> None:
    shell = Shell({"orders": 4})
    whole = {
        "member_id": "a",
        "epoch": 0,
        "owned": set(),
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["orders"],
    }
    reply = shell.beat(**{**whole, **fields})
    assert reply.error_code == code
    assert reply.error_message
    assert shell.state.ids() == set()


@proves("T3")
def test_in_version_0_the_broker_chooses_the_member_id() -> None:
    shell = Shell({"orders": 4})
    reply = shell.enter("", "orders", version=0)
    assert reply.error_code == 0
    assert reply.member_id
    assert shell.beat(reply.member_id, 1, version=0).error_code == 0


@proves("T3")
def test_a_member_epoch_that_is_not_the_present_one_is_fenced() -> None:
    shell = Shell({"orders": 4})
    two_members(shell)
    assert shell.beat("a", 3).error_code == E.FENCED_MEMBER_EPOCH
    assert shell.beat("a", 1).error_code == E.FENCED_MEMBER_EPOCH, "it does not say what it owns"
    assert shell.beat("a", 1, owned=ORDERS).error_code == E.FENCED_MEMBER_EPOCH, "it owns what it gave back"
    assert shell.beat("stranger", 1).error_code == E.UNKNOWN_MEMBER_ID


@proves("T3")
def test_after_a_lost_reply_the_epoch_before_is_accepted_and_the_assignment_told_again() -> None:
    shell = Shell({"orders": 4})
    keeps, _ = two_members(shell)
    again = shell.beat("a", 1, owned=keeps)
    assert (again.error_code, again.member_epoch, assigned(again)) == (0, 2, keeps)


@proves("T3")
def test_a_fenced_member_may_join_again_under_its_id_and_owns_nothing_until_told() -> None:
    shell = Shell({"orders": 4})
    keeps, gets = two_members(shell)
    reply = shell.enter("a", "orders")
    assert (reply.error_code, reply.member_epoch, assigned(reply)) == (0, 2, keeps)
    assert shell.beat("b", 2).assignment is None
    # While it was to give back: those it had to give back are free, for it says that it owns none.
    shell.enter("c", "orders")
    shell.beat("b", 2)
    assert member(shell, "b").phase == REVOKING
    back = shell.enter("b", "orders")
    assert assigned(back) < gets
    assert assigned(shell.beat("c", 3)) == gets - assigned(back)


@proves("T3")
def test_a_changed_subscription_is_a_new_epoch() -> None:
    shell = Shell({"orders": 4, "payments": 2})
    shell.enter("a", "orders")
    reply = shell.beat("a", 1, subscribed_topic_names=["payments"])
    assert reply.member_epoch == 1, "orders are to be given back first"
    assert assigned(reply) == set()
    reply = shell.beat("a", 1, owned=set())
    assert (reply.member_epoch, assigned(reply)) == (2, {(topic_id(2), 0), (topic_id(2), 1)})


@proves("T3")
def test_the_assignor_that_most_ask_for_is_used() -> None:
    shell = Shell({"one": 2, "two": 2})
    shell.enter("a", "one", "two", server_assignor="range")
    shell.enter("b", "one", "two", server_assignor="range")
    shell.enter("c", "one", "two", server_assignor="uniform")
    targets = {one.member_id: one.target for one in shell.state.consumer[GROUP].members.values()}
    assert targets["a"] == {(topic_id(1), 0), (topic_id(2), 0)}, "the same partition of both, as range does"
    assert targets["c"] == frozenset()


@proves("T3")
def test_a_full_group_takes_nobody_else_but_its_own() -> None:
    shell = Shell({"orders": 4}, consumer_max_members=2)
    shell.enter("a", "orders", instance_id="one")
    shell.enter("b", "orders")
    assert shell.enter("c", "orders").error_code == E.GROUP_MAX_SIZE_REACHED
    assert shell.enter("b", "orders").error_code == 0
    shell.beat("a", -2, instance_id="one")
    assert shell.enter("d", "orders", instance_id="one").error_code == 0


# Static members ---------------------------------------------------------------------------------------------------


@proves("T3")
def test_a_static_member_that_is_away_keeps_its_partitions_for_whoever_comes_back_in_its_name() -> None:
    shell = Shell({"orders": 4})
    shell.enter("a", "orders", instance_id="one")
    shell.enter("b", "orders", instance_id="two")
    keeps = assigned(shell.beat("a", 1, instance_id="one"))
    shell.beat("a", 1, instance_id="one", owned=keeps)
    gets = assigned(shell.beat("b", 2, instance_id="two"))
    away = shell.beat("a", -2, instance_id="one")
    assert (away.error_code, away.member_epoch) == (0, -2)
    assert shell.beat("b", 2, instance_id="two").assignment is None
    back = shell.enter("a2", "orders", instance_id="one")
    assert (back.error_code, back.member_epoch, assigned(back)) == (0, 2, keeps)
    assert shell.state.consumer[GROUP].epoch == 2, "nobody else had to move"
    assert shell.beat("a", 2, instance_id="one").error_code == E.FENCED_INSTANCE_ID
    assert shell.beat("b", 2, instance_id="two", owned=gets).error_code == 0
    shell.check_folds()


@proves("T3")
def test_a_static_member_that_stays_away_is_out_when_its_session_ends() -> None:
    shell = Shell({"orders": 4})
    shell.enter("a", "orders", instance_id="one")
    shell.beat("a", -2, instance_id="one")
    shell.wait(45_000)
    assert shell.state.consumer[GROUP].members == {}


@proves("T3")
def test_an_instance_id_in_use_cannot_be_taken() -> None:
    shell = Shell({"orders": 4})
    shell.enter("a", "orders", instance_id="one")
    assert shell.enter("b", "orders", instance_id="one").error_code == E.UNRELEASED_INSTANCE_ID
    assert shell.beat("b", 1, instance_id="one").error_code == E.FENCED_INSTANCE_ID
    assert shell.beat("b", -1, instance_id="one").error_code == E.FENCED_INSTANCE_ID
    assert shell.beat("b", 1, instance_id="two").error_code == E.UNKNOWN_MEMBER_ID
    assert shell.beat("b", -1, instance_id="two").error_code == E.UNKNOWN_MEMBER_ID
    assert shell.enter("a", "orders", instance_id="one").error_code == 0, "its own process may join anew"
    assert shell.beat("a", -1, instance_id="one").error_code == 0
    assert shell.enter("b", "orders", instance_id="one").error_code == 0


# Topics and patterns ----------------------------------------------------------------------------------------------


@proves("T3")
def test_a_topic_that_comes_later_is_picked_up_by_name() -> None:
    shell = Shell()
    assert assigned(shell.enter("a", "orders")) == set()
    shell.set_topics(orders=2, other=1)
    reply = shell.beat("a", 1)
    assert reply.member_epoch == 2
    assert {index for _, index in assigned(reply)} == {0, 1}


@proves("T3")
def test_new_partitions_are_picked_up() -> None:
    shell = Shell({"orders": 1})
    shell.enter("a", "orders")
    shell.set_topics(orders=3)
    assert {index for _, index in assigned(shell.beat("a", 1))} == {0, 1, 2}


@proves("T3")
def test_a_topic_that_nobody_reads_moves_nobody() -> None:
    shell = Shell({"orders": 1})
    shell.enter("a", "orders")
    shell.enter("p", subscribed_topic_regex="orders-.*", group="by pattern")
    before = len(shell.log)
    shell.set_topics(orders=1, payments=1)
    assert len(shell.log) == before


@proves("T3")
def test_a_deleted_topic_is_given_back_and_one_made_anew_is_another() -> None:
    shell = Shell({"orders": 1, "payments": 1})
    shell.enter("a", "orders", "payments")
    shell.set_topics(payments=1)
    asked = shell.beat("a", 1)
    assert assigned(asked) == {(topic_id(2), 0)}
    shell.beat("a", 1, owned=assigned(asked))
    shell.set_topics(payments=1, orders=1)
    fresh = assigned(shell.beat("a", 2)) - {(topic_id(2), 0)}
    assert fresh
    assert (topic_id(1), 0) not in fresh


@proves("T3")
def test_a_pattern_matches_whole_names_and_topics_to_come() -> None:
    shell = Shell({"orders-eu": 1, "orders-us": 1, "old-orders-eu": 1, "__tidelog.groups": 1})
    reply = shell.enter("a", subscribed_topic_regex="orders-.*|__tidelog.*")
    assert assigned(reply) == {(topic_id(1), 0), (topic_id(2), 0)}
    shell.set_topics(**{"orders-eu": 1, "orders-us": 1, "old-orders-eu": 1, "orders-asia": 1, "__tidelog.groups": 1})
    assert len(assigned(shell.beat("a", 1))) == 3
    shell.set_topics(**{"orders-eu": 1})
    assert assigned(shell.beat("a", 2)) == {(topic_id(1), 0)}


@proves("T3")
def test_names_and_a_pattern_add_up_and_the_empty_pattern_ends_it() -> None:
    shell = Shell({"orders": 1, "payments": 1})
    reply = shell.enter("a", "orders", subscribed_topic_regex="pay.*")
    assert len(assigned(reply)) == 2
    less = shell.beat("a", 1, subscribed_topic_regex="")
    assert assigned(less) == {(topic_id(1), 0)}


@proves("T3")
def test_what_happened_to_topics_while_the_broker_was_down_is_noticed() -> None:
    shell = Shell({"orders": 1})
    shell.enter("a", "orders")
    before = len(shell.log)
    shell.restart()
    assert len(shell.log) == before, "nothing changed, nothing is written"
    shell.topics = {"orders": shell.topics["orders"]._replace(partitions=2)}
    shell.restart()
    assert len(assigned(shell.beat("a", 1))) == 2


# Restarts, and the two protocols under one name -------------------------------------------------------------------


@proves("T3", "T6")
def test_after_a_restart_everybody_has_what_they_had_and_a_session_to_be_heard_of() -> None:
    shell = Shell({"orders": 4})
    keeps, _ = two_members(shell)
    shell.restart()
    assert shell.beat("a", 2, owned=keeps).error_code == 0
    assert shell.beat("a", 2).assignment is None
    shell.wait(44_999)
    assert shell.beat("a", 2).error_code == 0
    shell.wait(1)
    assert set(shell.state.consumer[GROUP].members) == {"a"}


@proves("T3", "T6")
def test_after_a_restart_the_time_to_give_back_begins_again() -> None:
    shell = Shell({"orders": 4})
    shell.enter("a", "orders", rebalance_timeout_ms=10_000)
    shell.enter("b", "orders")
    shell.beat("a", 1)
    shell.restart()
    shell.wait(10_000)
    assert set(shell.state.consumer[GROUP].members) == {"b"}


@proves("T3")
def test_an_emptied_classic_group_becomes_a_consumer_group_and_back() -> None:
    shell = Shell({"orders": 1})
    [classic] = shell.stable(1)
    assert shell.commit_offsets({("orders", 0): 7}, member_id=classic, generation=1) == [0]
    shell.leave((classic, None))
    reply = shell.enter("a", "orders")
    assert (reply.error_code, reply.member_epoch) == (0, 3), "the generation goes on as the epoch"
    assert GROUP not in shell.state.classic
    assert shell.committed("orders") == 7
    shell.check_folds()
    assert shell.joined(shell.join("a")).error_code == E.UNKNOWN_MEMBER_ID
    assert shell.heartbeat("a", 3) == E.UNKNOWN_MEMBER_ID
    assert shell.synced(shell.sync("a", 3)).error_code == E.UNKNOWN_MEMBER_ID
    assert shell.leave(("a", None)).members[0].error_code == E.UNKNOWN_MEMBER_ID
    shell.beat("a", -1)
    joined = shell.joined(shell.join())
    assert (joined.error_code, joined.generation_id) == (0, 5)
    assert GROUP not in shell.state.consumer
    shell.sync(joined.member_id, 5, {})
    shell.check_folds()


@proves("T3")
def test_a_group_may_have_its_own_session_timeout_and_heartbeat_interval() -> None:
    shell = Shell({"orders": 1})
    own = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}
    shell.state.live.overrides = lambda group_id: own if group_id == GROUP else {}
    assert shell.enter("a", "orders").heartbeat_interval_ms == 7_000
    assert shell.enter("b", "orders", group="other").heartbeat_interval_ms == 5_000
    shell.wait(49_999)
    assert set(shell.state.consumer[GROUP].members) == {"a"}
    assert shell.state.consumer["other"].members == {}
    shell.wait(1)
    assert shell.state.consumer[GROUP].members == {}
