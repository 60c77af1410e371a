"""What long-running parts report of themselves: the newest record of each in the compacted topic `__tidelog.status`."""

from __future__ import annotations

from json import loads
from typing import Any, NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets

STATUS = TopicPartition("__tidelog.status", 0)
VERSION = 1
TAIL_RECORDS = 500  # of the topic's end, in which every part that lives has reported


class Report(NamedTuple):
    kind: str
    name: str
    figures: dict[str, Any]


def read_status(cluster: Cluster) -> list[Report]:
    """Nothing where there is no such topic: beside Apache Kafka, or of a broker that has just started."""
    topic = cluster.ask_metadata([STATUS.topic]).topics.get(STATUS.topic)
    if topic is None or not topic.led:
        return []
    start = list_offsets(cluster, {STATUS: EARLIEST})[STATUS].offset
    end = list_offsets(cluster, {STATUS: LATEST})[STATUS].offset
    newest: dict[bytes, bytes | None] = {}
    consumer = Consumer(cluster)
    position = max(start, end - TAIL_RECORDS)
    consumer.assign({STATUS: position})
    while position < end:
        for fetched in consumer.fetch():
            position = fetched.next_offset
            newest.update({row.key: row.value for row in fetched.rows() if row.key is not None})
    return [_report(key, value) for key, value in newest.items() if value is not None and _known(key)]


def _known(key: bytes) -> bool:
    """A part that is newer than this gateway may report in a form that this one cannot read."""
    return bool(loads(key).get("v") == VERSION)


def _report(key: bytes, value: bytes) -> Report:
    parsed = loads(key)
    return Report(parsed["kind"], parsed["name"], loads(value))
