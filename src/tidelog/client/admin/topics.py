"""Topics: create, delete, describe, grow, and delete records before an offset.

`create`, `delete` and `add_partitions` return when the broker that was asked shows the change too: a cluster answers
them before all of its brokers know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from tidelog.client.admin.configs import portable
from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.connection import Connection
from tidelog.client.metadata import TopicMetadata, TopicPartition, by_topic
from tidelog.client.refusal import check, refused
from tidelog.errors import BrokerError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

BROKERS_DEFAULT = -1  # for partitions and replication
HIGH_WATERMARK = -1  # as an offset to delete records before
DELETE_BY_STATE_SINCE = 6
# Why records are not deleted: the answer carries a code and no sentence.
NOT_DELETED = {
    ErrorCode.POLICY_VIOLATION: "its cleanup.policy does not include delete; add it first",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "it is the broker's own; leave it to the broker",
}


def create(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = BROKERS_DEFAULT,
    replication: int = BROKERS_DEFAULT,
    configs: Mapping[str, str] | None = None,
) -> TopicMetadata:
    kept = portable(cluster, configs or {})
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in kept.items()],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(cluster.timeout_s * 1000))

    def attempt() -> None:
        (result,) = cluster.controller().call(request, CreateTopicsResponse).topics
        check(result.error_code, f"creating topic {name!r}", result.error_message)

    cluster.retry(attempt)
    cluster.forget()
    return cluster.retry(lambda: _led(cluster, name))


def ensure(
    cluster: Cluster, name: str, *, partitions: int = BROKERS_DEFAULT, configs: Mapping[str, str] | None = None
) -> bool:
    """Creates the topic unless it is there; what is there keeps its partitions and settings. Whether it was created."""
    try:
        create(cluster, name, partitions=partitions, configs=configs)
    except BrokerError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


def delete(cluster: Cluster, name: str) -> None:
    def attempt() -> None:
        controller = cluster.controller()
        version = controller.version_of(DeleteTopicsRequest)
        request = DeleteTopicsRequest(timeout_ms=int(cluster.timeout_s * 1000))
        if version >= DELETE_BY_STATE_SINCE:
            request.topics = [DeleteTopicState(name=name)]
        else:
            request.topic_names = [name]
        (result,) = controller.call(request, DeleteTopicsResponse, version=version).responses
        check(result.error_code, f"deleting topic {name!r}", result.error_message)

    cluster.retry(attempt)
    cluster.forget()
    cluster.wait_until(lambda: name not in names(cluster))
    cluster.forget()  # a broker that did not know yet may have told of it once more


def names(cluster: Cluster) -> list[str]:
    return sorted(topic.name for topic in describe(cluster))


def describe(cluster: Cluster, wanted: Iterable[str] | None = None) -> list[TopicMetadata]:
    """Those named, else all, by name. One that is not there is an error."""
    if wanted is None:
        listed = cluster.retry(lambda: cluster.ask_metadata(None)).topics
        return [listed[name] for name in sorted(listed)]
    cluster.forget()
    return [cluster.retry(partial(cluster.topic, name)) for name in wanted]


def add_partitions(cluster: Cluster, name: str, total: int) -> TopicMetadata:
    """`total` is how many there are to be. Keys are spread anew: records of one key may then lie in two partitions."""
    topic = CreatePartitionsTopic(name=name, count=total, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=int(cluster.timeout_s * 1000))

    def attempt() -> None:
        (result,) = cluster.controller().call(request, CreatePartitionsResponse).results
        check(result.error_code, f"adding partitions to topic {name!r}", result.error_message)

    cluster.retry(attempt)
    cluster.forget()
    return cluster.retry(lambda: _led(cluster, name, partitions=total))


def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Deletes what lies before each offset (HIGH_WATERMARK: everything); returns where each partition begins now."""
    begins: dict[TopicPartition, int] = {}

    def attempt() -> dict[TopicPartition, int]:
        for node_id, led in cluster.by_leader([at for at in before if at not in begins]).items():
            _delete_records(cluster.node(node_id), {at: before[at] for at in led}, begins)
        return begins

    return cluster.retry(attempt)


def _delete_records(leader: Connection, before: dict[TopicPartition, int], begins: dict[TopicPartition, int]) -> None:
    request = DeleteRecordsRequest(timeout_ms=int(leader.timeout_s * 1000))
    for topic, partitions in by_topic(before).items():
        listed = [
            DeleteRecordsPartition(partition_index=p, offset=before[TopicPartition(topic, p)]) for p in partitions
        ]
        request.topics.append(DeleteRecordsTopic(name=topic, partitions=listed))
    for answered in leader.call(request, DeleteRecordsResponse).topics:
        for result in answered.partitions:
            at = TopicPartition(answered.name, result.partition_index)
            what = f"deleting records of {at} before offset {before[at]}"
            check(result.error_code, what, NOT_DELETED.get(result.error_code))
            begins[at] = result.low_watermark


def _led(cluster: Cluster, name: str, *, partitions: int = 1) -> TopicMetadata:
    """A topic that was made, or has grown. A broker that does not know of that yet is asked until it does."""
    topic = cluster.ask_metadata([name]).topics.get(name)
    if topic is not None and topic.error_code not in UNKNOWN_TOPIC:
        check(topic.error_code, f"topic {name!r}")
    if topic is None or not topic.led or len(topic.partitions) < partitions:
        raise refused(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r}")
    return topic
