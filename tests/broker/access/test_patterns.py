"""Subscriptions by pattern (KIP-848) give a member the topics that its user may know of, and no others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from access import ADMIN, AUTHORIZER, PASSWORD, AccessBroker, Client

from proving import proves
from tidelog.broker.access.acls import ALLOW, DESCRIBE, GROUP, LITERAL, PREFIXED, READ, TOPIC
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, RequestTopicPartitions
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest

WITHIN_S = 60


@pytest.fixture
def broker(access_broker: Callable[..., AccessBroker]) -> AccessBroker:
    made = access_broker(
        "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        **{"authorizer.class.name": AUTHORIZER, "super.users": f"User:{ADMIN};User:ANONYMOUS"},
    )
    with made.client("PLAINTEXT") as admin:
        made.add_user("alice", PASSWORD, by=admin)
        made.add_user("bob", PASSWORD, by=admin)
        for user in ("alice", "bob"):
            allow(admin, user, GROUP, LITERAL, "readers", READ)
            allow(admin, user, TOPIC, PREFIXED, "open-", DESCRIBE)
    return made


def allow(admin: Client, user: str, resource: int, pattern: int, name: str, operation: int) -> None:
    made = AclCreation(
        resource_type=resource, resource_name=name, resource_pattern_type=pattern, principal=f"User:{user}", host="*",
        operation=operation, permission_type=ALLOW,
    )  # fmt: skip
    assert [one.error_code for one in admin.call(CreateAclsRequest(creations=[made]), 3).results] == [0]


def take_back(admin: Client, user: str, name: str) -> None:
    gone = DeleteAclsFilter(
        resource_type_filter=TOPIC, pattern_type_filter=1, resource_name_filter=name, principal_filter=f"User:{user}",
        host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    assert len(admin.call(DeleteAclsRequest(filters=[gone]), 3).filter_results[0].matching_acls) == 1


def create(admin: Client, *names: str) -> dict[str, bytes]:
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
    return {one.name: one.topic_id for one in admin.call(CreateTopicsRequest(topics=topics), 7).topics}


class Member:
    """Heartbeats until it has what is expected, and gives back what it should."""

    def __init__(self, client: Client, name: str, pattern: str) -> None:
        self._client, self._name, self._epoch = client, name, 0
        self._owned: dict[bytes, list[int]] = {}
        self._beat(rebalance_timeout_ms=30_000, subscribed_topic_regex=pattern)

    def _beat(self, **fields: Any) -> None:
        owned = [RequestTopicPartitions(topic_id=one, partitions=places) for one, places in self._owned.items()]
        request = ConsumerGroupHeartbeatRequest(
            group_id="readers", member_id=self._name, member_epoch=self._epoch, topic_partitions=owned, **fields
        )
        answer = self._client.call(request, 1)
        assert answer.error_code == 0, answer
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._owned = {one.topic_id: one.partitions for one in answer.assignment.topic_partitions}

    def comes_to_have(self, *topics: bytes) -> None:
        deadline = time.monotonic() + WITHIN_S
        while set(self._owned) != set(topics):
            assert time.monotonic() < deadline, (self._owned, topics)
            self._beat()

    def stays(self, *topics: bytes) -> None:
        for _ in range(3):
            self._beat()
        assert set(self._owned) == set(topics)


@proves("T10", "hostile")
def test_a_pattern_gives_what_its_user_may_describe(broker: AccessBroker) -> None:
    with broker.client("PLAINTEXT") as admin, broker.client("SASL_PLAINTEXT") as client:
        ids = create(admin, "open-1", "secret-1")
        client.login("alice", PASSWORD)
        member = Member(client, "a", ".*")
        member.comes_to_have(ids["open-1"])
        ids |= create(admin, "secret-2", "open-2")
        member.comes_to_have(ids["open-1"], ids["open-2"])
        member.stays(ids["open-1"], ids["open-2"])
        allow(admin, "alice", TOPIC, LITERAL, "secret-1", DESCRIBE)
        member.comes_to_have(ids["open-1"], ids["open-2"], ids["secret-1"])
        take_back(admin, "alice", "secret-1")
        member.comes_to_have(ids["open-1"], ids["open-2"])


@proves("T10", "hostile")
def test_of_two_members_with_one_pattern_each_has_what_it_may_know_of(broker: AccessBroker) -> None:
    with (
        broker.client("PLAINTEXT") as admin,
        broker.client("SASL_PLAINTEXT") as first,
        broker.client("SASL_PLAINTEXT") as second,
    ):
        ids = create(admin, "open-1", "secret-1")
        allow(admin, "alice", TOPIC, LITERAL, "secret-1", DESCRIBE)
        first.login("alice", PASSWORD)
        second.login("bob", PASSWORD)
        alice = Member(first, "a", ".*")
        alice.comes_to_have(ids["open-1"], ids["secret-1"])
        bob = Member(second, "b", ".*")
        deadline = time.monotonic() + WITHIN_S
        while not bob._owned:
            assert time.monotonic() < deadline
            alice._beat()
            bob._beat()
        bob.stays(ids["open-1"])
        allow(admin, "bob", TOPIC, LITERAL, "secret-1", DESCRIBE)
        take_back(admin, "alice", "secret-1")
        while ids["secret-1"] in alice._owned or ids["secret-1"] not in bob._owned:
            assert time.monotonic() < deadline
            alice._beat()
            bob._beat()


@proves("T10", "T1")
def test_after_a_restart_a_pattern_gives_the_same(broker: AccessBroker) -> None:
    with broker.client("PLAINTEXT") as admin, broker.client("SASL_PLAINTEXT") as client:
        ids = create(admin, "open-1", "secret-1")
        client.login("alice", PASSWORD)
        member = Member(client, "a", ".*")
        member.comes_to_have(ids["open-1"])
    broker.stop()
    broker.start()
    with broker.client("PLAINTEXT") as admin, broker.client("SASL_PLAINTEXT") as client:
        ids |= create(admin, "secret-2", "open-2")  # before the member is heard of again
        client.login("alice", PASSWORD)
        member._client = client
        member.comes_to_have(ids["open-1"], ids["open-2"])
