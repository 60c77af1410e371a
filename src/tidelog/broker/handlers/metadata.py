"""Metadata: which topics there are, and where to find them; topics are created when a client first asks for them.

    v0    an empty list asks for all topics          v1    null asks for all; racks, controller, internal topics
    v2    cluster id                                 v3    throttle time
    v4    the client may forbid creation             v5    offline replicas
    v7    leader epochs                              v8    what the client may do, if it asks
    v9    flexible                                   v10   topic ids in the reply, and in the request from v12 on
    v11   cluster operations only by DescribeCluster v13   an error for the whole reply, never set

The reply names the address by which the client came, or its advertised one. It leaves when everything that it tells is
synced, so that nobody writes to a topic that a power cut could take back; a topic that was just created is in it,
whole. The broker's own topics are told to who asks for them by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.leadership import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, leadership, when_known
from tidelog.broker.topic_changes import Creation, decide_create
from tidelog.broker.topics import NO_ID, TOPICS_TOPIC, Topic, random_id
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

NULL_NAMES_SINCE = 12


def handle(broker: Broker, request: MetadataRequest, call: Call) -> None:
    asked = request.topics
    if asked is None or (call.version == 0 and not asked):
        topics = broker.topics.visible()
        when_known(broker, call, _partitions(topics), lambda: _reply(broker, request, call, _all(broker)))
        return
    refused = _create_missing(broker, request, asked)
    # Each once, as in Kafka: else a small request could ask for a reply of any size.
    once = list({(one.name, one.topic_id): one for one in asked}.values())
    found = [topic for one in once if (topic := _find(broker, one)) is not None]

    def answer() -> None:
        _reply(broker, request, call, [_answer(broker, one, refused, call.version) for one in once])

    when_known(broker, call, _partitions(found), answer)


def _partitions(topics: Iterable[Topic]) -> list[tuple[Topic, range]]:
    return [(topic, range(topic.partitions)) for topic in topics]


def _all(broker: Broker) -> list[MetadataResponseTopic]:
    return [_describe(broker, topic) for topic in broker.topics.visible()]


def _reply(broker: Broker, request: MetadataRequest, call: Call, topics: list[MetadataResponseTopic]) -> None:
    node_id = broker.config.int("node.id")
    host, port = call.listener
    rack = broker.config.optional_text("broker.rack")
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)],
        cluster_id=broker.cluster_id,
        controller_id=node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    if request.include_topic_authorized_operations:
        for topic in topics:
            if not topic.error_code:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    broker.commit(TOPICS_TOPIC.name, Decision([], [(call.ticket, response)]))


def _create_missing(broker: Broker, request: MetadataRequest, asked: list[MetadataRequestTopic]) -> Mapping[str, int]:
    """Creates topics that are asked for by name and are not there; the error codes of those that cannot be created."""
    if not (request.allow_auto_topic_creation and broker.config.flag("auto.create.topics.enable")):
        return {}
    by_name = broker.topics.by_name
    missing = {
        one.name: None for one in asked if one.name is not None and one.topic_id == NO_ID and one.name not in by_name
    }
    if not missing:
        return {}
    decided = decide_create(broker.topics, map(Creation, missing), broker.config, random_id, broker.now())
    try:
        broker.commit(TOPICS_TOPIC.name, Decision(decided.records, []))
    except StorageError:
        return dict.fromkeys(missing, ErrorCode.KAFKA_STORAGE_ERROR)
    return {one.name: one.fault.code for one in decided.outcomes if one.name is not None and one.fault is not None}


def _answer(
    broker: Broker, asked: MetadataRequestTopic, refused: Mapping[str, int], version: int
) -> MetadataResponseTopic:
    topic = _find(broker, asked)
    if topic is not None:
        return _describe(broker, topic)
    if asked.topic_id != NO_ID:
        no_name = None if version >= NULL_NAMES_SINCE else ""
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=no_name, topic_id=asked.topic_id)
    name = asked.name or ""
    return MetadataResponseTopic(error_code=refused.get(name) or _why_missing(name), name=name)


def _find(broker: Broker, asked: MetadataRequestTopic) -> Topic | None:
    if asked.topic_id != NO_ID:
        return broker.topics.by_id.get(asked.topic_id)
    return broker.topics.by_name.get(asked.name or "")


def _why_missing(name: str) -> int:
    from tidelog.broker.names import fault_of

    return ErrorCode.INVALID_TOPIC_EXCEPTION if fault_of(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _describe(broker: Broker, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[_partition(broker, topic, index) for index in range(topic.partitions)],
    )


def _partition(broker: Broker, topic: Topic, index: int) -> MetadataResponsePartition:
    led = leadership(broker, topic, index)
    node_id = broker.config.int("node.id")
    return MetadataResponsePartition(
        error_code=led.error_code,
        partition_index=index,
        leader_id=led.leader_id,
        leader_epoch=led.leader_epoch,
        replica_nodes=[node_id],
        isr_nodes=[node_id],
        offline_replicas=led.offline_replicas,
    )
