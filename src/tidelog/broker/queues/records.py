"""What queues keep in the internal topic `__tidelog.queues`, as JSON.

    key                                                             value (a tombstone: there is none any more)
    {"v":1,"kind":"group","group":G}                                {"since":MS}    a share group exists
    {"v":1,"kind":"queue","group":G,"topic":ID,"partition":P}       {"topic":T,"start":N,"spans":[...]}    all of it
                                                                    {"set":[...]}     what has become of records
                                                                    {"start":N}       nothing below N is there
                                                                    {"end":N}         nothing from N on is there

A span is `[first, last, state, count]`, with the states of `window`.

Rules: keys are written in this order of fields, so that equal keys are equal bytes. Topic ids are hexadecimal. All but
the first form of a queue's value are changes to what the records before it say, so this topic is never compacted: what
bounds it is the snapshot (`internal`), which has the first form alone. A key of a newer version, or of a kind that is
not listed, is refused: a fold never skips.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidelog.broker.decision import NewRecord
from tidelog.broker.queues.window import QueueSpan, QueueWindow
from tidelog.broker.record_text import decode_key, encode

VERSION = 1
KINDS = ("group", "queue")


def group_record(group: str, since_ms: int | None) -> NewRecord:
    """None: the group is no more."""
    key = encode({"v": VERSION, "kind": "group", "group": group})
    return NewRecord(key, None if since_ms is None else encode({"since": since_ms}))


def whole_record(group: str, topic_id: bytes, partition: int, topic: str, window: QueueWindow) -> NewRecord:
    value = {"topic": topic, "start": window.start, "spans": [span[:4] for span in window.kept()]}
    return NewRecord(queue_key(group, topic_id, partition), encode(value))


def set_record(group: str, topic_id: bytes, partition: int, spans: Iterable[QueueSpan]) -> NewRecord:
    return NewRecord(queue_key(group, topic_id, partition), encode({"set": [span[:4] for span in spans]}))


def bound_record(group: str, topic_id: bytes, partition: int, bound: str, offset: int) -> NewRecord:
    """`bound` is start or end."""
    return NewRecord(queue_key(group, topic_id, partition), encode({bound: offset}))


def gone_record(group: str, topic_id: bytes, partition: int) -> NewRecord:
    return NewRecord(queue_key(group, topic_id, partition), None)


def queue_key(group: str, topic_id: bytes, partition: int) -> bytes:
    return encode({"v": VERSION, "kind": "queue", "group": group, "topic": topic_id.hex(), "partition": partition})


def parse_key(key: bytes) -> dict[str, Any]:
    return decode_key(key, "__tidelog.queues", VERSION, KINDS)
