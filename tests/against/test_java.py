"""The Java client 4.3: producer with its idempotent defaults, consumer under both group protocols, AdminClient."""

from __future__ import annotations

import json
from typing import Any

import pytest

from against.brokers import HEARTBEAT_MS, SESSION_MS, Broker
from against.java_machine import JavaMachine
from against.rebalancing import be_brief, create
from proving import proves

pytestmark = pytest.mark.external
CLASSIC = ("group.protocol=classic", f"session.timeout.ms={SESSION_MS}", f"heartbeat.interval.ms={HEARTBEAT_MS}")
CONSUMER = ("group.protocol=consumer",)
PROTOCOLS = pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
ASSIGNORS = "partition.assignment.strategy=org.apache.kafka.clients.consumer."
WAYS_TO_SHARE = {
    "range": (*CLASSIC, f"{ASSIGNORS}RangeAssignor"),
    "roundrobin": (*CLASSIC, f"{ASSIGNORS}RoundRobinAssignor"),
    "sticky": (*CLASSIC, f"{ASSIGNORS}StickyAssignor"),
    "cooperative-sticky": (*CLASSIC, f"{ASSIGNORS}CooperativeStickyAssignor"),
    "consumer-uniform": (*CONSUMER, "group.remote.assignor=uniform"),
    "consumer-range": (*CONSUMER, "group.remote.assignor=range"),
}


