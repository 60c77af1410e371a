"""confluent-kafka's AdminClient: topics, configs, partitions, offsets, records, groups, the cluster; and the errors
that it must be told.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from against.brokers import Broker
from against.confluent import PROTOCOLS, SECONDS, consumer_of, member, owned, producer_of, read, read_partition
from against.patience import eventually
from against.rebalancing import create, produce_round
from proving import proves


def admin_of(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def refusal(future: Any) -> int:
    """The error code that the future ends with."""
    with pytest.raises(KafkaException) as told:
        future.result(SECONDS)
    code: int = told.value.args[0].code()
    return code


def configs_of(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(SECONDS)
    return entries


def alter(admin: AdminClient, topic: str, *entries: ConfigEntry) -> Any:
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=list(entries))
    return admin.incremental_alter_configs([resource])[resource]


def change(name: str, value: str | None, how: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=how)


@proves("T10")
def test_topics_are_made_listed_described_and_deleted(broker: Broker, topic: str) -> None:
    admin = admin_of(broker)
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(SECONDS)
    eventually(lambda: topic in admin.list_topics(timeout=SECONDS).topics)
    listed = admin.list_topics(topic, timeout=SECONDS).topics[topic]
    assert sorted(listed.partitions) == [0, 1, 2]
    broker_id = next(iter(admin.list_topics(timeout=SECONDS).brokers))
    assert all(p.leader == broker_id and p.replicas == p.isrs == [broker_id] for p in listed.partitions.values())
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(SECONDS)
    assert (described.name, len(described.partitions), described.is_internal) == (topic, 3, False)
    assert str(described.topic_id) not in ("", "AAAAAAAAAAAAAAAAAAAAAA")
    admin.delete_topics([topic])[topic].result(SECONDS)
    eventually(lambda: topic not in admin.list_topics(timeout=SECONDS).topics)


@proves("T10")
def test_a_topic_made_anew_has_another_identity_and_no_old_records(broker: Broker, topic: str) -> None:
    admin = admin_of(broker)
    create(broker.bootstrap, topic, 1)
    produce_round(broker.bootstrap, topic, "old", 1)
    old = admin.describe_topics(TopicCollection([topic]))[topic].result(SECONDS).topic_id
    admin.delete_topics([topic])[topic].result(SECONDS)
    eventually(lambda: topic not in admin.list_topics(timeout=SECONDS).topics)
    create(broker.bootstrap, topic, 1)
    assert str(admin.describe_topics(TopicCollection([topic]))[topic].result(SECONDS).topic_id) != str(old)
    expected = produce_round(broker.bootstrap, topic, "new", 1)
    assert {m.value().decode() for m in read_partition(broker, topic, 40)} == expected


@proves("T10")
def test_refusals_of_topics_have_kafkas_codes(broker: Broker, topic: str) -> None:
    admin = admin_of(broker)
    create(broker.bootstrap, topic, 1)

    def made(name: str, partitions: int = 1, replicas: int = 1, **config: str) -> int:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        return refusal(admin.create_topics([NewTopic(name, partitions, replicas, config=settings)])[name])

    assert made(topic) == KafkaError.TOPIC_ALREADY_EXISTS
    assert made("no spaces") == KafkaError.TOPIC_EXCEPTION
    assert made("x" * 250) == KafkaError.TOPIC_EXCEPTION
    assert made(f"{topic}-0", partitions=0) == KafkaError.INVALID_PARTITIONS
    assert made(f"{topic}-r", replicas=3) == KafkaError.INVALID_REPLICATION_FACTOR
    assert made(f"{topic}-c", no_such_key="1") == KafkaError.INVALID_CONFIG
    assert made(f"{topic}-v", retention_ms="soon") == KafkaError.INVALID_CONFIG
    absent = f"{topic}-absent"
    assert refusal(admin.delete_topics([absent])[absent]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    described = admin.describe_topics(TopicCollection([absent]))[absent]
    assert refusal(described) == KafkaError.UNKNOWN_TOPIC_OR_PART


@proves("T10")
def test_a_topic_that_is_only_validated_is_not_made(broker: Broker, topic: str) -> None:
    admin = admin_of(broker)
    admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)[topic].result(SECONDS)
    assert topic not in admin.list_topics(timeout=SECONDS).topics


@proves("T10")
def test_partitions_are_added_and_never_removed(broker: Broker, topic: str) -> None:
    admin = admin_of(broker)
    create(broker.bootstrap, topic, 2)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(SECONDS)
    eventually(lambda: len(admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions), lambda n: n == 5)
    assert refusal(admin.create_partitions([NewPartitions(topic, 3)])[topic]) == KafkaError.INVALID_PARTITIONS
    assert refusal(admin.create_partitions([NewPartitions(topic, 5)])[topic]) == KafkaError.INVALID_PARTITIONS


@proves("T10")
def test_configs_are_described_with_defaults_and_sources(broker: Broker, topic: str) -> None:
    admin = admin_of(broker)
    create(broker.bootstrap, topic, 1, retention_ms="86400000")
    configs = configs_of(admin, topic)
    assert (configs["retention.ms"].value, configs["retention.ms"].source) == (
        "86400000",
        ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
    )
    usual = {
        "cleanup.policy": "delete",
        "max.message.bytes": "1048588",
        "segment.bytes": "1073741824",
        "retention.bytes": "-1",
        "min.insync.replicas": "1",
        "message.timestamp.type": "CreateTime",
        "compression.type": "producer",
        "delete.retention.ms": "86400000",
    }
    assert {key: configs[key].value for key in usual} == usual
    assert all(configs[key].is_default for key in ("cleanup.policy", "segment.bytes"))


@proves("T10")
@pytest.mark.parametrize("compression", ["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])
def test_every_compression_of_a_topic_is_taken_and_described(broker: Broker, topic: str, compression: str) -> None:
    levels = {"compression_gzip_level": "3", "compression_lz4_level": "5", "compression_zstd_level": "-7"}
    create(broker.bootstrap, topic, 1, compression_type=compression, **levels)
    admin = admin_of(broker)
    configs = configs_of(admin, topic)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert (configs["compression.type"].value, configs["compression.type"].source) == (compression, own)
    assert [configs[key.replace("_", ".")].value for key in levels] == ["3", "5", "-7"]
    changed = alter(admin, topic, change("compression.type", "brotli", AlterConfigOpType.SET))
    assert refusal(changed) == KafkaError.INVALID_CONFIG


@proves("T10")
def test_configs_are_altered_one_by_one(broker: Broker, topic: str) -> None:
    admin = admin_of(broker)
    create(broker.bootstrap, topic, 1, retention_ms="86400000", segment_bytes="2000000")
    how = AlterConfigOpType
    alter(admin, topic, change("retention.ms", "1000", how.SET), change("segment.bytes", None, how.DELETE)).result(
        SECONDS
    )
    alter(admin, topic, change("cleanup.policy", "compact", how.APPEND)).result(SECONDS)
    eventually(lambda: configs_of(admin, topic)["cleanup.policy"].value, lambda value: value == "delete,compact")
    configs = configs_of(admin, topic)
    assert (configs["retention.ms"].value, configs["segment.bytes"].value) == ("1000", "1073741824")
    alter(admin, topic, change("cleanup.policy", "delete", how.SUBTRACT)).result(SECONDS)
    eventually(lambda: configs_of(admin, topic)["cleanup.policy"].value, lambda value: value == "compact")
    assert refusal(alter(admin, topic, change("retention.ms", "soon", how.SET))) == KafkaError.INVALID_CONFIG
    assert refusal(alter(admin, topic, change("no.such.key", "1", how.SET))) == KafkaError.INVALID_CONFIG
    absent = alter(admin, f"{topic}-absent", change("retention.ms", "1", how.SET))
    assert refusal(absent) == KafkaError.UNKNOWN_TOPIC_OR_PART


@proves("T10")
@pytest.mark.ends_broker
def test_altered_configs_survive_a_restart(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    admin = admin_of(broker)
    alter(admin, topic, change("max.message.bytes", "2000", AlterConfigOpType.SET)).result(SECONDS)
    broker.restart()
    eventually(lambda: configs_of(admin, topic)["max.message.bytes"].value, lambda value: value == "2000")
    told: list[Any] = []
    producer = producer_of(broker)
    producer.produce(topic, value=b"x" * 3000, on_delivery=lambda error, _: told.append(error.code()))
    assert producer.flush(SECONDS) == 0
    assert told == [KafkaError.MSG_SIZE_TOO_LARGE]


@proves("T10")
def test_the_brokers_own_configs_are_described(broker: Broker) -> None:
    admin = admin_of(broker)
    broker_id = str(next(iter(admin.list_topics(timeout=SECONDS).brokers)))
    resource = ConfigResource(ResourceType.BROKER, broker_id)
    configs = admin.describe_configs([resource])[resource].result(SECONDS)
    assert configs["num.partitions"].value == "1"
    assert configs["group.min.session.timeout.ms"].value == "500"
    assert "log.retention.hours" in configs or "log.retention.ms" in configs


@proves("T7", "T10")
def test_offsets_are_listed_by_place_and_by_time(broker: Broker, topic: str) -> None:
    admin = admin_of(broker)
    create(broker.bootstrap, topic, 1)
    producer = producer_of(broker, batch_num_messages=3)
    stamps = [1_700_000_000_000 + step for step in (0, 5000, 2000, 9000, 3000)]
    for stamp in stamps:
        producer.produce(topic, value=b"x", timestamp=stamp)
    assert producer.flush(SECONDS) == 0

    def at(spec: OffsetSpec) -> tuple[int, int]:
        found = next(iter(admin.list_offsets({TopicPartition(topic, 0): spec}).values())).result(SECONDS)
        return found.offset, found.timestamp

    assert at(OffsetSpec.earliest()) == (0, -1)
    assert at(OffsetSpec.latest()) == (5, -1)
    assert at(OffsetSpec.max_timestamp()) == (3, stamps[3])
    assert at(OffsetSpec.for_timestamp(stamps[0] + 1000)) == (1, stamps[1])
    assert at(OffsetSpec.for_timestamp(stamps[0] + 6000)) == (3, stamps[3])
    assert at(OffsetSpec.for_timestamp(stamps[0] + 60_000)) == (-1, -1)


@proves("T10")
@pytest.mark.ends_broker
def test_records_are_deleted_up_to_an_offset(broker: Broker, topic: str) -> None:
    admin = admin_of(broker)
    create(broker.bootstrap, topic, 1)
    produce_round(broker.bootstrap, topic, "r", 1)
    gone = next(iter(admin.delete_records([TopicPartition(topic, 0, 15)]).values())).result(SECONDS)
    assert gone.low_watermark == 15
    consumer = consumer_of(broker)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS) == (15, 40)
    consumer.assign([TopicPartition(topic, 0, 3)])
    assert read(consumer, 1)[0].offset() == 15
    beyond = next(iter(admin.delete_records([TopicPartition(topic, 0, 1000)]).values()))
    assert refusal(beyond) == KafkaError.OFFSET_OUT_OF_RANGE
    all_of_it = next(iter(admin.delete_records([TopicPartition(topic, 0, -1)]).values())).result(SECONDS)
    assert all_of_it.low_watermark == 40
    consumer.close()
    broker.restart()
    consumer = consumer_of(broker)
    eventually(lambda: watermarks(consumer, topic), lambda seen: seen == (40, 40))
    consumer.close()


def watermarks(consumer: Consumer, topic: str) -> tuple[int, int] | str:
    """Right after a restart Apache Kafka may name a leader that does not know of it yet."""
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS)
    except KafkaException as error:
        return str(error)


@proves("T3", "T10")
@PROTOCOLS
def test_groups_are_listed_and_described(broker: Broker, topic: str, group: str, protocol: dict[str, Any]) -> None:
    admin = admin_of(broker)
    create(broker.bootstrap, topic, 2)
    kind = ConsumerGroupType.CONSUMER if "group.protocol" in protocol else ConsumerGroupType.CLASSIC
    with member(broker, group, [topic], **protocol, **{"client.id": "me"}) as consumer:
        eventually(lambda: owned(consumer), lambda seen: len(seen) == 2)
        listed = {g.group_id: g for g in admin.list_consumer_groups().result(SECONDS).valid}[group]
        assert (listed.state, listed.type) == (ConsumerGroupState.STABLE, kind)
        described = admin.describe_consumer_groups([group])[group].result(SECONDS)
        assert (described.state, described.coordinator.port) == (ConsumerGroupState.STABLE, broker.port)
        one = described.members[0]
        assert (len(described.members), one.client_id, one.host.lstrip("/")) == (1, "me", "127.0.0.1")
        held = sorted((p.topic, p.partition) for p in one.assignment.topic_partitions)
        assert held == [(topic, 0), (topic, 1)]
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    described = admin.describe_consumer_groups([group])[group].result(SECONDS)
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])


@proves("T7", "T10")
@PROTOCOLS
def test_a_groups_offsets_are_listed_altered_and_the_group_deleted(
    broker: Broker, topic: str, group: str, protocol: dict[str, Any]
) -> None:
    admin = admin_of(broker)
    create(broker.bootstrap, topic, 2)
    produce_round(broker.bootstrap, topic, "r", 2)

    def offsets() -> dict[int, int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        answer = admin.list_consumer_group_offsets(asked)[group].result(SECONDS)
        return {p.partition: p.offset for p in answer.topic_partitions}

    with member(broker, group, [topic], **protocol) as consumer:
        eventually(lambda: owned(consumer), lambda seen: len(seen) == 2)
        consumer.commit(offsets=[TopicPartition(topic, 0, 5), TopicPartition(topic, 1, 7)], asynchronous=False)
        assert offsets() == {0: 5, 1: 7}
        assert refusal(admin.delete_consumer_groups([group])[group]) == KafkaError.NON_EMPTY_GROUP
    moved = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 18)])]
    admin.alter_consumer_group_offsets(moved)[group].result(SECONDS)
    assert offsets() == {0: 18, 1: 7}
    with member(broker, group, [topic], **protocol) as consumer:
        firsts: dict[int, int] = {}
        for message in read(consumer, 15):
            firsts.setdefault(message.partition(), message.offset())
        assert firsts == {0: 18, 1: 7}
    admin.delete_consumer_groups([group])[group].result(SECONDS)
    assert group not in {g.group_id for g in admin.list_consumer_groups().result(SECONDS).valid}
    assert refusal(admin.delete_consumer_groups([group])[group]) == KafkaError.GROUP_ID_NOT_FOUND


@proves("T10")
def test_the_cluster_is_described(broker: Broker) -> None:
    admin = admin_of(broker)
    described = admin.describe_cluster().result(SECONDS)
    assert [(node.host, node.port) for node in described.nodes] == [("127.0.0.1", broker.port)]
    assert described.controller.port == broker.port
    assert len(described.cluster_id) == 22
