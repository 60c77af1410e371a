"""Who may read a topic by a queue is asked at every fetch, also of partitions that only the session names."""

from __future__ import annotations

import uuid

import pytest
from access import ADMIN, AUTHORIZER, PASSWORD
from raw import batch_of, produce

from proving import proves
from tidelog.broker.access.acls import ALLOW, DENY, GROUP, LITERAL, READ, TOPIC
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse
from tidelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

GROUP_RESOURCE = 32


def rule(client, resource: int, name: str, permission: int = ALLOW) -> None:
    creation = AclCreation(
        resource_type=resource, resource_name=name, resource_pattern_type=LITERAL, principal="User:alice", host="*",
        operation=READ, permission_type=permission,
    )  # fmt: skip
    (result,) = client.call(CreateAclsRequest(creations=[creation]), 3).results
    assert result.error_code == 0


class Member:
    def __init__(self, client, topic_id: bytes) -> None:
        self.client, self.topic_id, self.id = client, topic_id, uuid.uuid4().hex

    def join(self) -> int:
        request = ShareGroupHeartbeatRequest(
            group_id="g", member_id=self.id, member_epoch=0, subscribed_topic_names=["jobs"]
        )
        return self.client.call(request, 1).error_code

    def fetch(self, epoch: int, *, named: bool) -> ShareFetchResponse:
        topics = [FetchTopic(topic_id=self.topic_id, partitions=[FetchPartition(partition_index=0)])] if named else []
        request = ShareFetchRequest(
            group_id="g", member_id=self.id, share_session_epoch=epoch, max_wait_ms=0, min_bytes=1,
            max_bytes=1 << 20, max_records=1, batch_size=1, topics=topics,
        )  # fmt: skip
        return self.client.call(request, 1)


@pytest.fixture
def broker(access_broker):
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": f"User:{ADMIN}; User:ANONYMOUS"}
    return access_broker("PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0", **settings)


def given(response: ShareFetchResponse) -> list[int]:
    parts = [part for topic in response.responses for part in topic.partitions]
    return [one.first_offset for part in parts for one in part.acquired_records]


@proves("T4", "security")
def test_a_right_that_is_taken_away_counts_for_the_sessions_partitions(broker) -> None:
    with broker.client("PLAINTEXT") as admin, broker.client("SASL_PLAINTEXT") as alice:
        broker.add_user("alice", PASSWORD, by=admin)
        topic = CreatableTopic(name="jobs", num_partitions=1, replication_factor=1)
        topic_id = admin.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].topic_id
        reset = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="g", configs=[reset])
        admin.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        for _ in range(4):
            admin.call(produce("jobs", batch_of(b"x")), 9)
        alice.login("alice", PASSWORD)
        member = Member(alice, topic_id)
        assert member.join() == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert member.fetch(0, named=True).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        rule(admin, GROUP, "g")
        assert member.join() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        rule(admin, TOPIC, "jobs")
        assert member.join() == 0
        assert given(member.fetch(0, named=True)) == [0]
        assert given(member.fetch(1, named=False)) == [1]
        rule(admin, TOPIC, "jobs", DENY)
        ended = member.fetch(2, named=False)
        assert (ended.error_code, given(ended)) == (ErrorCode.SHARE_SESSION_NOT_FOUND, [])
        (refused,) = member.fetch(3, named=True).responses
        assert refused.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
