"""How far a generation is applied: compared, moved on, and as text. Pure; every store keeps its place by these.

    ends    {"TOPIC":{"0":12,"1":7}}        topics and partitions sorted, so that equal ends are equal text
    mark    the bytes of docs/formats/mark.md, or none

Rules:
- Ends are compared by partition, of those that an applier reads: all that are in `before` or in the stretch. One that
  is in neither belongs to somebody else's share, and is kept.
- A partition that is in no ends has had nothing applied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidelog.client import marks
from tidelog.client.marks import Ends, Mark
from tidelog.client.metadata import TopicPartition
from tidelog.errors import AnotherApplier
from tidelog.views.changes import Stretch
from tidelog.views.stores.store import Place


def moved(stored: Place, stretch: Stretch, before: Ends, *, view: str) -> Place:
    """The place after `stretch`. Refused where it is no longer the one that its applier read."""
    for at in sorted({*before, *stretch.ends}):
        if stored.ends.get(at) != before.get(at):
            raise AnotherApplier(
                f"view {view}, generation {stored.generation}: {at} is applied up to {_said(stored.ends.get(at))}, and"
                f" this applier had read {_said(before.get(at))}: another one is at work; stop one of the two"
            )
    return Place(stored.generation, {**stored.ends, **stretch.ends}, stretch.mark or stored.mark)


def _said(end: int | None) -> str:
    return "nothing" if end is None else f"offset {end}"


def ends_to_text(ends: Ends) -> str:
    grouped: dict[str, dict[str, int]] = {}
    for at in sorted(ends):
        grouped.setdefault(at.topic, {})[str(at.partition)] = ends[at]
    return json.dumps(grouped, separators=(",", ":"))


def ends_from_text(text: str) -> dict[TopicPartition, int]:
    grouped: Mapping[str, Mapping[str, Any]] = json.loads(text)
    return {TopicPartition(topic, int(index)): int(end) for topic, by in grouped.items() for index, end in by.items()}


def mark_to_text(mark: Mark | None) -> str | None:
    return None if mark is None else marks.encode(mark)[1].decode()


def mark_from_text(text: str | None) -> Mark | None:
    return None if text is None else marks.decode(text.encode())
