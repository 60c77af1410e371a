"""Feeds of a view's changes: where a reader is, and what a change means to it. Pure; `feed_reading.py` reads the topic.

    cursor     URL-safe base64 of [1,VIEW,GENERATION,[OFFSET,...],MS] in JSON, then its CRC-32: next offsets by
               partition, and the time of the last mark before them, for finding the place among marks again
    event      enter     a row that was not there, or did not match, and does now
               change    a row that is another; also one that enters, where the topic does not say what was before
               leave     a row that is gone, or does not match any more; also one that never did, where nobody knows
               truncated all rows of one partition of a captured table are gone
               switched  the view is another generation from here on: whoever keeps a copy reads the view anew

Rules:
- A cursor is opaque to its holder. One that was cut, changed or made for another view is refused.
- It may lie within a micro-batch: what comes after it is the rest of that one, and then the next.
- Whoever puts rows by `enter` and `change` and takes them away by `leave`, by key, has the view, or the rows of it that
  match. So what is sent twice does no harm, nor a `leave` of a row that it never had.
- `before` stands where the operator knew it. Where it is null and `op` is not c, nobody knows: a new row that does not
  match is then told as `leave`. No state is kept for it here.
- A place is within the horizon if the first mark after it is. Marks of one sink have one key, so what compaction
  leaves of them is always the last of the old ones and all of the young: whether or not a cursor's own mark is still
  there, the first one after it that is there tells.
"""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from tidelog.client.metadata import TopicPartition
from tidelog.control.catalog import Generation, View
from tidelog.control.marks import Ends
from tidelog.errors import NotShown, UsageError
from tidelog.schema.expression.evaluation import Predicate
from tidelog.views.changes import CREATE, READ, TRUNCATE, Change

VERSION = 1
TEXT_LENGTH_MAX = 64 << 10
CRC_BYTES = 4
OFFSET_MAX = 2**63 - 1
ENTER, CHANGE, LEAVE, SWITCHED, TRUNCATED = "enter", "change", "leave", "switched", "truncated"


class Cursor(NamedTuple):
    view: str
    generation: int
    offsets: tuple[int, ...]  # the next one of each partition
    time_ms: int = 0  # of the last mark before them; 0 for none

    def after(self, change: Change) -> Cursor:
        offsets = list(self.offsets)
        offsets[change.at.partition] = change.offset + 1
        return self._replace(offsets=tuple(offsets))

    def reaches(self, offsets: Sequence[int]) -> bool:
        return all(mine >= theirs for mine, theirs in zip(self.offsets, offsets, strict=True))

    def is_behind(self, other: Cursor) -> bool:
        """Whether rows that are here may be older than those that are there: also of an older generation."""
        if self.generation != other.generation:
            return self.generation < other.generation
        return not self.reaches(other.offsets)


def cursor_at(view: View, generation: Generation, ends: Ends, time_ms: int = 0) -> Cursor:
    offsets = tuple(ends.get(TopicPartition(generation.topic, index), 0) for index in range(generation.partitions))
    return Cursor(view.name, generation.number, offsets, time_ms)


def furthest(one: Cursor, other: Cursor) -> Cursor:
    """Where both have been, of one generation."""
    offsets = tuple(map(max, one.offsets, other.offsets))
    return one._replace(offsets=offsets, time_ms=max(one.time_ms, other.time_ms))


def after_switch(view: View) -> Cursor:
    """Where the live generation begins to count."""
    current = view.current
    assert current is not None, "a view that was begun has a live generation"
    return cursor_at(view, current, current.live or {})


# Text -----------------------------------------------------------------------------------------------------------------


def to_text(cursor: Cursor) -> str:
    content = [VERSION, cursor.view, cursor.generation, cursor.offsets, cursor.time_ms]
    said = json.dumps(content, separators=(",", ":")).encode()
    return urlsafe_b64encode(said + crc32(said).to_bytes(CRC_BYTES, "big")).decode().rstrip("=")


def from_text(text: str, view: str) -> Cursor:
    version, *fields = _content(text)
    if type(version) is int and version > VERSION:
        raise UsageError(f"the cursor has format {version}, and this Tidelog knows {VERSION}; use the newer one")
    try:
        of, generation, offsets, time_ms = fields
        numbers = (generation, time_ms, *offsets)
    except (ValueError, TypeError):
        raise _refused() from None
    if not isinstance(of, str) or not all(type(one) is int and 0 <= one <= OFFSET_MAX for one in numbers):
        raise _refused()
    if of != view:
        raise UsageError(f"the cursor is of view {of[:100]!r}, and this is {view!r}; take one of this view's")
    return Cursor(of, generation, tuple(offsets), time_ms)


def _content(text: str) -> list[Any]:
    try:
        if len(text) > TEXT_LENGTH_MAX:
            raise ValueError(text)
        raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        said, checksum = raw[:-CRC_BYTES], raw[-CRC_BYTES:]
        if crc32(said).to_bytes(CRC_BYTES, "big") != checksum:
            raise ValueError(text)
        content = json.loads(said)
    except (ValueError, RecursionError, binascii.Error):
        raise _refused() from None
    if not isinstance(content, list) or not content:
        raise _refused()
    return content


def _refused() -> UsageError:
    return UsageError("this is not a cursor; send one that you got from here, or leave it out to begin now")


def check_place(view: View, cursor: Cursor) -> None:
    """That a cursor is one of this view as it is, or as it was."""
    known = {one.number: one for one in view.generations}
    if view.live is not None and cursor.generation in known and cursor.generation > view.live:
        # The catalog is read as it was: somebody's open transaction may hide the switch. Live ones never go back.
        raise NotShown(f"generation {cursor.generation} of view {view.name} is not seen to be live yet; try again")
    if view.live is None or (cursor.generation not in known and cursor.generation > view.live):
        raise UsageError(
            f"the cursor is of generation {cursor.generation}, and view {view.name} has"
            f" {', '.join(map(str, known)) or 'none'}; read the view, and begin where it says"
        )
    if cursor.generation in known and len(cursor.offsets) != known[cursor.generation].partitions:
        raise _refused()


# Events ---------------------------------------------------------------------------------------------------------------


def event_of(change: Change, where: Predicate | None) -> str | None:
    """What a change is to who follows rows that match; None where it is nothing to it."""
    if change.op == TRUNCATE:
        return TRUNCATED
    now = _matches(change.after, where)
    was = _matches(change.before, where)
    if change.before is None and change.op not in (CREATE, READ):
        return CHANGE if now else LEAVE
    if now:
        return CHANGE if was else ENTER
    return LEAVE if was else None


def _matches(row: Mapping[str, object] | None, where: Predicate | None) -> bool:
    return row is not None and (where is None or where(row) is True)
