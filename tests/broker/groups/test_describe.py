"""What the broker tells about groups."""

from __future__ import annotations

import pytest

from broker.groups.shell import GROUP, Shell, topic_id
from proving import proves
from tidelog.broker.groups.describe import AUTHORIZED_OPERATIONS, describe_classic, describe_consumer, list_groups
from tidelog.wire.error_code import ErrorCode as E
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from tidelog.wire.messages.list_groups import ListGroupsRequest

NOT_ASKED = -0x80000000


def shell_with_groups() -> Shell:
    shell = Shell({"orders": 4})
    shell.stable(2, group="stable")
    shell.stable(1, group="preparing")
    shell.join(group="preparing")
    shell.join(group="completing")
    [left] = shell.stable(1, group="empty")
    shell.leave((left, None), group="empty")
    shell.commit_offsets({("orders", 0): 1}, group="simple")
    shell.enter("a", "orders", group="new")
    shell.enter("a", "orders", group="moving")
    shell.enter("b", "orders", group="moving")
    shell.enter("a", "orders", group="deserted")
    shell.beat("a", -1, group="deserted")
    return shell


@proves("T3")
def test_all_groups_are_listed_with_state_and_type() -> None:
    groups = list_groups(shell_with_groups().state, ListGroupsRequest()).groups
    assert [(one.group_id, one.group_state, one.group_type, one.protocol_type) for one in groups] == [
        ("completing", "CompletingRebalance", "classic", "consumer"),
        ("deserted", "Empty", "consumer", "consumer"),
        ("empty", "Empty", "classic", "consumer"),
        ("moving", "Reconciling", "consumer", "consumer"),
        ("new", "Stable", "consumer", "consumer"),
        ("preparing", "PreparingRebalance", "classic", "consumer"),
        ("simple", "Empty", "classic", ""),
        ("stable", "Stable", "classic", "consumer"),
    ]


@proves("T3")
@pytest.mark.parametrize(
    ("states", "kinds", "found"),
    [
        (["stable"], [], {"stable", "new"}),
        (["Stable", "EMPTY"], ["Classic"], {"stable", "empty", "simple"}),
        ([], ["consumer"], {"new", "moving", "deserted"}),
        (["nonsense"], [], set()),
        ([], ["share"], set()),
    ],
)
def test_groups_are_filtered_by_state_and_type(states: list[str], kinds: list[str], found: set[str]) -> None:
    request = ListGroupsRequest(states_filter=states, types_filter=kinds)
    assert {one.group_id for one in list_groups(shell_with_groups().state, request).groups} == found


def described(shell: Shell, group: str, version: int = 5) -> DescribedGroup:
    [one] = describe_classic(shell.state, DescribeGroupsRequest(groups=[group]), version).groups
    return one


@proves("T3")
def test_a_stable_group_is_described_with_what_its_members_said_and_got() -> None:
    shell = Shell()
    ids = shell.stable(2, client="app", protocols={"range": b"wants"})
    group = described(shell, GROUP)
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    assert group.authorized_operations == NOT_ASKED
    assert {one.member_id: one.member_assignment for one in group.members} == {one: one.encode() for one in ids}
    assert {(one.client_id, one.client_host, one.member_metadata) for one in group.members} == {
        ("app", "/127.0.0.1", b"wants")
    }


@proves("T3")
def test_a_group_that_is_not_stable_shows_no_assignments() -> None:
    shell = Shell()
    [first] = shell.stable(1)
    shell.join()
    group = described(shell, GROUP)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert len(group.members) == 2
    assert {one.member_assignment for one in group.members} == {b""}
    assert first in {one.member_id for one in group.members}


@proves("T3")
def test_a_group_that_is_not_there_is_dead_and_later_not_found() -> None:
    shell = Shell({"orders": 1})
    shell.enter("a", "orders", group="new")
    for name in ("nobody", "new"):
        assert (described(shell, name).group_state, described(shell, name).error_code) == ("Dead", 0)
        late = described(shell, name, 6)
        assert (late.group_state, late.error_code) == ("Dead", E.GROUP_ID_NOT_FOUND)
        assert late.error_message
    shell.commit_offsets({("orders", 0): 1}, group="simple")
    assert (described(shell, "simple", 6).group_state, described(shell, "simple", 6).error_code) == ("Empty", 0)


@proves("T3")
def test_a_consumer_group_is_described_with_what_members_have_and_shall_have() -> None:
    shell = Shell({"orders": 4})
    shell.enter("a", "orders", rack_id="r1", instance_id="one")
    shell.enter("b", subscribed_topic_regex="ord.*")
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP, "nobody", ""], include_authorized_operations=True)
    group, nobody, nameless = describe_consumer(shell.state, request).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 2, 2)
    assert group.assignor_name == "uniform"
    assert group.authorized_operations == AUTHORIZED_OPERATIONS
    a, b = group.members
    assert (a.member_id, a.instance_id, a.rack_id, a.member_epoch, a.member_type) == ("a", "one", "r1", 1, 1)
    assert (a.subscribed_topic_names, b.subscribed_topic_regex) == (["orders"], "ord.*")
    [has] = a.assignment.topic_partitions
    assert (has.topic_id, has.topic_name, has.partitions) == (topic_id(1), "orders", [0, 1, 2, 3])
    assert a.target_assignment.topic_partitions[0].partitions == [0, 1]
    assert b.assignment.topic_partitions == []
    assert (nobody.error_code, nameless.error_code) == (E.GROUP_ID_NOT_FOUND, E.INVALID_GROUP_ID)
    shell.set_topics()
    assert describe_consumer(shell.state, request).groups[0].members[0].assignment.topic_partitions == []
