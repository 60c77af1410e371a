"""How far a capture is: a fold over what it has written, kept in one record (`control/captures.py`).

    position      of the source, after the last transaction that is stored whole; None before there is one
    open, rows    the transaction of which a part is stored, and how many of its rows and messages are
    snapshot      the initial snapshot while it is under way: where it began, what is left of each table
    incremental   an incremental snapshot while it is under way (`incremental.py`)
    signals       the next offset of the signal topic
    commands      the next offset of `__tidelog.commands`; None before a capture has begun

Rules:
- `apply` is all that changes it. The record of what it gives lies in the transaction of the rows that it counts, so
  after a crash either both are there or neither is.
- After a restart the source streams from `position`. Of the transaction that is `open` the first `rows` are skipped:
  they are stored (`Passing`). Its BEGIN is stored too. A source that then begins with another transaction has lost one.
- Rows and messages count; a change of schema does not, since sources may tell it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidelog.capture.change import Begin, Commit, Event, Idle, Message, Position, RowChange
from tidelog.errors import MalformedMark, SourceLost


@dataclass(frozen=True, slots=True)
class CaptureProgress:
    position: Position | None = None
    open: str | None = None
    rows: int = 0
    snapshot: Mapping[str, Any] | None = None
    incremental: Mapping[str, Any] | None = None
    signals: int = 0
    commands: int | None = None


def apply(progress: CaptureProgress, events: Iterable[Event]) -> CaptureProgress:
    """After these were written."""
    position, opened, rows = progress.position, progress.open, progress.rows
    for event in events:
        kind = type(event)
        if kind is RowChange or (kind is Message and opened is not None):
            rows += 1
        elif isinstance(event, Begin):
            if event.id != opened:
                opened, rows = event.id, 0
        elif isinstance(event, Commit):
            position, opened, rows = event.position, None, 0
        elif isinstance(event, Idle) and opened is None:
            position = event.position
    return replace(progress, position=position, open=opened, rows=rows)


def to_fields(progress: CaptureProgress) -> dict[str, Any]:
    opened = None if progress.open is None else {"id": progress.open, "rows": progress.rows}
    return {
        "position": None if progress.position is None else dict(progress.position),
        "open": opened,
        "snapshot": progress.snapshot,
        "incremental": progress.incremental,
        "signals": progress.signals,
        "commands": progress.commands,
    }


def from_fields(content: Mapping[str, Any]) -> CaptureProgress:
    try:
        opened = content.get("open") or {}
        return CaptureProgress(
            position=content["position"],
            open=opened.get("id"),
            rows=int(opened.get("rows", 0)),
            snapshot=content.get("snapshot"),
            incremental=content.get("incremental"),
            signals=int(content.get("signals", 0)),
            commands=None if content.get("commands") is None else int(content["commands"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedMark(f"a capture's progress cannot be read: {error!r}") from error


class Passing:
    """What of the first transaction after a restart is stored already."""

    def __init__(self, progress: CaptureProgress) -> None:
        self._open, self._left = progress.open, progress.rows if progress.open is not None else 0
        self._inside = False

    @property
    def done(self) -> bool:
        return self._open is None

    def split(self, events: Iterable[Event]) -> tuple[list[Event], list[Event]]:
        """Those that are stored, and those that are not. Both are to be counted; only the second to be written."""
        stored: list[Event] = []
        fresh: list[Event] = []
        for event in events:
            (stored if self._is_stored(event) else fresh).append(event)
        return stored, fresh

    def _is_stored(self, event: Event) -> bool:
        if self._open is None:
            return False
        if isinstance(event, Begin):
            if event.id != self._open:
                raise SourceLost(
                    f"the source begins with transaction {event.id}, and of transaction {self._open} the first"
                    f" {self._left} rows are stored: the rest of it is lost; capture again with --snapshot when_needed"
                )
            self._inside = True
            self._open = self._open if self._left else None
            return True
        if not self._inside or not isinstance(event, RowChange | Message):
            if isinstance(event, Commit):
                raise SourceLost(
                    f"transaction {self._open} ended {self._left} rows before those that are stored of it; the source"
                    " does not give what it gave before: capture again with --snapshot when_needed"
                )
            return False
        self._left -= 1
        if not self._left:
            self._open = None
        return True
