"""What a wait has come to, and what marks say of time: whether a sink is at a time, and who holds it back. Pure.

`docs/decisions/watermarks_in_marks.md` has the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tidelog.control.counts import held_in
from tidelog.control.marks import NOTHING_HELD, Ends, Mark
from tidelog.views.stores.store import Place


@dataclass(frozen=True, slots=True)
class Awaited:
    """What a wait has come to: where the store is, and what is read and not shown yet, as the marks on the way say."""

    place: Place
    marks: Mapping[str, Mark] = field(default_factory=dict)  # by the topic that a sink writes

    @property
    def generation(self) -> int:
        return self.place.generation

    @property
    def ends(self) -> Ends:
        return self.place.ends

    @property
    def mark(self) -> Mark | None:
        return self.place.mark

    @property
    def watermark_ms(self) -> int | None:
        """The lowest on the way; None where nothing is held for one, or it is not told."""
        found = [one.watermark_ms for one in self._all if one.watermark_ms not in (None, NOTHING_HELD)]
        return min((at for at in found if at is not None), default=None)

    @property
    def held(self) -> dict[str, int]:
        """Rows that operators of ours hold for the watermark, by operator."""
        found: dict[str, int] = {}
        for mark in self._all:
            for name, rows in held_in(mark.counts).items():
                found[name] = found.get(name, 0) + rows
        return found

    @property
    def _all(self) -> list[Mark]:
        """Of the view's own sink, what the store has: it may be further than what was waited for."""
        own = {} if self.place.mark is None else {self.place.mark.sink: self.place.mark}
        return list(({mark.sink: mark for mark in self.marks.values()} | own).values())


def is_at(mark: Mark, event_time_ms: int | None) -> bool:
    """Whether all up to that time was put out, as far as the sink holds rows back at all."""
    if event_time_ms is None or mark.watermark_ms == NOTHING_HELD:
        return True
    return mark.watermark_ms is not None and mark.watermark_ms >= event_time_ms


def holding(mark: Mark, event_time_ms: int | None) -> dict[str, int]:
    """Inputs that hold the watermark below that time unless there is something new in them, and where each is."""
    if event_time_ms is None or is_at(mark, event_time_ms):
        return {}
    return {topic: at for topic, at in mark.watermarks.items() if at < event_time_ms}


def milliseconds_of(time: datetime | int) -> int:
    """Since 1970. A time without a zone is this machine's."""
    return time if isinstance(time, int) else int(time.astimezone(UTC).timestamp() * 1000)
