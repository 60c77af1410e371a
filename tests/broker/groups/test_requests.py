"""Every request about groups in every version, against a real broker: what one version asks, another finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.groups.shell import subscription
from broker.topics.serving import LISTENER, Served, after_a_crash, serving, versions
from proving import proves
from tidelog.wire.error_code import ErrorCode as E
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.list_groups import ListGroupsRequest
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
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "readers"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data") as served:
        create_topic(served, "orders", 2)
        yield served


def create_topic(served: Served, name: str, partitions: int) -> None:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
    assert served.ask(CreateTopicsRequest(topics=topics), 7).topics[0].error_code == 0


def join(served: Served, version: int, member_id: str = "", instance: str | None = None) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("orders"))],
    )
    reply: JoinGroupResponse = served.ask(request, version)
    return reply


def member(served: Served, version: int = 9) -> str:
    """The one member of a stable group in generation 1."""
    reply = join(served, version)
    if reply.error_code == E.MEMBER_ID_REQUIRED:
        reply = join(served, version, reply.member_id)
    assert (reply.error_code, reply.generation_id, reply.protocol_name) == (0, 1, "range")
    assignments = [SyncGroupRequestAssignment(member_id=reply.member_id, assignment=b"all")]
    request = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=reply.member_id, assignments=assignments)
    assert served.ask(request, 3).assignment == b"all"
    return reply.member_id


@proves("T3")
@pytest.mark.parametrize("version", versions(11))
def test_a_member_joins_in_every_version(served: Served, version: int) -> None:
    reply = join(served, version)
    assert (reply.error_code == E.MEMBER_ID_REQUIRED) == (version >= 4)
    if version >= 4:
        reply = join(served, version, reply.member_id)
    assert (reply.error_code, reply.leader, len(reply.members)) == (0, reply.member_id, 1)
    assert reply.protocol_type == ("consumer" if version >= 7 else None)
    assert reply.members[0].metadata == subscription("orders")
    assert join(served, version, "stranger").error_code == E.UNKNOWN_MEMBER_ID


@proves("T3")
@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_leader_comes_back_in_every_version_that_has_them(served: Served, version: int) -> None:
    first = join(served, version, instance="one")
    sync = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=first.member_id, group_instance_id="one")
    served.ask(sync, 5)
    back = join(served, version, instance="one")
    assert (back.error_code, back.generation_id, back.skip_assignment) == (0, 1, version >= 9)
    assert (back.leader == back.member_id) == (version >= 9)


@proves("T3")
@pytest.mark.parametrize("version", versions(14))
def test_a_member_syncs_in_every_version(served: Served, version: int) -> None:
    member_id = member(served)
    request = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=member_id)
    reply = served.ask(request, version)
    assert (reply.error_code, reply.assignment) == (0, b"all")
    assert reply.protocol_name == ("range" if version >= 5 else None)
    request.generation_id = 7
    assert served.ask(request, version).error_code == E.ILLEGAL_GENERATION


@proves("T3")
@pytest.mark.parametrize("version", versions(12))
def test_a_member_sends_heartbeats_in_every_version(served: Served, version: int) -> None:
    member_id = member(served)
    request = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
    assert served.ask(request, version).error_code == 0
    request.member_id = "stranger"
    assert served.ask(request, version).error_code == E.UNKNOWN_MEMBER_ID


@proves("T3")
@pytest.mark.parametrize("version", versions(13))
def test_a_member_leaves_in_every_version(served: Served, version: int) -> None:
    member_id = member(served)
    request = LeaveGroupRequest(group_id=GROUP)
    if version < 3:
        request.member_id = member_id
    else:
        request.members = [MemberIdentity(member_id=member_id)]
    replies = [served.ask(request, version) for _ in range(2)]
    codes = [one.error_code if version < 3 else one.members[0].error_code for one in replies]
    assert codes == [0, E.UNKNOWN_MEMBER_ID]


def commit(served: Served, offset: int, version: int = 9, **who: object) -> int:
    by_id = served.broker.topics.by_name["orders"].topic_id if version >= 10 else bytes(16)
    partition = OffsetCommitRequestPartition(
        partition_index=1, committed_offset=offset, committed_metadata="half way", committed_leader_epoch=0
    )
    topic = OffsetCommitRequestTopic(name="orders" if version < 10 else "", topic_id=by_id, partitions=[partition])
    request = OffsetCommitRequest(group_id=GROUP, topics=[topic], **who)  # type: ignore[arg-type]
    reply = served.ask(request, version)
    assert (reply.topics[0].name, reply.topics[0].topic_id) == (topic.name, topic.topic_id)
    code: int = reply.topics[0].partitions[0].error_code
    return code


def fetch(served: Served, version: int, all_topics: bool = False) -> tuple[int, str | None, int]:
    by_id = served.broker.topics.by_name["orders"].topic_id if version >= 10 else bytes(16)
    if version < 8:
        topics = None if all_topics else [OffsetFetchRequestTopic(name="orders", partition_indexes=[1])]
        found = served.ask(OffsetFetchRequest(group_id=GROUP, topics=topics), version).topics
    else:
        name = "orders" if version < 10 else ""
        some = None if all_topics else [OffsetFetchRequestTopics(name=name, topic_id=by_id, partition_indexes=[1])]
        asked = [
            OffsetFetchRequestGroup(group_id=GROUP, topics=some),
            OffsetFetchRequestGroup(group_id="x", topics=some),
        ]
        first, second = served.ask(OffsetFetchRequest(groups=asked), version).groups
        assert (first.group_id, second.group_id, first.error_code) == (GROUP, "x", 0)
        found = first.topics
    [topic] = found
    assert topic.name == ("orders" if version < 10 else "")
    [one] = topic.partitions
    return one.committed_offset, one.metadata, one.committed_leader_epoch


@proves("T7")
@pytest.mark.parametrize("version", versions(8))
def test_offsets_are_committed_in_every_version(served: Served, version: int) -> None:
    assert commit(served, 40 + version, version) == 0
    assert fetch(served, 9) == (40 + version, "half way", 0 if version >= 6 else -1)
    assert commit(served, 1, version, generation_id_or_member_epoch=5, member_id="m") == E.UNKNOWN_MEMBER_ID


@proves("T7")
@pytest.mark.parametrize("version", versions(9))
def test_offsets_are_fetched_in_every_version(served: Served, version: int) -> None:
    assert fetch(served, version)[0] == -1
    commit(served, 42)
    found = (42, "half way", 0 if version >= 5 else -1)
    assert fetch(served, version) == found
    if version >= 2:
        assert fetch(served, version, all_topics=True) == found


@proves("T7")
@pytest.mark.parametrize("version", [10])
def test_topic_ids_that_nobody_has_are_refused(served: Served, version: int) -> None:
    asked = [OffsetFetchRequestTopics(topic_id=b"x" * 16, partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=asked)
    [found] = served.ask(OffsetFetchRequest(groups=[group]), version).groups[0].topics
    assert found.partitions[0].error_code == E.UNKNOWN_TOPIC_ID
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic(topic_id=b"x" * 16, partitions=[partition])]
    reply = served.ask(OffsetCommitRequest(group_id=GROUP, topics=topics), version)
    assert reply.topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_ID


@proves("T7")
@pytest.mark.parametrize("version", versions(47))
def test_offsets_are_deleted_in_every_version(served: Served, version: int) -> None:
    commit(served, 42)
    partitions = [OffsetDeleteRequestPartition(partition_index=1)]
    topics = [OffsetDeleteRequestTopic(name="orders", partitions=partitions)]
    reply = served.ask(OffsetDeleteRequest(group_id=GROUP, topics=topics), version)
    assert (reply.error_code, reply.topics[0].partitions[0].error_code) == (0, 0)
    assert served.ask(OffsetDeleteRequest(group_id=GROUP), version).error_code == E.GROUP_ID_NOT_FOUND


@proves("T7")
@pytest.mark.parametrize("version", versions(42))
def test_groups_are_deleted_in_every_version(served: Served, version: int) -> None:
    commit(served, 42)
    reply = served.ask(DeleteGroupsRequest(groups_names=[GROUP, "nobody"]), version)
    assert [(one.group_id, one.error_code) for one in reply.results] == [(GROUP, 0), ("nobody", E.GROUP_ID_NOT_FOUND)]
    assert fetch(served, 9)[0] == -1


@proves("T3")
@pytest.mark.parametrize("version", versions(16))
def test_groups_are_listed_in_every_version(served: Served, version: int) -> None:
    member(served)
    [one] = served.ask(ListGroupsRequest(), version).groups
    assert (one.group_id, one.protocol_type) == (GROUP, "consumer")
    assert one.group_state == ("Stable" if version >= 4 else "")
    assert one.group_type == ("classic" if version >= 5 else "")
    if version >= 4:
        assert served.ask(ListGroupsRequest(states_filter=["Empty"]), version).groups == []


@proves("T3")
@pytest.mark.parametrize("version", versions(15))
def test_groups_are_described_in_every_version(served: Served, version: int) -> None:
    member_id = member(served)
    request = DescribeGroupsRequest(groups=[GROUP, "nobody"], include_authorized_operations=version >= 3)
    group, nobody = served.ask(request, version).groups
    [one] = group.members
    assert (one.member_id, one.member_assignment, one.client_host) == (member_id, b"all", "/127.0.0.1")
    assert (group.authorized_operations > 0) == (version >= 3)
    assert nobody.group_state == "Dead"
    assert nobody.error_code == (E.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@proves("T3")
@pytest.mark.parametrize("version", versions(68))
def test_a_consumer_group_lives_in_every_version(served: Served, version: int) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="" if version == 0 else "mine",
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    reply = served.ask(request, version)
    assert (reply.error_code, reply.member_epoch) == (0, 1)
    [given] = reply.assignment.topic_partitions
    assert (given.topic_id, given.partitions) == (served.broker.topics.by_name["orders"].topic_id, [0, 1])
    stay = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=reply.member_id, member_epoch=1)
    assert served.ask(stay, version).assignment is None
    assert commit(served, 5, 9, generation_id_or_member_epoch=1, member_id=reply.member_id) == 0
    assert commit(served, 5, 9, generation_id_or_member_epoch=0, member_id=reply.member_id) == E.STALE_MEMBER_EPOCH
    stay.member_epoch = -1
    assert served.ask(stay, version).member_epoch == -1


@proves("T3")
def test_new_topics_and_partitions_reach_a_pattern_through_the_broker(served: Served) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="mine",
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex="ord.*",
        topic_partitions=[],
    )
    assert len(served.ask(request, 1).assignment.topic_partitions) == 1
    create_topic(served, "ordinary", 1)
    stay = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="mine", member_epoch=1)
    assert len(served.ask(stay, 1).assignment.topic_partitions) == 2
    served.ask(DeleteTopicsRequest(topic_names=["orders"]), 5)
    stay.member_epoch = 2
    [left] = served.ask(stay, 1).assignment.topic_partitions
    assert left.topic_id == served.broker.topics.by_name["ordinary"].topic_id


@proves("T3")
@pytest.mark.parametrize("version", versions(69))
def test_a_consumer_group_is_described_in_every_version(served: Served, version: int) -> None:
    test_a_consumer_group_lives_in_every_version(served, 1)
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP, "nobody"])
    group, nobody = served.ask(request, version).groups
    assert (group.group_state, group.group_epoch, nobody.error_code) == ("Empty", 2, E.GROUP_ID_NOT_FOUND)


@proves("T3")
@pytest.mark.parametrize("version", versions(10))
def test_the_coordinator_of_everything_is_this_node(served: Served, version: int) -> None:
    if version < 4:
        one = served.ask(FindCoordinatorRequest(key=GROUP), version)
        assert (one.node_id, one.host, one.port, one.error_code) == (1, *LISTENER, 0)
        wrong = FindCoordinatorRequest(key=GROUP, key_type=2 if version else 0)
        assert served.ask(wrong, version).error_code == (E.INVALID_REQUEST if version else 0)
        return
    for kind in (0, 1, 2, 9):
        request = FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=kind)
        found = served.ask(request, version).coordinators
        assert [one.key for one in found] == ["a", "b"]
        known = kind in (0, 1) or (kind == 2 and version >= 6)
        assert {one.error_code for one in found} == {0 if known else E.INVALID_REQUEST}
        assert {(one.node_id, one.host, one.port) for one in found} == {(1, *LISTENER) if known else (-1, "", -1)}


@proves("T3", "T6", "T7")
def test_groups_and_offsets_survive_a_crash(served: Served, tmp_path: Path) -> None:
    member_id = member(served)
    assert commit(served, 42, 9, generation_id_or_member_epoch=1, member_id=member_id) == 0
    with after_a_crash(served, tmp_path / "again") as again:
        assert fetch(again, 9)[0] == 42
        heartbeat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
        assert again.ask(heartbeat, 4).error_code == 0
