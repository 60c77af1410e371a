"""Facts of many partitions at once: offsets, sizes, retention, and when a record was written. For whoever watches.

Rules:
- Requests are few and full: each has at most `PARTITIONS_A_REQUEST` places, and those to all brokers are sent before
  the first answer is awaited.
- A place that its broker does not tell of is left out: one partition in trouble, or one thing that the user may not
  see, must not hide all others. Only a lost connection raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from tidelog.client.admin.configs import TOPIC
from tidelog.client.cluster import Cluster
from tidelog.client.connection import Answer, Connection, Sent
from tidelog.client.consumer import BY_NAME
from tidelog.client.metadata import TopicPartition, by_topic
from tidelog.errors import BrokerError, MalformedBatch
from tidelog.record.codec import peek
from tidelog.wire.message import Struct
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

PARTITIONS_A_REQUEST = 1_000
FETCH_BYTES = 16 << 20
# A broker answers with a batch that is not larger than what is asked for, and with the first of all in any case. Most
# are small. Of large ones a few are answered with at a time; after so many requests, their age is not told.
BATCH_BYTES = (16 << 10, 128 << 10, *[2 << 20] * 6)
FOREVER = -1


class Retention(NamedTuple):
    """Of a topic; FOREVER where nothing is deleted for that reason."""

    ms: int
    bytes: int


def there(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those that exist and have a leader."""
    wanted = list(dict.fromkeys(partitions))
    if not wanted:
        return []
    known = cluster.retry(lambda: cluster.ask_metadata(by_topic(wanted))).topics
    return [
        at for at in wanted if at.topic in known and known[at.topic].led and at.partition in known[at.topic].partitions
    ]


def offsets(cluster: Cluster, wanted: Sequence[TopicPartition], which: int) -> dict[TopicPartition, int]:
    """EARLIEST, LATEST, or the first offset at or after a time; left out where there is none."""

    def request(led: Sequence[TopicPartition]) -> ListOffsetsRequest:
        asked = ListOffsetsRequest(replica_id=-1)
        for topic, indexes in by_topic(led).items():
            places = [ListOffsetsPartition(partition_index=index, timestamp=which) for index in indexes]
            asked.topics.append(ListOffsetsTopic(name=topic, partitions=places))
        return asked

    found = {}
    for answer in _ask_leaders(cluster, wanted, request, ListOffsetsResponse):
        for topic in answer.topics:
            for place in topic.partitions:
                if not place.error_code and place.offset >= 0:
                    found[TopicPartition(topic.name, place.partition_index)] = place.offset
    return found


def sizes(cluster: Cluster, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Bytes on disk, as the leaders have them."""

    def request(led: Sequence[TopicPartition]) -> DescribeLogDirsRequest:
        return DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in by_topic(led).items()]
        )

    found = {}
    for answer in _ask_leaders(cluster, wanted, request, DescribeLogDirsResponse):
        for folder in answer.results:
            for topic in folder.topics:
                for place in topic.partitions:
                    if not place.is_future_key:
                        found[TopicPartition(topic.name, place.partition_index)] = place.partition_size
    return found


def retentions(cluster: Cluster, topics: Iterable[str]) -> dict[str, Retention]:
    keys = ["cleanup.policy", "retention.ms", "retention.bytes"]
    names = sorted(set(topics))
    found = {}
    for start in range(0, len(names), PARTITIONS_A_REQUEST):
        resources = [
            DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=keys)
            for name in names[start : start + PARTITIONS_A_REQUEST]
        ]
        answer = cluster.any_node().call(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
        for result in answer.results:
            values = {one.name: one.value for one in result.configs}
            if not result.error_code:
                found[result.resource_name] = _retention(values)
    return found


def _retention(values: Mapping[str, str | None]) -> Retention:
    if "delete" not in (values.get("cleanup.policy") or "delete").split(","):
        return Retention(FOREVER, FOREVER)
    return Retention(int(values.get("retention.ms") or FOREVER), int(values.get("retention.bytes") or FOREVER))


def written_ms(cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """When the batch with an offset was written, as its header says: one batch is fetched of each partition."""
    found: dict[TopicPartition, int | None] = {}
    for batch_bytes in BATCH_BYTES:
        missing = [at for at in wanted if at not in found]
        for answer in _ask_leaders(cluster, missing, _fetch(wanted, batch_bytes), FetchResponse, BY_NAME):
            for topic in answer.responses:
                for place in topic.partitions:
                    records = cast("memoryview | None", place.records)
                    if records or place.error_code:
                        found[TopicPartition(topic.topic, place.partition_index)] = _first_written(records)
    return {at: written for at, written in found.items() if written is not None}


def _fetch(
    wanted: Mapping[TopicPartition, int], batch_bytes: int
) -> Callable[[Sequence[TopicPartition]], FetchRequest]:
    def request(led: Sequence[TopicPartition]) -> FetchRequest:
        asked = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES)
        for topic, indexes in by_topic(led).items():
            places = [
                FetchPartition(
                    partition=index,
                    fetch_offset=wanted[TopicPartition(topic, index)],
                    partition_max_bytes=batch_bytes,
                )
                for index in indexes
            ]
            asked.topics.append(FetchTopic(topic=topic, partitions=places))
        return asked

    return request


def _first_written(records: memoryview | None) -> int | None:
    try:
        header = peek(records or b"")
    except MalformedBatch:
        return None
    written = header.max_timestamp if header.append_time else header.base_timestamp
    return written if written >= 0 else None


def _ask_leaders(
    cluster: Cluster,
    wanted: Sequence[TopicPartition],
    request: Callable[[Sequence[TopicPartition]], Struct],
    answer: type[Answer],
    highest: int | None = None,
) -> Iterator[Answer]:
    """The answers of all leaders; without those of a broker that refuses."""
    sent: list[tuple[Connection, Sent[Answer]]] = []
    for node_id, led in cluster.by_leader(wanted).items():
        for start in range(0, len(led), PARTITIONS_A_REQUEST):
            asked = request(led[start : start + PARTITIONS_A_REQUEST])
            leader = cluster.node(node_id)
            try:
                version = leader.version_of(type(asked), highest=highest)
            except BrokerError:
                continue
            sent.append((leader, leader.send(asked, answer, version=version)))
    for leader, one in sent:
        yield leader.receive(one)
