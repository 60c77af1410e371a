"""How far a generation is applied: compared, moved on, and as text. Pure; every store keeps its place by these.

    ends    {"TOPIC":{"0":12,"1":7}}        topics and partitions sorted, so that equal ends are equal text
    mark    the bytes of docs/formats/mark.md, or none

Rules:
- Ends are compared by partition, of those that an applier reads: all that are in `before` or in the stretch. One that
  is in neither belongs to somebody else's share, and is kept.
- A partition that is in no ends has had nothing applied.
- The mark is one that all partitions have reached: of appliers that share a view, the last one to reach it notes it.
  So it may be older than some rows, and never newer. It does not go back.
- What is shown does not go back either: who was stopped before it showed a generation may wake up long after.
"""

from __future__ import annotations

import json

from tidelog.client.metadata import TopicPartition
from tidelog.control import marks
from tidelog.control.marks import Ends, Mark
from tidelog.control.offsets import from_fields, to_fields
from tidelog.errors import AnotherApplier
from tidelog.views.changes import Stretch
from tidelog.views.stores.store import Place, generation_of


def moved(stored: Place, stretch: Stretch, before: Ends, *, view: str) -> Place:
    """The place after `stretch`. Refused where it is no longer the one that its applier read."""
    for at in sorted({*before, *stretch.ends}):
        if stored.ends.get(at) != before.get(at):
            raise AnotherApplier(
                f"view {view}, generation {stored.generation}: {at} is applied up to {_said(stored.ends.get(at))}, and"
                f" this applier had read {_said(before.get(at))}: another one is at work; stop one of the two"
            )
    ends = {**stored.ends, **stretch.ends}
    return Place(stored.generation, ends, _mark(stored.mark, stretch, ends))


def _mark(stored: Mark | None, stretch: Stretch, ends: Ends) -> Mark | None:
    mark = stretch.mark
    if mark is None:
        return stored
    topics = {at.topic for at in stretch.ends}
    is_reached = all(at in ends and ends[at] >= end for at, end in mark.ends.items() if at.topic in topics)
    return mark if is_reached and (stored is None or _is_later(mark, stored)) else stored


def _is_later(mark: Mark, stored: Mark) -> bool:
    """By their numbers. Another query's begin anew, and then it is by what lies before them."""
    if mark.query_id == stored.query_id:
        return mark.batch_id >= stored.batch_id
    return any(end > stored.ends.get(at, 0) for at, end in mark.ends.items()) or mark.time_ms >= stored.time_ms


def is_to_show(generation: int, shown: int | None) -> bool:
    """Whether it is to take the place of what is shown: only a later one, or a later copy, is."""
    return shown is None or (generation_of(generation), generation) > (generation_of(shown), shown)


def _said(end: int | None) -> str:
    return "nothing" if end is None else f"offset {end}"


def ends_to_text(ends: Ends) -> str:
    return json.dumps(to_fields(ends), separators=(",", ":"))


def ends_from_text(text: str) -> dict[TopicPartition, int]:
    return from_fields(json.loads(text))


def mark_to_text(mark: Mark | None) -> str | None:
    return None if mark is None else marks.encode(mark)[1].decode()


def mark_from_text(text: str | None) -> Mark | None:
    return None if text is None else marks.decode(text.encode())
