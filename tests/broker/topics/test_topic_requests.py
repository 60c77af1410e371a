"""CreateTopics, DeleteTopics and CreatePartitions in every version, against a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.topics.serving import Served, after_a_crash, serving, versions
from proving import proves
from tidelog.broker.settings.topic import TOPIC
from tidelog.broker.topics import NO_ID
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

SETTINGS_SHOWN = sum(not setting.hidden for setting in TOPIC.values())


def create(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    )


@proves("T1")
@pytest.mark.parametrize("version", versions(19))
def test_topics_are_created_in_every_version(served: Served, version: int) -> None:
    request = create("orders", "orders", "b d", "payments", partitions=2)
    request.topics[3].configs = [CreatableTopicConfig(name="retention.ms", value="5")]
    by_name = {topic.name: topic for topic in served.ask(request, version).topics}
    codes = {name: topic.error_code for name, topic in by_name.items()}
    assert codes == {"orders": ErrorCode.INVALID_REQUEST, "b d": ErrorCode.INVALID_TOPIC_EXCEPTION, "payments": 0}
    assert by_name["orders"].error_message == "topic orders is in the request more than once; ask for it once"
    made = served.broker.topics.by_name["payments"]
    assert (made.partitions, made.configs) == (2, {"retention.ms": "5"})
    if version >= 5:
        assert (by_name["payments"].num_partitions, by_name["payments"].replication_factor) == (2, 1)
        configs = {config.name: (config.value, config.config_source) for config in by_name["payments"].configs}
        assert configs["retention.ms"] == ("5", 1)
        assert configs["segment.bytes"] == ("1073741824", 5)
        assert len(configs) == SETTINGS_SHOWN
    if version >= 7:
        assert by_name["payments"].topic_id == made.topic_id


@proves("T1")
@pytest.mark.parametrize("version", versions(19))
def test_validating_creates_nothing(served: Served, version: int) -> None:
    request = create("orders")
    request.validate_only = True
    (topic,) = served.ask(request, version).topics
    assert (topic.error_code, topic.topic_id) == (0, NO_ID)
    assert served.broker.topics.visible() == []


@proves("T1")
def test_assignments_to_this_broker_are_taken(served: Served) -> None:
    assigned = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in range(3)]
    topic = CreatableTopic(name="orders", num_partitions=-1, replication_factor=-1, assignments=assigned)
    assert served.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].num_partitions == 3


@proves("T1", "T6")
def test_what_was_answered_is_so_when_the_broker_is_killed_after_the_reply(served: Served, tmp_path: Path) -> None:
    served.ask(create("orders", "gone", partitions=3), 7)
    served.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")]), 6)
    before = served.broker.topics.by_name["orders"]
    with after_a_crash(served, tmp_path / "copy") as again:
        assert again.broker.topics.visible() == [before]


@proves("T1")
@pytest.mark.parametrize("version", versions(20))
def test_topics_are_deleted_in_every_version(served: Served, version: int) -> None:
    served.ask(create("a", "b", "kept"), 7)
    if version >= 6:
        topic_id = served.broker.topics.by_name["b"].topic_id
        asked = [
            DeleteTopicState(name="a"),
            DeleteTopicState(name=None, topic_id=topic_id),
            DeleteTopicState(name="gone"),
            DeleteTopicState(name=None, topic_id=b"x" * 16),
        ]
        found = served.ask(DeleteTopicsRequest(topics=asked), version).responses
        assert [(one.name, one.error_code) for one in found] == [
            ("a", 0),
            ("b", 0),
            ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        assert (found[1].topic_id, found[3].topic_id) == (topic_id, b"x" * 16)
    else:
        found = served.ask(DeleteTopicsRequest(topic_names=["a", "b", "gone"]), version).responses
        assert [one.error_code for one in found] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [topic.name for topic in served.broker.topics.visible()] == ["kept"]


@proves("T1")
@pytest.mark.parametrize("version", versions(20))
def test_where_deleting_is_off_the_reply_says_so_as_well_as_the_version_can(tmp_path: Path, version: int) -> None:
    with serving(tmp_path, **{"delete.topic.enable": False}) as served:
        served.ask(create("a"), 7)
        request = (
            DeleteTopicsRequest(topic_names=["a"])
            if version < 6
            else DeleteTopicsRequest(topics=[DeleteTopicState(name="a")])
        )
        (one,) = served.ask(request, version).responses
        assert one.error_code == (ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST)


@proves("T1")
@pytest.mark.parametrize("version", versions(37))
def test_partitions_are_added_in_every_version(served: Served, version: int) -> None:
    served.ask(create("a", "b"), 7)
    asked = [
        CreatePartitionsTopic(name="a", count=3, assignments=None),
        CreatePartitionsTopic(name="b", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[7])]),
        CreatePartitionsTopic(name="gone", count=2, assignments=None),
    ]
    results = served.ask(CreatePartitionsRequest(topics=asked), version).results
    assert [(one.name, one.error_code) for one in results] == [
        ("a", 0),
        ("b", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [one.error_message is None for one in results] == [True, False, False]
    assert served.broker.topics.by_name["a"].partitions == 3
    assert served.broker.partition("a", 2) is not None
    assert served.broker.partition("b", 1) is None


@proves("T1")
def test_validating_adds_no_partition(served: Served) -> None:
    served.ask(create("a"), 7)
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="a", count=3, assignments=None)], validate_only=True
    )
    assert served.ask(request, 3).results[0].error_code == 0
    assert served.broker.topics.by_name["a"].partitions == 1
