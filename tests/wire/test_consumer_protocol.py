"""Subscriptions and assignments are what Kafka's consumers understand."""

from __future__ import annotations

from importlib import import_module

import pytest

from proving import proves
from tidelog.errors import MalformedMessage
from tidelog.wire.consumer_protocol import from_bytes, to_bytes
from tidelog.wire.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
)


@proves("T3")
def test_a_subscription_has_the_bytes_of_the_protocol() -> None:
    subscription = ConsumerProtocolSubscription(topics=["t"])
    assert to_bytes(subscription, 0).hex() == "000000000001000174ffffffff"
    assert from_bytes(ConsumerProtocolSubscription, to_bytes(subscription, 0)) == subscription


@proves("T3")
@pytest.mark.parametrize("version", range(4))
def test_subscriptions_and_assignments_come_back(version: int) -> None:
    owned = [SubscriptionTopicPartition(topic="t", partitions=[1, 2])] if version else []
    subscription = ConsumerProtocolSubscription(topics=["t", "u"], user_data=b"x", owned_partitions=owned)
    assert from_bytes(ConsumerProtocolSubscription, to_bytes(subscription, version)) == subscription
    assignment = ConsumerProtocolAssignment(assigned_partitions=[AssignmentTopicPartition(topic="t", partitions=[0])])
    assert from_bytes(ConsumerProtocolAssignment, to_bytes(assignment, version)) == assignment


@proves("T3")
def test_a_newer_version_is_read_as_our_newest() -> None:
    newest = to_bytes(ConsumerProtocolSubscription(topics=["t"], rack_id="r"), 3)
    assert from_bytes(ConsumerProtocolSubscription, b"\x00\x09" + newest[2:] + b"more").rack_id == "r"


@proves("T3")
@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\x00\x00", b"\x00\x00\x00\x00\x00\x05"])
def test_bytes_that_are_no_assignment_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        from_bytes(ConsumerProtocolAssignment, data)


@proves("T3")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_reads_our_assignment() -> None:
    theirs = import_module("kafka.protocol.consumer.metadata").ConsumerProtocolAssignment
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[AssignmentTopicPartition(topic="t", partitions=[0, 7])], user_data=b"u"
    )
    read = theirs.decode(to_bytes(assignment, 0))
    assert [(one.topic, list(one.partitions)) for one in read.assigned_partitions] == [("t", [0, 7])]
    assert read.user_data == b"u"
