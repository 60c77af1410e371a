"""What a Tidelog broker itself says of groups that retention is about to overtake: the topic `__tidelog.warnings`.

It knows where segments begin and how fast a partition is written, which nobody can see from outside. Nothing where
there is no such topic, or where this client may not read it.
"""

from __future__ import annotations

from json import loads
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control import survey
from tidelog.control.reading import read_all
from tidelog.errors import BrokerError

TOPIC = TopicPartition("__tidelog.warnings", 0)
VERSION = 1
KIND = "retention"


class Warned(NamedTuple):
    state: str  # "warned", or "lost" when records have been deleted unread
    at_ms: int
    committed: int  # the group's offset at that time
    left_ms: int | None

    def left_now(self, now_ms: int) -> int | None:
        return None if self.left_ms is None else max(0, self.left_ms - max(0, now_ms - self.at_ms))


def read_warnings(cluster: Cluster) -> dict[tuple[str, TopicPartition], Warned]:
    """Those that are in force, by group and partition."""
    if not cluster.is_tidelog() or not survey.there(cluster, [TOPIC]):
        return {}
    newest: dict[bytes, bytes | None] = {}
    try:
        rows = read_all(cluster, TOPIC, committed=False)
        newest.update({row.key: row.value for row in rows if row.key is not None})
    except BrokerError:
        return {}
    found = {}
    for key, value in newest.items():
        place, told = loads(key), None if value is None else loads(value)
        if told is not None and place["v"] == VERSION and place["kind"] == KIND:
            at = TopicPartition(place["topic"], place["partition"])
            found[place["group"], at] = Warned(told["state"], told["at_ms"], told["committed"], told["left_ms"])
    return found
