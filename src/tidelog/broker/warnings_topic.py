"""The compacted topic `__tidelog.warnings`: what the broker tells of records that groups lose, or are about to.

    kind         written by            about
    retention    watch.py              a group that retention is about to overtake, or has
    dropped      overload/ledger.py    a partition under `tidelog.overload.policy=drop`: what each group lost

A key is JSON with "v" and "kind" first. The topic is made when the first record is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.broker import record_text
from tidelog.broker.topics import WARNINGS_TOPIC
from tidelog.errors import HoleError, MalformedBatch

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.log.log import Log

VERSION = 1
READ_BYTES = 1 << 20


def warnings_log(broker: Broker) -> Log:
    partition = broker.find_partition(WARNINGS_TOPIC.name, 0)
    assert partition is not None
    return partition.log


def write(broker: Broker, records: Sequence[tuple[dict[str, Any], dict[str, Any] | None]], now_ms: int) -> Log:
    """Appends keys and values as one batch, and returns the log: when its end is visible, they are on disk."""
    from tidelog.record.codec import check
    from tidelog.record.columns import encode

    rows = [
        (record_text.encode({"v": VERSION, **key}), None if value is None else record_text.encode(value), (), now_ms)
        for key, value in records
    ]
    batch = encode(rows)
    log = warnings_log(broker)
    log.load()
    log.append(memoryview(batch), check(batch), now_ms)
    return log


def read(log: Log, kind: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """In a worker thread: the newest record of each key of a kind. Where the topic is damaged, those before that."""
    from tidelog.record.codec import scan
    from tidelog.record.columns import decode

    log.load()
    newest: dict[bytes, bytes | None] = {}
    offset = log.start_offset
    while True:
        try:
            piece = log.read(offset, READ_BYTES)
            if piece is None:
                break
            data = piece.read()
            newest.update({row.key or b"{}": row.value for row in decode(data).rows()})
        except (HoleError, MalformedBatch):
            break
        offset = scan(data, crc=False).headers[-1].next_offset
    pairs = [(record_text.decode(key), record_text.decode(value)) for key, value in newest.items() if value is not None]
    return [(key, value) for key, value in pairs if key.get("v") == VERSION and key.get("kind") == kind]
