"""Whether what a reader has read is still what lies in the log (KIP-320).

A leader epoch rises when a partition may have lost its latest records: a leader died, or a topic that is kept in memory
had an unclean stop. Its offsets may then be used again for other records. Who read up to offset 120 in epoch 3 asks
where epoch 3 ended: at 120 or after, all is well; before, records were read that are gone, and going on in silence
would skip the new ones in their place.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection
from tidelog.client.metadata import TopicPartition, by_topic
from tidelog.client.refusal import check
from tidelog.errors import BrokerError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

CONSUMER = -1  # as a replica id
UNKNOWN = -1


def check_truncation(cluster: Cluster, read: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """`read` has the next offset and the leader epoch of the last batch that was read; raises where that is gone."""
    for node_id, led in cluster.by_leader(read).items():
        for at, end in _ends(cluster.node(node_id), {at: read[at][1] for at in led}).items():
            position, epoch = read[at]
            if end < position:
                ended = f"which ended at {end}" if end != UNKNOWN else "which the broker does not know"
                raise BrokerError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{at} was read up to offset {position} in leader epoch {epoch}, {ended}; records that were read"
                    " are gone and their offsets used again: seek to where to go on",
                )


def _ends(leader: Connection, epochs: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Where each epoch ended, or, where there was none such, the one before it."""
    request = OffsetForLeaderEpochRequest(replica_id=CONSUMER)
    for topic, partitions in by_topic(epochs).items():
        places = [
            OffsetForLeaderPartition(partition=p, leader_epoch=epochs[TopicPartition(topic, p)]) for p in partitions
        ]
        request.topics.append(OffsetForLeaderTopic(topic=topic, partitions=places))
    found = {}
    for answered in leader.call(request, OffsetForLeaderEpochResponse).topics:
        for place in answered.partitions:
            at = TopicPartition(answered.topic, place.partition)
            check(place.error_code, f"the end of leader epoch {epochs[at]} of {at}")
            found[at] = place.end_offset
    return found