@proves("T1", "T10")
@pytest.mark.story
def test_payloads_come_back_as_they_were_sent(broker: Broker, java: JavaMachine, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    seen = java.run("Records", broker.bootstrap, "payloads", topic).json()
    assert seen["acked"] == [0, 1, 2, 3]
    assert seen["read"] == [
        [0, 1_700_000_000_000, "key", "value", [["a", "1"], ["a", "2"], ["none", None]], 0],
        [1, 1_600_000_000_000, None, "no key", [], 0],
        [2, 1_700_000_000_001, "no value", None, [], 0],
        [3, 1_700_000_000_002, "", "", [], 0],
    ]


@proves("T1")
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_come_back(broker: Broker, java: JavaMachine, topic: str, compression: str) -> None:
    create(broker.bootstrap, topic, 1)
    seen = java.run("Records", broker.bootstrap, "many", topic, compression).json()
    assert seen == {"sent": 2000, "read": 2000, "wrong": 0}


@proves("T1")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_ack_delivers(broker: Broker, java: JavaMachine, topic: str, acks: str) -> None:
    create(broker.bootstrap, topic, 1)
    seen = java.run("Records", broker.bootstrap, "acks", topic, acks).json()
    assert seen == {"sent": 100, "read": 100, "wrong": 0}


@proves("T1")
def test_many_small_idempotent_batches_stay_in_order(broker: Broker, java: JavaMachine, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    seen = java.run("Records", broker.bootstrap, "small_batches", topic).json()
    assert seen == {"sent": 1000, "read": 1000, "wrong": 0}


@proves("T1")
def test_a_message_up_to_the_limit_is_taken_and_one_above_is_refused(
    broker: Broker, java: JavaMachine, topic: str
) -> None:
    create(broker.bootstrap, topic, 1, max_message_bytes="2000000")
    seen = java.run("Records", broker.bootstrap, "sizes", topic).json()
    assert seen["outcomes"] == ["offset 0", "RecordTooLargeException", "offset 1"]
    assert seen["read"] == [1_999_000, 5]


@proves("T7")
@pytest.mark.story
def test_places_are_found_by_offset_and_by_time(broker: Broker, java: JavaMachine, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    seen = java.run("Records", broker.bootstrap, "places", topic).json()
    assert seen == {
        "beginning": 0,
        "end": 50,
        "by_time": [31, 1_700_000_031_000],
        "after_all": True,
        "sought": ["31", "0", "49", "7"],
        "out_of_range": True,
        "lag": True,
        "partitions": 1,
    }


@proves("T3", "T7")
@pytest.mark.parametrize("way", WAYS_TO_SHARE)
def test_members_come_go_and_vanish_and_each_record_is_read_once(
    broker: Broker, java: JavaMachine, topic: str, group: str, way: str
) -> None:
    create(broker.bootstrap, topic, 4)
    be_brief(broker.bootstrap, group)
    seen = java.run("Groups", broker.bootstrap, "come_go_and_crash", topic, group, *WAYS_TO_SHARE[way]).json()
    assert seen == {"expected": 160, "read": 160, "distinct": 160, "failures": []}


@proves("T3", "T7")
@pytest.mark.parametrize("way", ["range", "cooperative-sticky"])
def test_a_group_rolls_from_the_classic_to_the_consumer_protocol_and_back(
    broker: Broker, java: JavaMachine, topic: str, group: str, way: str
) -> None:
    create(broker.bootstrap, topic, 4)
    seen = java.run("Groups", broker.bootstrap, "roll", topic, group, *WAYS_TO_SHARE[way]).json()
    assert seen == {"expected": 160, "read": 160, "distinct": 160, "failures": []}


@proves("T3")
@PROTOCOLS
def test_a_new_topic_that_matches_a_pattern_is_picked_up(
    broker: Broker, java: JavaMachine, topic: str, group: str, protocol: tuple[str, ...]
) -> None:
    seen = java.run("Groups", broker.bootstrap, "pattern", topic, group, *protocol).json()
    assert seen == {"read": 40, "topics": [f"{topic}.first", f"{topic}.second"]}


@proves("T3")
@PROTOCOLS
@pytest.mark.story
def test_a_static_member_comes_back_without_a_rebalance(
    broker: Broker, java: JavaMachine, topic: str, group: str, protocol: tuple[str, ...]
) -> None:
    create(broker.bootstrap, topic, 4)
    seen = java.run("Groups", broker.bootstrap, "static", topic, group, *protocol).json()
    assert seen == {"kept_while_away": True, "kept_after_return": True}


@proves("T3", "T7", "T10")
@pytest.mark.story
def test_the_admin_client_is_told_what_it_asks(broker: Broker, java: JavaMachine, topic: str, group: str) -> None:
    turn = java.run("Administration", broker.bootstrap, topic, group)
    told = {line["call"]: line for line in map(json.loads, turn.lines())}
    assert turn.status == 0, f"{turn.err}\nafter {list(told)[-1:]}"
    differences = {call: (told.get(call), wanted) for call, wanted in answers(broker).items() if told[call] != wanted}
    assert not differences
    assert told["createTopics"]["answer"].items() >= {"partitions": 2, "replicas": 1, "retention": "86400000"}.items()
    assert told["describeTopics"]["answer"]["id"] == told["createTopics"]["answer"]["id"]
    configs = told["describeConfigs topic"]["answer"]
    assert configs["max.message.bytes"] == ["2000000", "DYNAMIC_TOPIC_CONFIG"]
    assert configs["segment.bytes"] == ["1073741824", "DEFAULT_CONFIG"]
    assert told["describeConfigs broker"]["answer"]["num.partitions"] == "1"
    disk = told["describeLogDirs"]["answer"]
    assert disk["total"] >= disk["usable"] > 0
    assert disk["size"] > 0
    assert len(told["describeCluster"]["answer"]["id"]) == 22


def answers(broker: Broker) -> dict[str, Any]:
    """What each call must be told, word for word."""
    wanted: dict[str, Any] = {
        "createTopics validate": 2,
        "listTopics": True,
        "createPartitions": None,
        "incrementalAlterConfigs": None,
        "listConfigResources": True,
        "describeProducers": [1, 19, 0],
        "listOffsets earliest": [0, -1, 0],
        "listOffsets latest": [20, -1, 0],
        "listOffsets max": [19, 1_700_000_019_000, 0],
        "listOffsets time": [5, 1_700_000_005_000, 0],
        "listOffsets after": [5, -1, 0],
        "deleteRecords": 5,
        "removeMembersFromConsumerGroup": None,
        "describeConsumerGroups removed": described("Empty", "Classic", broker),
        "deleteTopics": None,
    }
    refused = {
        "createTopics again": "TopicExistsException",
        "createTopics bad name": "InvalidTopicException",
        "createTopics replicas": "InvalidReplicationFactorException",
        "describeTopics unknown": "UnknownTopicOrPartitionException",
        "createPartitions fewer": "InvalidPartitionsException",
        "incrementalAlterConfigs bad": "InvalidConfigurationException",
        "deleteRecords beyond": "OffsetOutOfRangeException",
        "deleteTopics again": "UnknownTopicOrPartitionException",
    }
    for kind in ("classic", "consumer"):
        member = {"members": 1, "client": "me", "host": "/127.0.0.1", "partitions": 3}
        wanted |= {
            f"describeConsumerGroups {kind}": {**described("Stable", kind.title(), broker), **member},
            f"listGroups {kind}": [kind.title(), "Empty", "consumer"],
            f"listConsumerGroupOffsets {kind}": [12, "note"],
            f"alterConsumerGroupOffsets {kind}": None,
            f"listConsumerGroupOffsets moved {kind}": [7, "moved"],
            f"deleteConsumerGroupOffsets {kind}": None,
            f"listConsumerGroupOffsets deleted {kind}": [],
            f"deleteConsumerGroups {kind}": None,
        }
        refused |= {
            f"deleteConsumerGroups busy {kind}": "GroupNotEmptyException",
            f"describeConsumerGroups gone {kind}": "GroupIdNotFoundException",
        }
    answered = {call: {"call": call, "answer": answer} for call, answer in wanted.items()}
    return answered | {call: {"call": call, "error": error} for call, error in refused.items()}


def described(state: str, kind: str, broker: Broker) -> dict[str, Any]:
    return {"state": state, "type": kind, "coordinator": broker.port, "members": 0}
