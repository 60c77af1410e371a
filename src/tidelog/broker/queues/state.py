"""The state of all queues: a fold over the records of `__tidelog.queues`, and beside it what lives in memory only.

    groups      share groups, and since when they exist      records "group"
    queues      the window of each partition by group        records "queue"
    live        members, sessions, deadlines                 none: a restart begins it anew

Rules: all but `live`, and the holds in windows, change in `apply` alone. Members are memory only: a share group assigns
every partition to everybody who subscribes to it, so there is nothing that one member could keep from another, and one
whom a restart has forgotten joins again and goes on. A group id that is here is not a consumer group's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidelog.broker.decision import NewRecord
from tidelog.broker.queues.records import group_record, parse_key, whole_record
from tidelog.broker.queues.window import QueueWindow
from tidelog.broker.record_text import decode

Place = tuple[bytes, int]  # a topic's id, and a partition of it


class Queue(NamedTuple):
    topic: str
    window: QueueWindow


@dataclass(slots=True)
class ShareMember:
    member_id: str
    client_id: str
    host: str
    rack_id: str | None = None
    topics: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: tuple[Place, ...] = ()
    deadline_ms: int = 0


@dataclass(slots=True)
class LiveShareGroup:
    epoch: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)


@dataclass(slots=True)
class Queues:
    groups: dict[str, int] = field(default_factory=dict)
    queues: dict[str, dict[Place, Queue]] = field(default_factory=dict)
    live: dict[str, LiveShareGroup] = field(default_factory=dict, compare=False)

    def queue(self, group: str, place: Place) -> Queue | None:
        return self.queues.get(group, {}).get(place)

    def members(self, group: str) -> dict[str, ShareMember]:
        return self.live[group].members if group in self.live else {}

    def group_state(self, group: str) -> str:
        return "Stable" if self.members(group) else "Empty"


def fresh() -> Queues:
    return Queues()


def apply(state: Queues, key: bytes, value: bytes | None) -> None:
    """Folds one record into the state; None is a tombstone."""
    parsed = parse_key(key)
    content = decode(value) if value is not None else None
    group: str = parsed["group"]
    if parsed["kind"] == "queue":
        _apply_queue(state, group, (bytes.fromhex(parsed["topic"]), parsed["partition"]), content)
    elif content is None:
        state.groups.pop(group, None)
    else:
        state.groups[group] = content["since"]


def _apply_queue(state: Queues, group: str, place: Place, content: dict[str, Any] | None) -> None:
    queues = state.queues.setdefault(group, {})
    if content is None:
        queues.pop(place, None)
        if not queues:
            del state.queues[group]
    elif "spans" in content:
        window = QueueWindow(content["start"])
        for span in content["spans"]:
            window.put(*span)
        queues[place] = Queue(content["topic"], window)
    elif "set" in content:
        for span in content["set"]:
            queues[place].window.put(*span)
    elif "start" in content:
        queues[place].window.advance_to(content["start"])
    else:
        queues[place].window.cut(content["end"])


def to_records(state: Queues) -> Iterable[NewRecord]:
    """The records whose fold is this state: its snapshot."""
    for group, since_ms in state.groups.items():
        yield group_record(group, since_ms)
    for group, queues in state.queues.items():
        for (topic_id, partition), queue in queues.items():
            yield whole_record(group, topic_id, partition, queue.topic, queue.window)
