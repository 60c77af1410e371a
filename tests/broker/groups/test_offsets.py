"""Committed offsets: who may commit, what comes back, and how long it is kept."""

from __future__ import annotations

from typing import Any

import pytest

from broker.groups.shell import GROUP, Shell, Topic, subscription, topic_id
from proving import proves
from tidelog.broker.groups.commits import decide_commit, decide_fetch, decide_offset_delete
from tidelog.broker.groups.removal import decide_delete_groups
from tidelog.wire.error_code import ErrorCode as E
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)

DAY_MS = 86_400_000
HERE = ("orders", 0)


def fetch(shell: Shell, version: int = 9, **group: Any) -> OffsetFetchResponseGroup:
    ticket = shell.ticket("fetch")
    asked = OffsetFetchRequestGroup(group_id=group.pop("group_id", GROUP), **group)
    shell.commit(decide_fetch(shell.state, OffsetFetchRequest(groups=[asked]), version, ticket))
    [answer] = shell.replies[ticket].groups
    assert isinstance(answer, OffsetFetchResponseGroup)
    return answer


def delete_offset(shell: Shell, *places: tuple[str, int]) -> Any:
    ticket = shell.ticket("delete")
    topics = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
        for name, index in places
    ]
    shell.commit(decide_offset_delete(shell.state, OffsetDeleteRequest(group_id=GROUP, topics=topics), ticket))
    return shell.replies[ticket]


def delete_groups(shell: Shell, *names: str) -> list[int]:
    ticket = shell.ticket("delete")
    shell.commit(decide_delete_groups(shell.state, DeleteGroupsRequest(groups_names=list(names)), ticket))
    return [one.error_code for one in shell.replies[ticket].results]


# Who may commit ---------------------------------------------------------------------------------------------------


@proves("T7")
def test_a_consumer_that_is_no_member_commits_without_a_generation() -> None:
    shell = Shell({"orders": 1})
    assert shell.committed("orders") == -1
    assert shell.commit_offsets({HERE: 5}) == [0]
    assert shell.committed("orders") == 5
    assert shell.commit_offsets({HERE: 6}) == [0]
    assert shell.committed("orders") == 6
    shell.check_folds()


