"""One question to the owner of an entity, by topic, for who has no code of the app: fields in, fields out.

    produce    the request, to the partition of its entity in `NAME.commands`
    follow     the replies, from where they ended before, until the one that is for this question

Rules:
- Nothing is sent before the replies can be read: who may not read them would never know what became of it.
- The answer is as `command_record.encode_reply` has it. Without one in time it is `OutcomeUnknown`: the command may be
  done, or not, and is safe to send again under its id.
- It belongs to one thread, like its cluster. `courier.py` is for who asks often.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import uuid4

from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, READ_COMMITTED, list_offsets
from tidelog.client.producer import Producer
from tidelog.errors import HistoryFault, OutcomeUnknown
from tidelog.sourcing.command_record import encode_command
from tidelog.sourcing.requests import Joint, Request, check_names
from tidelog.sourcing.store_topics import StoreTopics, place_of

WAIT_MS = 250


def ask_owner(cluster: Cluster, named: StoreTopics, request: Request, timeout_s: float) -> Mapping[str, Any]:
    check_names(request)
    deadline = time.monotonic() + timeout_s
    at = place_of(named.commands, request.key, len(cluster.partitions(named.commands)))
    consumer = _follower(cluster, cluster.partitions(named.replies))
    to = f"ask.{uuid4().hex}".encode()
    key, value, headers = encode_command(Joint((request,)), to)
    producer = Producer(cluster, auto_create=False)
    producer.send(at.topic, value, key=key, headers=headers, partition=at.partition)
    producer.flush()
    while (left_s := deadline - time.monotonic()) > 0:
        consumer.max_wait_ms = max(1, min(WAIT_MS, int(left_s * 1000)))
        for fetched in consumer.fetch():
            for row in fetched.rows():
                if ("to", to) in row.headers:
                    return _fields(row.value or b"")
    raise OutcomeUnknown(
        f"command {request.id!r} to {request.entity!r} was not answered for {timeout_s:g} s: it may be done, or not;"
        f" send it again under the same id, and see whether store {named.name} runs"
    )


def _follower(cluster: Cluster, replies: Iterable[TopicPartition]) -> Consumer:
    """At the end of the replies, which it has read once."""
    found = list_offsets(cluster, dict.fromkeys(replies, LATEST), isolation=READ_COMMITTED)
    ends = {at: one.offset for at, one in found.items()}
    consumer = Consumer(cluster, read_committed=True, max_wait_ms=0)
    consumer.assign(ends)
    consumer.fetch()
    consumer.assign(ends)  # what came meanwhile is nobody's answer here, and costs nothing to read again
    return consumer


def _fields(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
        if not isinstance(found, dict):
            raise TypeError(f"it is {type(found).__name__}")
        return found
    except (TypeError, ValueError, RecursionError) as fault:
        raise HistoryFault(f"the reply {data[:200]!r} cannot be read: {fault}") from fault
