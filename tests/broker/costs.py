"""A broker in this process that says what one request has cost it: CPU time, the longest step of its loop, memory.

All three are counted, not timed by a clock: a busy machine does not change them. `stage` gives it what requests of
`repeated` ask for: a topic with many partitions, groups that have committed offsets for all of them.
"""

from __future__ import annotations

import ctypes
import gc
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from raw import RawConnection, frame_of
from repeated import GROUP, TOPIC

from tidelog.broker.embedded import Broker
from tidelog.broker.loop import Loop
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

PARTITIONS = 500
GROUPS = (GROUP, *(f"{GROUP}{number}" for number in range(20)))
COMPACTED = "compacted"
COMPACTED_PARTITIONS = 20
METADATA = "x" * 100
DRAIN_BYTES = 1 << 16


class Cost(NamedTuple):
    cpu_s: float  # of the whole process
    step_s: float  # the longest that the loop was with one action, in CPU time
    memory_bytes: int  # above what there was before
    reply_bytes: int
    closed: bool  # the broker ended the connection instead of answering
    head: bytes  # the first bytes of the reply


class CostedBroker:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.longest_step_s = 0.0

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def ask(self, request: Any, version: int) -> Cost:
        frame = frame_of(request, version)
        with RawConnection(self.bootstrap) as connection:
            connection.call(ApiVersionsRequest(), 2, ApiVersionsResponse)
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)  # what was freed before would hide what is taken now
            Path("/proc/self/clear_refs").write_text("5")
            before, began = _peak_bytes(), time.process_time()
            self.longest_step_s = 0.0
            connection.socket.sendall(frame)
            size, head = _drain(connection)
            if head:  # what the loop did is counted when it is done: one more turn of it
                connection.call(ApiVersionsRequest(), 2, ApiVersionsResponse)
            spent = time.process_time() - began
            return Cost(spent, self.longest_step_s, _peak_bytes() - before, size, not head, head)

    def stage(self, *, empty: bool = False) -> bytes:
        """Makes what is missing and removes what is too much. The id of the topic, which is a new one to be `empty`."""
        with RawConnection(self.bootstrap) as connection:
            everything = MetadataRequest(topics=None)
            topics = {one.name: one for one in connection.call(everything, 12, MetadataResponse).topics}
            kept = (COMPACTED,) if empty else (TOPIC, COMPACTED)
            others = [name for name in topics if name not in kept and not name.startswith("__")]
            for start in range(0, len(others), 500):
                some = DeleteTopicsRequest(topic_names=others[start : start + 500], timeout_ms=1000)
                connection.call(some, 5, DeleteTopicsResponse)
            if TOPIC not in topics or empty:
                _make_topics(connection)
                topics = {one.name: one for one in connection.call(everything, 12, MetadataResponse).topics}
            _commit(connection)
            return topics[TOPIC].topic_id


def _make_topics(connection: RawConnection) -> None:
    compact = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    made = [
        CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1),
        CreatableTopic(name=COMPACTED, num_partitions=COMPACTED_PARTITIONS, replication_factor=1, configs=compact),
    ]
    connection.call(CreateTopicsRequest(topics=made, timeout_ms=1000), 7, CreateTopicsResponse)


def _commit(connection: RawConnection) -> None:
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=one, topics=None) for one in GROUPS])
    found = connection.call(asked, 9, OffsetFetchResponse).groups
    missing = [one.group_id for one in found if sum(len(topic.partitions) for topic in one.topics) < PARTITIONS]
    offsets = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata=METADATA)
        for index in range(PARTITIONS)
    ]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=offsets)]
    for group_id in missing:
        request = OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, topics=topics)
        connection.call(request, 8, OffsetCommitResponse)


@contextmanager
def costed_broker(data: Path, monkeypatch: Any, settings: dict[str, object]) -> Iterator[CostedBroker]:
    do = Loop._do
    with Broker(data, settings={"num.partitions": 1, **settings}, in_process=True) as broker:
        costed = CostedBroker(broker)

        def counted(loop: Loop, action: Any) -> None:
            began = time.thread_time()
            do(loop, action)
            costed.longest_step_s = max(costed.longest_step_s, time.thread_time() - began)

        monkeypatch.setattr(Loop, "_do", counted)
        yield costed


def _drain(connection: RawConnection) -> tuple[int, bytes]:
    """The size of a reply, and its first bytes; the rest is thrown away as it comes."""
    try:
        size: int = struct.unpack(">i", connection._exactly(4))[0]
        head = connection._exactly(min(size, 16))
        room = bytearray(DRAIN_BYTES)
        left = size - len(head)
        while left:
            left -= connection.socket.recv_into(room, min(left, len(room)))
    except (AssertionError, OSError):
        return 0, b""
    return size, head


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