@proves("T7")
@pytest.mark.parametrize(
    ("who", "code"),
    [
        ({"generation": 1, "member_id": "it"}, 0),
        ({"generation": 0, "member_id": "it"}, E.ILLEGAL_GENERATION),
        ({"generation": 2, "member_id": "it"}, E.ILLEGAL_GENERATION),
        ({"generation": 1, "member_id": "stranger"}, E.UNKNOWN_MEMBER_ID),
        ({"generation": -1, "member_id": ""}, E.UNKNOWN_MEMBER_ID),
        ({"generation": -1, "member_id": "it"}, E.ILLEGAL_GENERATION),
        ({"generation": 1, "member_id": "it", "instance": "unknown"}, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_classic_group_takes_commits_of_its_members_in_this_generation(who: dict[str, Any], code: int) -> None:
    shell = Shell({"orders": 1})
    [member] = shell.stable(1)
    identity = {**who, "member_id": member if who["member_id"] == "it" else who["member_id"]}
    assert shell.commit_offsets({HERE: 5}, **identity) == [code]
    assert shell.committed("orders") == (5 if code == 0 else -1)


@proves("T7")
def test_commits_during_a_rebalance_are_taken_until_the_next_generation() -> None:
    shell = Shell({"orders": 1})
    [first] = shell.stable(1)
    newcomer = shell.join()
    assert shell.commit_offsets({HERE: 5}, member_id=first, generation=1) == [0]
    shell.join(first)
    second = shell.joined(newcomer).member_id
    assert shell.commit_offsets({HERE: 6}, member_id=first, generation=1) == [E.ILLEGAL_GENERATION]
    assert shell.commit_offsets({HERE: 6}, member_id=second, generation=2) == [E.REBALANCE_IN_PROGRESS]
    assert shell.committed("orders") == 5


@proves("T7")
@pytest.mark.parametrize(("version", "code"), [(8, E.ILLEGAL_GENERATION), (9, E.GROUP_ID_NOT_FOUND)])
def test_a_generation_of_a_group_that_is_not_there_is_refused(version: int, code: int) -> None:
    shell = Shell({"orders": 1})
    assert shell.commit_offsets({HERE: 5}, member_id="m", generation=1, version=version) == [code]


@proves("T7")
def test_a_consumer_group_takes_commits_of_its_members_at_their_epoch() -> None:
    shell = Shell({"orders": 1})
    shell.enter("a", "orders")
    assert shell.commit_offsets({HERE: 5}, member_id="a", generation=1) == [0]
    assert shell.commit_offsets({HERE: 6}, member_id="a", generation=0) == [E.STALE_MEMBER_EPOCH]
    assert shell.commit_offsets({HERE: 6}, member_id="a", generation=2) == [E.STALE_MEMBER_EPOCH]
    assert shell.commit_offsets({HERE: 6}, member_id="b", generation=1) == [E.UNKNOWN_MEMBER_ID]
    assert shell.commit_offsets({HERE: 6}) == [E.UNKNOWN_MEMBER_ID]
    assert shell.commit_offsets({HERE: 6}, member_id="a", generation=1, version=8) == [E.UNSUPPORTED_VERSION]
    assert shell.committed("orders") == 5
    shell.beat("a", -1)
    assert shell.commit_offsets({HERE: 9}) == [0], "the group is empty, as for a reset"


@proves("T7")
def test_partitions_that_are_not_there_and_metadata_that_are_too_long_are_refused_one_by_one() -> None:
    shell = Shell({"orders": 2}, offset_metadata_max_bytes=4)
    places = {("orders", 1): 1, ("orders", 2): 1, ("orders", -1): 1, ("nothing", 0): 1}
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert shell.commit_offsets(places, metadata="1234") == [0, unknown, unknown, unknown]
    assert shell.commit_offsets({HERE: 1}, metadata="12345") == [E.OFFSET_METADATA_TOO_LARGE]
    assert shell.commit_offsets({HERE: 1}, group="g" * 1025) == [E.INVALID_GROUP_ID]


@proves("T7")
def test_version_10_names_topics_by_id() -> None:
    shell = Shell({"orders": 1})
    ticket = shell.ticket("commit")
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata=None)]
    topics = [
        OffsetCommitRequestTopic(name="orders", topic_id=topic_id(1), partitions=partitions),
        OffsetCommitRequestTopic(name="", topic_id=topic_id(9), partitions=partitions),
    ]
    request = OffsetCommitRequest(group_id=GROUP, topics=topics)
    shell.commit(decide_commit(shell.state, request, 10, ticket, shell.now))
    answers = shell.replies[ticket].topics
    assert [(one.topic_id, one.partitions[0].error_code) for one in answers] == [
        (topic_id(1), 0),
        (topic_id(9), E.UNKNOWN_TOPIC_ID),
    ]
    asked = [
        OffsetFetchRequestTopics(name="orders", topic_id=topic_id(1), partition_indexes=[0]),
        OffsetFetchRequestTopics(name="", topic_id=topic_id(9), partition_indexes=[0]),
    ]
    found = fetch(shell, 10, topics=asked)
    assert [
        (one.topic_id, one.partitions[0].committed_offset, one.partitions[0].error_code) for one in found.topics
    ] == [
        (topic_id(1), 5, 0),
        (topic_id(9), -1, E.UNKNOWN_TOPIC_ID),
    ]
    assert [one.topic_id for one in fetch(shell, 10, topics=None).topics] == [topic_id(1)]


# What comes back --------------------------------------------------------------------------------------------------


@proves("T7")
@pytest.mark.parametrize(("metadata", "back"), [("half way", "half way"), ("", ""), (None, ""), ("größer", "größer")])
def test_metadata_and_leader_epoch_come_back(metadata: str | None, back: str) -> None:
    shell = Shell({"orders": 1})
    shell.commit_offsets({HERE: 5}, metadata=metadata)
    shell.restart()
    [topic] = fetch(shell, topics=None).topics
    [one] = topic.partitions
    assert (topic.name, one.committed_offset, one.committed_leader_epoch, one.metadata) == ("orders", 5, 3, back)


@proves("T7")
def test_all_offsets_of_a_group_are_given_when_none_are_named() -> None:
    shell = Shell({"orders": 2, "payments": 1})
    shell.commit_offsets({("orders", 1): 5, ("payments", 0): 6, ("orders", 0): 7})
    shell.commit_offsets({("orders", 0): 1}, group="others")
    found = {
        (topic.name, one.partition_index): one.committed_offset
        for topic in fetch(shell, topics=None).topics
        for one in topic.partitions
    }
    assert found == {("orders", 0): 7, ("orders", 1): 5, ("payments", 0): 6}
    assert fetch(shell, topics=None, group_id="nobody").topics == []
    assert fetch(shell, topics=[]).topics == []


@proves("T7")
def test_members_of_a_consumer_group_fetch_at_their_epoch() -> None:
    shell = Shell({"orders": 1})
    shell.enter("a", "orders")
    assert fetch(shell, topics=None, member_id="a", member_epoch=1).error_code == 0
    assert fetch(shell, topics=None, member_id="a", member_epoch=0).error_code == E.STALE_MEMBER_EPOCH
    assert fetch(shell, topics=None, member_id="b", member_epoch=1).error_code == E.UNKNOWN_MEMBER_ID
    assert fetch(shell, topics=None).error_code == 0, "an administrator says neither"


# How offsets and groups go ----------------------------------------------------------------------------------------


@proves("T7")
def test_offsets_of_a_topic_that_somebody_reads_cannot_be_deleted() -> None:
    shell = Shell({"orders": 1, "payments": 1})
    assert delete_offset(shell, HERE).error_code == E.GROUP_ID_NOT_FOUND
    [member] = shell.stable(1)
    shell.commit_offsets({HERE: 5, ("payments", 0): 6}, member_id=member, generation=1)
    reply = delete_offset(shell, HERE, ("payments", 0), ("nothing", 0))
    codes = [one.error_code for topic in reply.topics for one in topic.partitions]
    assert codes == [E.GROUP_SUBSCRIBED_TO_TOPIC, 0, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert (shell.committed("orders"), shell.committed("payments")) == (5, -1)
    shell.leave((member, None))
    assert delete_offset(shell, HERE).topics[0].partitions[0].error_code == 0
    assert shell.committed("orders") == -1


@proves("T7")
@pytest.mark.parametrize(
    ("join", "answer"),
    [
        ({"protocols": {"range": b"no subscription"}}, E.GROUP_SUBSCRIBED_TO_TOPIC),
        ({"protocols": {"range": b""}}, E.GROUP_SUBSCRIBED_TO_TOPIC),
        ({"protocols": {"range": subscription("payments", version=3)}}, E.NONE),
        ({"protocols": {"sessioned": b""}, "protocol_type": "connect"}, E.NON_EMPTY_GROUP),
    ],
)
def test_what_a_member_reads_is_seen_in_its_subscription_and_feared_where_it_is_not(
    join: dict[str, Any], answer: int
) -> None:
    shell = Shell({"orders": 1})
    shell.commit_offsets({HERE: 5})
    shell.stable(1, **join)
    reply = delete_offset(shell, HERE)
    assert (reply.error_code or reply.topics[0].partitions[0].error_code) == answer


@proves("T7")
def test_offsets_under_a_pattern_cannot_be_deleted() -> None:
    shell = Shell({"orders": 1, "payments": 1})
    shell.enter("a", subscribed_topic_regex="ord.*")
    shell.commit_offsets({HERE: 5, ("payments", 0): 6}, member_id="a", generation=1)
    reply = delete_offset(shell, HERE, ("payments", 0))
    assert [topic.partitions[0].error_code for topic in reply.topics] == [E.GROUP_SUBSCRIBED_TO_TOPIC, 0]


@proves("T7")
def test_offsets_of_a_topic_that_went_before_a_crash_do_not_outlive_it() -> None:
    """The topic's end was written and that of its offsets was not; a topic of the same name begins at 0."""
    shell = Shell({"orders": 1, "payments": 1})
    shell.commit_offsets({HERE: 5, ("payments", 0): 6}, group="simple")
    del shell.topics["orders"]
    shell.restart()
    shell.topics["orders"] = Topic(topic_id(7), 1)
    shell.restart()
    assert (shell.committed("orders", group="simple"), shell.committed("payments", group="simple")) == (-1, 6)
    shell.check_folds()


@proves("T7")
def test_only_groups_without_members_are_deleted() -> None:
    shell = Shell({"orders": 1})
    [member] = shell.stable(1, group="classic")
    shell.enter("a", "orders", group="consumer")
    shell.commit_offsets({HERE: 5}, group="simple")
    assert delete_groups(shell, "classic", "consumer", "simple", "nobody", "simple") == [
        E.NON_EMPTY_GROUP,
        E.NON_EMPTY_GROUP,
        0,
        E.GROUP_ID_NOT_FOUND,
    ]
    shell.leave((member, None), group="classic")
    shell.beat("a", -1, group="consumer")
    assert delete_groups(shell, "classic", "consumer") == [0, 0]
    assert shell.state.ids() == set()
    shell.check_folds()
    assert shell.joined(shell.join(group="classic")).generation_id == 1


@proves("T7")
def test_a_group_that_waits_for_somebody_to_come_again_can_be_deleted() -> None:
    shell = Shell()
    told = shell.joined(shell.join(version=4))
    assert delete_groups(shell, GROUP) == [0]
    assert shell.joined(shell.join(told.member_id, version=4)).error_code == E.UNKNOWN_MEMBER_ID
    shell.wait(60_000)


@proves("T7")
def test_a_deleted_topic_takes_its_offsets_with_it() -> None:
    shell = Shell({"orders": 2, "payments": 1})
    shell.commit_offsets({("orders", 0): 5, ("orders", 1): 6, ("payments", 0): 7})
    shell.set_topics(payments=1)
    shell.set_topics(payments=1, orders=2)
    assert [shell.committed("orders", 0), shell.committed("orders", 1), shell.committed("payments")] == [-1, -1, 7]
    shell.check_folds()


@proves("T7", "T8")
def test_offsets_of_a_simple_group_expire_after_their_commit() -> None:
    shell = Shell({"orders": 2}, offsets_retention_minutes=24 * 60)
    shell.commit_offsets({("orders", 0): 5})
    shell.wait(DAY_MS // 2)
    shell.commit_offsets({("orders", 1): 6})
    shell.wait(DAY_MS // 2 + 600_000)
    assert (shell.committed("orders", 0), shell.committed("orders", 1)) == (-1, 6)
    shell.wait(DAY_MS)
    assert shell.state.ids() == set(), "the group goes with its last offset"


@proves("T7", "T8")
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_offsets_that_somebody_reads_never_expire_and_their_time_begins_when_the_group_is_empty(kind: str) -> None:
    shell = Shell({"orders": 1, "payments": 1}, offsets_retention_minutes=60)
    if kind == "classic":
        [member] = shell.stable(1, session_ms=1_800_000)
        shell.commit_offsets({HERE: 5, ("payments", 0): 6}, member_id=member, generation=1)
    else:
        member = "a"
        shell.enter("a", "orders")
        shell.commit_offsets({HERE: 5, ("payments", 0): 6}, member_id="a", generation=1)
    for _ in range(3 * 60 * 2):
        shell.wait(30_000)
        shell.heartbeat(member, 1) if kind == "classic" else shell.beat(member, 1)
    assert shell.committed("orders") == 5
    assert shell.committed("payments") == -1, "nobody reads it"
    shell.leave((member, None)) if kind == "classic" else shell.beat(member, -1)
    shell.wait(3_600_000 - 600_000)
    assert shell.committed("orders") == 5
    shell.wait(1_200_000)
    assert shell.state.ids() == set()


@proves("T7", "T8")
def test_offsets_of_a_group_that_is_not_of_consumers_stay_while_it_has_members() -> None:
    shell = Shell({"orders": 1}, offsets_retention_minutes=1)
    shell.commit_offsets({HERE: 5})
    [member] = shell.stable(1, protocol_type="connect", protocols={"sessioned": b""}, session_ms=1_800_000)
    for _ in range(3):
        shell.wait(600_000)
        assert shell.heartbeat(member, 1) == 0
    assert shell.committed("orders") == 5


@proves("T7", "T8")
def test_a_commit_of_an_old_client_may_carry_its_own_retention() -> None:
    shell = Shell({"orders": 1})
    shell.commit_offsets({HERE: 5}, retention_ms=60_000, version=4)
    shell.restart()
    shell.wait(600_000)
    assert shell.committed("orders") == -1


@proves("T7", "T8")
def test_an_empty_group_without_offsets_goes_after_a_while() -> None:
    shell = Shell()
    [member] = shell.stable(1)
    shell.wait(1)
    shell.leave((member, None))
    shell.wait(600_000)
    assert GROUP in shell.state.ids()
    shell.wait(600_000)
    assert shell.state.ids() == set()
    shell.check_folds()
