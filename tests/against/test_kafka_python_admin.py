"""kafka-python's KafkaAdminClient, which asks with the newest versions of most requests: what it is told must be
whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, MemberToRemove, OffsetSpec, OffsetTimestamp
from kafka.errors import (
    GroupIdNotFoundError,
    InvalidPartitionsError,
    InvalidTopicError,
    NoError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import OffsetAndMetadata

from against.brokers import Broker
from against.patience import eventually
from against.rebalancing import produce_round
from proving import proves

SECONDS = 180.0


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def make(admin: KafkaAdminClient, topic: str, partitions: int = 1, **configs: str) -> dict[str, Any]:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    wanted = {topic: {"num_partitions": partitions, "replication_factor": 1, "configs": settings}}
    made: dict[str, Any] = admin.create_topics(wanted, wait_for_metadata=True)["topics"][0]
    return made


def configs_of(admin: KafkaAdminClient, kind: str, name: str, which: str = "all") -> dict[str, Any]:
    described = admin.describe_configs([ConfigResource(kind, name)], config_filter=which)
    found: dict[str, Any] = described[kind.lower()][name]
    return found


def altered(admin: KafkaAdminClient, topic: str) -> tuple[str, str]:
    """What two settings of a topic are now."""
    found = configs_of(admin, "TOPIC", topic)
    return found["retention.ms"]["value"], found["segment.bytes"]["value"]


def settle(consumer: KafkaConsumer, partitions: int) -> None:
    def held() -> int:
        consumer.poll(2000)  # a join that outlasts a poll may be forgotten (see `test_kafka_python`)
        return len(consumer.assignment())

    eventually(held, lambda count: count == partitions)


@proves("T10")
def test_topics_are_made_described_grown_and_deleted(admin: KafkaAdminClient, topic: str) -> None:
    made = make(admin, topic, 2, retention_ms="86400000")
    assert (made["num_partitions"], made["replication_factor"]) == (2, 1)
    assert made["configs"]["retention.ms"]["value"] == "86400000"
    assert topic in admin.list_topics()
    described = admin.describe_topics([topic])[0]
    assert (described["error_code"], described["topic_id"]) == (0, made["topic_id"])
    assert [(p["partition_index"], p["leader_epoch"], p["offline_replicas"]) for p in described["partitions"]] == [
        (0, 0, []),
        (1, 0, []),
    ]
    admin.create_partitions({topic: 4})
    eventually(lambda: len(admin.describe_topics([topic])[0]["partitions"]), lambda count: count == 4)
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 2})
    with pytest.raises(TopicAlreadyExistsError):
        make(admin, topic)
    with pytest.raises(InvalidTopicError):
        make(admin, "no spaces")
    admin.delete_topics([topic])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])
    eventually(lambda: topic not in admin.list_topics())


@proves("T10")
def test_a_topic_is_made_with_the_brokers_defaults(admin: KafkaAdminClient, topic: str) -> None:
    made = admin.create_topics([topic])["topics"][0]
    assert (made["num_partitions"], made["replication_factor"]) == (1, 1)


@proves("T10")
def test_partitions_are_described_page_by_page(admin: KafkaAdminClient, topic: str) -> None:
    make(admin, topic, 5)
    first = admin.describe_topic_partitions([topic], response_partition_limit=3)
    assert [p["partition_index"] for p in first["topics"][0]["partitions"]] == [0, 1, 2]
    assert first["next_cursor"] == {"topic_name": topic, "partition_index": 3}
    rest = admin.describe_topic_partitions([topic], cursor=first["next_cursor"])
    assert [p["partition_index"] for p in rest["topics"][0]["partitions"]] == [3, 4]
    assert rest["next_cursor"] is None


@proves("T10")
def test_configs_are_described_altered_and_reset(admin: KafkaAdminClient, topic: str) -> None:
    make(admin, topic, 1, retention_ms="86400000")
    before = configs_of(admin, "TOPIC", topic)
    assert before["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert before["segment.bytes"]["config_source"] == "DEFAULT_CONFIG"
    assert before["segment.bytes"]["config_type"] == "INT"
    changed = {"retention.ms": "5000", "cleanup.policy": ("APPEND", "compact")}
    assert admin.alter_configs([ConfigResource("TOPIC", topic, changed)]) == {"topic": {topic: "OK"}}
    eventually(lambda: configs_of(admin, "TOPIC", topic)["retention.ms"]["value"], lambda value: value == "5000")
    modified = configs_of(admin, "TOPIC", topic, "modified")
    assert modified["cleanup.policy"]["value"] == "delete,compact"
    admin.reset_configs([ConfigResource("TOPIC", topic, ["retention.ms"])])
    eventually(lambda: configs_of(admin, "TOPIC", topic)["retention.ms"]["value"], lambda value: value == "604800000")


@proves("T10")
def test_synonyms_say_where_a_value_comes_from(admin: KafkaAdminClient, topic: str) -> None:
    make(admin, topic, 1, retention_ms="86400000")
    described = admin.describe_configs([ConfigResource("TOPIC", topic)], include_synonyms=True, config_filter="all")
    synonyms = described["topic"][topic]["retention.ms"]["synonyms"]
    assert (synonyms[0]["name"], synonyms[0]["value"]) == ("retention.ms", "86400000")


@proves("T10")
def test_the_old_way_to_alter_configs_sets_what_is_named_and_what_the_client_names_again(
    admin: KafkaAdminClient, topic: str
) -> None:
    make(admin, topic, 1)
    before = altered(admin, topic)
    admin.alter_configs([ConfigResource("TOPIC", topic, {"retention.ms": "86400000"})])
    eventually(lambda: altered(admin, topic), lambda seen: seen == ("86400000", before[1]))
    admin.alter_configs([ConfigResource("TOPIC", topic, {"segment.bytes": "2000000"})], incremental=False)
    # AlterConfigs replaces all of them; kafka-python looks up what was altered before, and sends that too.
    eventually(lambda: altered(admin, topic), lambda seen: seen == ("86400000", "2000000"))


@proves("T10")
def test_config_resources_are_listed(admin: KafkaAdminClient, topic: str) -> None:
    make(admin, topic)
    eventually(lambda: admin.list_config_resources(["TOPIC"]).get("topic", []), lambda names: topic in names)
    assert len(admin.list_config_resources(["BROKER"])["broker"]) == 1


@proves("T7", "T10")
def test_offsets_are_listed_and_records_deleted(admin: KafkaAdminClient, broker: Broker, topic: str) -> None:
    make(admin, topic)
    start = 1_700_000_000_000
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, batch_size=200)
    for number in range(20):
        producer.send(topic, b"x", timestamp_ms=start + number * 1000)
    producer.close(SECONDS)
    partition = TopicPartition(topic, 0)

    def at(spec: Any) -> tuple[int, int]:
        found = admin.list_partition_offsets({partition: spec})[partition]
        return found.offset, found.timestamp

    assert at(OffsetSpec.EARLIEST) == (0, -1)
    assert at(OffsetSpec.LATEST) == (20, -1)
    assert at(OffsetSpec.MAX_TIMESTAMP) == (19, start + 19_000)
    assert at(OffsetTimestamp(start + 4_500)) == (5, start + 5_000)
    assert admin.delete_records({partition: 8})[partition]["low_watermark"] == 8
    assert at(OffsetSpec.EARLIEST) == (8, -1)


@proves("T3", "T7", "T10")
def test_groups_are_described_moved_and_deleted(
    admin: KafkaAdminClient, broker: Broker, topic: str, group: str
) -> None:
    make(admin, topic, 2)
    produce_round(broker.bootstrap, topic, "r", 2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = KafkaConsumer(topic, bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest")
    settle(consumer, 2)
    consumer.commit({zero: OffsetAndMetadata(3, "", -1), one: OffsetAndMetadata(4, "", -1)})
    listed = {one["group_id"]: one for one in admin.list_groups()}[group]
    assert (listed["protocol_type"], listed["group_state"], listed["group_type"]) == ("consumer", "Stable", "classic")
    described = admin.describe_groups([group])[group]
    assert (described["group_state"], described["protocol_data"]) == ("Stable", "range")
    assigned = described["members"][0]["member_assignment"]["assigned_partitions"]
    assert assigned == [{"topic": topic, "partitions": [0, 1]}]
    consumer.close(autocommit=False)
    held = admin.list_group_offsets({group: None})[group]
    assert {partition: kept.offset for partition, kept in held.items()} == {zero: 3, one: 4}
    assert admin.alter_group_offsets(group, {zero: OffsetAndMetadata(9, "moved", -1)}) == {zero: NoError}
    assert admin.reset_group_offsets(group, {one: OffsetSpec.LATEST})[one]["offset"] == 20
    assert admin.list_group_offsets({group: [zero]})[group][zero] == OffsetAndMetadata(9, "moved", -1)
    assert admin.delete_group_offsets(group, [zero]) == {zero: NoError}
    assert set(admin.list_group_offsets({group: None})[group]) == {one}
    assert admin.delete_groups([group]) == {group: "OK"}
    assert group not in {one["group_id"] for one in admin.list_groups()}
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets(group, [one])


@proves("T3", "T10")
def test_a_member_is_removed_by_hand(admin: KafkaAdminClient, broker: Broker, topic: str, group: str) -> None:
    make(admin, topic)
    consumer = KafkaConsumer(topic, bootstrap_servers=broker.bootstrap, group_id=group, group_instance_id="static")
    settle(consumer, 1)
    consumer.close()
    assert len(admin.describe_groups([group])[group]["members"]) == 1
    removed = admin.remove_group_members(group, [MemberToRemove(group_instance_id="static")])
    assert list(removed.values()) == [NoError]
    assert admin.describe_groups([group])[group]["members"] == []


@proves("T10")
def test_groups_are_listed_by_state_and_type(admin: KafkaAdminClient, broker: Broker, topic: str, group: str) -> None:
    make(admin, topic)
    consumer = KafkaConsumer(topic, bootstrap_servers=broker.bootstrap, group_id=group)
    settle(consumer, 1)
    names = {one["group_id"] for one in admin.list_groups(states_filter=["Stable"], types_filter=["classic"])}
    assert group in names
    assert group not in {one["group_id"] for one in admin.list_groups(states_filter=["Empty"])}
    assert group not in {one["group_id"] for one in admin.list_groups(types_filter=["consumer"])}
    consumer.close()


@proves("T10")
def test_the_cluster_its_disk_and_its_producers_are_described(
    admin: KafkaAdminClient, broker: Broker, topic: str
) -> None:
    make(admin, topic)
    cluster = admin.describe_cluster()
    assert [(one["host"], one["port"]) for one in cluster["brokers"]] == [("127.0.0.1", broker.port)]
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
    producer.send(topic, b"x" * 100).get(SECONDS)
    producer.send(topic, b"x" * 100).get(SECONDS)
    folder = admin.describe_log_dirs()[0]["log_dirs"][0]
    sizes = {one["name"]: one["partitions"][0]["partition_size"] for one in folder["topics"]}
    assert sizes[topic] >= 2 * 100
    assert folder["total_bytes"] >= folder["usable_bytes"] > 0
    partition = TopicPartition(topic, 0)
    active = admin.describe_producers([partition])[partition].active_producers
    assert [(one.producer_epoch, one.last_sequence) for one in active] == [(0, 1)]
    producer.close()
