"""What is said of records of a share group, as requests say it: ranges of offsets with one kind, and one reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidelog.client.metadata import TopicPartition
from tidelog.wire.messages import share_acknowledge, share_fetch
from tidelog.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from tidelog.wire.messages.share_fetch import ShareFetchRequest
from tidelog.wire.own_tags import REASON, REASON_BYTES_MAX

Kinds = Mapping[TopicPartition, Mapping[int, int]]  # ACCEPT, RELEASE or REJECT by offset


def ranges(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Neighbours together: (first, last)."""
    found: list[tuple[int, int]] = []
    for offset in sorted(set(offsets)):
        if found and found[-1][1] == offset - 1:
            found[-1] = found[-1][0], offset
        else:
            found.append((offset, offset))
    return found


def add_acknowledgements(
    request: ShareFetchRequest | ShareAcknowledgeRequest,
    kinds: Kinds,
    ids: Mapping[str, bytes],
    reasons: Mapping[tuple[TopicPartition, int], str],
) -> None:
    """A topic or partition that the request names already is not named twice."""
    fetches = isinstance(request, ShareFetchRequest)
    module: Any = share_fetch if fetches else share_acknowledge
    of_topic: Any = share_fetch.FetchTopic if fetches else share_acknowledge.AcknowledgeTopic
    of_partition: Any = share_fetch.FetchPartition if fetches else share_acknowledge.AcknowledgePartition
    topics: Any = request.topics
    for at, by_offset in kinds.items():
        topic = next((one for one in topics if one.topic_id == ids[at.topic]), None)
        if topic is None:
            topics.append(topic := of_topic(topic_id=ids[at.topic]))
        part = next((one for one in topic.partitions if one.partition_index == at.partition), None)
        if part is None:
            topic.partitions.append(part := of_partition(partition_index=at.partition))
        alike: dict[tuple[int, str], list[int]] = {}
        for offset, kind in by_offset.items():
            alike.setdefault((kind, reasons.get((at, offset), "")), []).append(offset)
        batches = []
        for (kind, why), offsets in alike.items():
            tags = {REASON: why.encode()[:REASON_BYTES_MAX]} if why else None
            for first, last in ranges(offsets):
                said = module.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                said.unknown_tags = tags
                batches.append(said)
        part.acknowledgement_batches = sorted(batches, key=lambda one: one.first_offset)
