"""What is backed up with a log because it rests on it: the checkpoints and stores of apps. Said here, known elsewhere.

    before_cut    what may be older than the log is copied (stores), and the companion begins to hold what changes
    after_cut     it has got hold of all that belongs to the cut, or to an earlier instant
    belonging     which of what it holds belongs to the log of this cut: `missing` says why a newer cut is needed

A companion is asked all three again for a newer cut. What it rests on it learns from the log itself, as the cut has it:
`CutLog` reads topics of one partition from the files that are pinned, and asks no broker.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from tidelog.broker.backup.cut import Cut
from tidelog.broker.backup.pins import Pin, Pinned
from tidelog.errors import BackupError
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.names import partition_name
from tidelog.record import codec
from tidelog.record.columns import decode
from tidelog.record.control import COMMIT, read_marker
from tidelog.record.header import TRUNCATED, BatchHeader

READ_WINDOW = 4 << 20
LAST_BATCHES = 1000  # among which the last committed record is looked for first

Batch = tuple[BatchHeader, bytes]


class CutEntry(NamedTuple):
    """A record of the cut. One that is not decided is of a transaction that was open: a restart ends it, either way."""

    key: bytes | None
    value: bytes | None
    is_decided: bool


class CutReading(Protocol):
    """What a companion may ask of a cut."""

    @property
    def topics(self) -> frozenset[str]: ...
    def entries(self, topic: str) -> list[CutEntry]: ...
    def last(self, topic: str) -> list[CutEntry]: ...


class Belonging(Protocol):
    """`files` are paths by the names that they have in the backup, `about` is what a restore has to know."""

    @property
    def files(self) -> Mapping[str, str]: ...
    @property
    def about(self) -> Mapping[str, Any]: ...
    @property
    def missing(self) -> str: ...


class Companion(Protocol):
    def before_cut(self, scratch: str) -> None: ...
    def after_cut(self) -> None: ...
    def belonging(self, log: CutReading) -> Belonging: ...
    def release(self) -> None: ...


class CutLog:
    """Topics of one partition, as a cut has them: what was committed, and what was open."""

    def __init__(self, cut: Cut, pinned: list[Pinned]) -> None:
        by_folder = {one.folder: one for one in pinned}
        folders = {name: partition_name(bytes.fromhex(topic_id), 0) for topic_id, name in cut.topics.items()}
        self._pinned = {name: by_folder[folder] for name, folder in folders.items() if folder in by_folder}

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self._pinned)

    def entries(self, topic: str) -> list[CutEntry]:
        """All of a small topic, by offset; none of one that is not there."""
        pinned = self._pinned.get(topic)
        return [] if pinned is None else decided(batches(pinned, topic))

    def last(self, topic: str) -> list[CutEntry]:
        """The last that is committed, and what is open behind it: at most two where one writes after the other."""
        pinned = self._pinned.get(topic)
        if pinned is None:
            return []
        tail = _since_commit(decided(deque(batches(pinned, topic), LAST_BATCHES)))
        return tail if any(one.is_decided for one in tail) else _since_commit(self.entries(topic))


def _since_commit(entries: list[CutEntry]) -> list[CutEntry]:
    last = max((place for place, one in enumerate(entries) if one.is_decided), default=0)
    return entries[last:]


def decided(found: Iterator[Batch] | deque[Batch]) -> list[CutEntry]:
    """Records without those that were aborted, by offset. Pure."""
    kept = list(found)
    outcome: dict[int, bool] = {}  # by producer, of what lies before: whether its transaction was committed
    made: list[list[CutEntry]] = []
    for header, data in reversed(kept):
        if header.is_control:
            outcome[header.producer_id] = read_marker(data).kind == COMMIT
            continue
        is_open = header.is_transactional and header.producer_id not in outcome
        if header.is_transactional and not outcome.get(header.producer_id, True):
            continue
        made.append([CutEntry(row.key, row.value, not is_open) for row in decode(data).rows()])
    return [entry for batch in reversed(made) for entry in batch]


def batches(pinned: Pinned, topic: str) -> Iterator[Batch]:
    names = list(pinned.segments)
    for name in names:
        stop = pinned.mark.position if name == names[-1] else None
        yield from _batches(pinned.segments[name], stop, f"{topic}: {name}")


def _batches(pin: Pin, stop: int | None, said: str) -> Iterator[Batch]:
    fd = pin.open()
    try:
        stop = os.fstat(fd).st_size if stop is None else stop
        position, window = HEADER_BLOCK, READ_WINDOW
        while position < stop:
            data = os.pread(fd, min(window, stop - position), position)
            found = codec.scan(data, 0, crc=False)
            for header, at in zip(found.headers, found.positions, strict=True):
                yield header, data[at : at + header.size]
            is_cut = found.error is not None and found.error.startswith(TRUNCATED) and position + len(data) < stop
            if found.error is not None and not is_cut:
                raise BackupError(f"{said} is damaged at byte {position + found.end}: {found.error}; repair it first")
            window = READ_WINDOW if found.end else 2 * window
            position += found.end
    finally:
        os.close(fd)
