"""The window of a share partition: what is known of each record between what is done and what nobody was given yet.

    below `start`          done: accepted, or archived
    `start` to `end`       in `spans`, without a gap, in order
    from `end` on          available; nobody was given any of it

What a span says of its records, and who sets it:

    state           hold          they are                                              set by
    AVAILABLE       none          to be given to whoever asks                           a release, a lock that ran out
    AVAILABLE       LOCKED        acquired: the owner works on them until the hold ends `acquire`
    AVAILABLE       PARKED        not due yet; they are not in flight                   `hold_free`
    ARCHIVING       none          on their way to the dead-letter topic                 `put`
    ACKNOWLEDGED    none          accepted                                              `put`
    ARCHIVED        none          rejected, delivered too often, or no records at all   `put`

`count` is how many deliveries have ended without being accepted; the present one is not in it. States and counts are
kept (`state.apply` calls `put`, `advance_to` and `cut`); holds are memory only, so after a restart whatever was in
flight is available, and a delivery that a crash of the broker ended is not counted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

AVAILABLE = 0
ACKNOWLEDGED = 2
ARCHIVING = 3
ARCHIVED = 4
DONE = (ACKNOWLEDGED, ARCHIVED)

LOCKED = 1
PARKED = 2

CUT = -1  # a count that no other span has: what is to be cut off is not joined with what stays
DEADLINES_SLACK = 64
NEVER = 1 << 31


class Hold(NamedTuple):
    kind: int
    owner: str
    until_ms: int


class QueueSpan(NamedTuple):
    first: int
    last: int
    state: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of a span
    hold: Hold | None = None

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_free(self) -> bool:
        return self.state == AVAILABLE and self.hold is None

    @property
    def is_busy(self) -> bool:
        return self.state == ARCHIVING or (self.hold is not None and self.hold.kind == LOCKED)

    @property
    def is_tried(self) -> bool:
        return self.state == AVAILABLE and self.count > 0

    def says_as(self, other: QueueSpan) -> bool:
        return self[2:] == other[2:]


class Acquired(NamedTuple):
    first: int
    last: int
    deliveries: int


def _first(span: QueueSpan) -> int:
    return span.first


class QueueWindow:
    """Changed by its methods alone; each keeps the spans whole, and what counts them (`free` to `tried`) in step."""

    __slots__ = ("_deadlines", "busy", "done", "end", "free", "held", "spans", "start", "tried", "version")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.spans: list[QueueSpan] = []
        self.free: list[int] = []  # the first offset of each free span
        self.busy: list[int] = []  # of each that is acquired, or on its way to the dead letters
        self.done = 0  # records behind `start`
        self.tried = 0  # available ones that were delivered before
        self.version = 0  # another one after every change
        self.held = {LOCKED: 0, PARKED: 0}  # records, by the kind of their hold
        self._deadlines: list[tuple[int, int]] = []  # a heap; an entry counts while a span with that hold is there

    def __eq__(self, other: object) -> bool:
        """What is kept of both is the same."""
        return isinstance(other, QueueWindow) and self.start == other.start and self.kept() == other.kept()

    __hash__ = None  # type: ignore[assignment]

    # What is there ----------------------------------------------------------------------------------------------------

    def kept(self) -> list[QueueSpan]:
        """What a record says of the window: spans that are not as if nobody had been given them."""
        kept: list[QueueSpan] = []
        for span in self.spans:
            bare = span._replace(hold=None)
            if bare.state == AVAILABLE and bare.count == 0:
                continue
            if kept and kept[-1].last + 1 == bare.first and kept[-1].says_as(bare):
                bare = kept.pop()._replace(last=bare.last)
            kept.append(bare)
        return kept

    def next_free(self, at_least: int = 0) -> int:
        """The first record from `at_least` on that could be given; beyond `end` all could."""
        at = bisect_left(self.free, at_least)
        if at and (span := self._span_at(self.free[at - 1])).last >= at_least:
            return max(span.first, at_least)
        return self.free[at] if at < len(self.free) else max(self.end, at_least)

    def free_below(self, top: int) -> int:
        """How many records below `top` could be given."""
        known = sum(self._span_at(first).size for first in self.free)
        return known + max(0, top - self.end)

    def left(self, top: int) -> int:
        """How many records below `top`, which is at or behind `end`, are neither done nor parked."""
        return max(0, top - self.start - self.done - self.held[PARKED])

    def first_left(self) -> int:
        """The first of them; `end` where there may be none."""
        return min(self.free[0] if self.free else self.end, self.busy[0] if self.busy else self.end)

    def undone(self, first: int, top: int) -> int:
        """How many records of a range are not done; what nobody was given yet is not."""
        known = sum(span.size for span in self.between(first, top - 1) if span.state not in DONE)
        return known + max(0, top - max(first, self.end))

    def between(self, first: int, last: int) -> Iterator[QueueSpan]:
        """The spans of an offset range, cut to it; what is outside of the window is not among them."""
        at = max(0, bisect_right(self.spans, first, key=_first) - 1)
        while at < len(self.spans) and self.spans[at].first <= last:
            span = self.spans[at]
            if span.last >= first:
                yield span._replace(first=max(first, span.first), last=min(last, span.last))
            at += 1

    def owned(self, owner: str) -> list[QueueSpan]:
        busy = (self._span_at(first) for first in self.busy)
        return [span for span in busy if span.hold is not None and span.hold[:2] == (LOCKED, owner)]

    def dying(self) -> Iterator[QueueSpan]:
        """What is on its way to the dead-letter topic."""
        busy = (self._span_at(first) for first in self.busy)
        return (span for span in busy if span.state == ARCHIVING)

    def next_deadline(self) -> int | None:
        while self._deadlines:
            until, first = self._deadlines[0]
            if self._held_until(first, until) is not None:
                return until
            heappop(self._deadlines)
        return None

    def take_due(self, now_ms: int) -> list[QueueSpan]:
        """Spans whose hold has ended, as they stand; the caller says what becomes of them."""
        due: dict[int, QueueSpan] = {}  # a span may be in the heap more than once
        while (until := self.next_deadline()) is not None and until <= now_ms:
            first = heappop(self._deadlines)[1]
            span = self._held_until(first, until)
            assert span is not None, "next_deadline leaves out what is not held any more"
            due[span.first] = span
        return list(due.values())

    # Holds: memory only -----------------------------------------------------------------------------------------------

    def acquire(
        self,
        owner: str,
        first: int,
        top: int,
        most: int,
        until_ms: int,
        alone_from: int = NEVER,
        after: Sequence[Acquired] = (),
    ) -> list[Acquired]:
        """Gives up to `most` free records from `first` on and below `top` to an owner; those of `after`, which it
        has just got, are told with them.

        One that failed `alone_from` times is given alone: should it be what its workers die of, no other dies with it.
        """
        got = [*after]
        hold = Hold(LOCKED, owner, until_ms)
        while most > 0 and (at := self.next_free(first)) < top:
            if at >= self.end:
                self._grow(min(top, at + most))
            span = next(self.between(at, min(top - 1, at + most - 1)))
            if span.count >= alone_from:
                if got:
                    break
                span, most = span._replace(last=span.first), 1
            self._set(span.first, span.last, lambda old: old._replace(hold=hold))
            got.append(Acquired(span.first, span.last, span.count + 1))
            most -= span.size
            first = span.last + 1
        return got

    def hold_free(self, first: int, last: int, hold: Hold) -> None:
        """Parks what is free of a range."""
        if last >= self.end:
            self._grow(last + 1)
        self._set(first, last, lambda old: old._replace(hold=hold) if old.is_free else old)

    def hold_again(self, first: int, last: int, hold: Hold | None) -> None:
        """Another hold for records that have one: a lock is renewed, or becomes the broker's own; None lets go."""
        self._set(first, last, lambda old: old._replace(hold=hold) if old.hold is not None else old)

    def _held_until(self, first: int, until: int) -> QueueSpan | None:
        if not self.start <= first < self.end:
            return None
        span = self._span_at(first)
        return span if span.hold is not None and span.hold.until_ms == until else None

    # What is kept: `state.apply` alone --------------------------------------------------------------------------------

    def put(self, first: int, last: int, state: int, count: int) -> None:
        """What has become of a range; whatever held it is over."""
        first = max(first, self.start)
        if first > last:
            return
        if last >= self.end:
            self._grow(last + 1)
        self._set(first, last, lambda old: QueueSpan(old.first, old.last, state, count))
        self._move_start()

    def advance_to(self, start: int) -> None:
        """What lies below is gone: deleted, or skipped by an operator."""
        if start <= self.start:
            return
        if start >= self.end:
            self._clear()
            self.start = self.end = start
            return
        self._set(self.start, start - 1, lambda old: QueueSpan(old.first, old.last, ARCHIVED, 0))
        self._move_start()

    def cut(self, end: int) -> None:
        """What lies at or above is gone: a crash took it before it was synced."""
        if end >= self.end:
            return
        if end <= self.start:
            self._clear()
            self.start = self.end = end
            return
        self._set(end, self.end - 1, lambda old: QueueSpan(old.first, old.last, ARCHIVED, CUT))
        self.done -= self.end - end
        del self.spans[bisect_left(self.spans, end, key=_first) :]
        self.end = end

    # ------------------------------------------------------------------------------------------------------------------

    def _move_start(self) -> None:
        done = 0
        while done < len(self.spans) and self.spans[done].state in DONE:
            done += 1
        if done:
            start = self.spans[done - 1].last + 1
            self.done -= start - self.start
            self.start = start
            del self.spans[:done]

    def _clear(self) -> None:
        self.spans.clear()
        self.free.clear()
        self.busy.clear()
        self.done = self.tried = 0
        self.version += 1
        self._deadlines.clear()
        self.held = dict.fromkeys(self.held, 0)

    def _span_at(self, offset: int) -> QueueSpan:
        return self.spans[bisect_right(self.spans, offset, key=_first) - 1]

    def _grow(self, end: int) -> None:
        self._splice(len(self.spans), len(self.spans), [QueueSpan(self.end, end - 1, AVAILABLE, 0)])
        self.end = end

    def _set(self, first: int, last: int, change: Callable[[QueueSpan], QueueSpan]) -> None:
        """Changes the spans of a range, cutting those at its ends; neighbours that say the same become one."""
        low = bisect_right(self.spans, first, key=_first) - 1
        high = bisect_right(self.spans, last, key=_first)
        new: list[QueueSpan] = []
        for span in self.spans[low:high]:
            if span.first < first:
                new.append(span._replace(last=first - 1))
            inner = span._replace(first=max(span.first, first), last=min(span.last, last))
            new.append(change(inner))
            if span.last > last:
                new.append(span._replace(first=last + 1))
        # A lock is not joined with the next one: each is told, and ends, by itself.
        if low > 0 and self.spans[low - 1].hold is None:
            low -= 1
            new.insert(0, self.spans[low])
        if high < len(self.spans) and self.spans[high].hold is None:
            new.append(self.spans[high])
            high += 1
        self._splice(low, high, _joined(new))

    def _splice(self, low: int, high: int, new: list[QueueSpan]) -> None:
        for span in self.spans[low:high]:
            if span.is_free:
                del self.free[bisect_left(self.free, span.first)]
            elif span.is_busy:
                del self.busy[bisect_left(self.busy, span.first)]
            if span.hold is not None:
                self.held[span.hold.kind] -= span.size
            if span.state in DONE:
                self.done -= span.size
            if span.is_tried:
                self.tried -= span.size
        self.version += 1
        self.spans[low:high] = new
        for span in new:
            if span.is_free:
                insort(self.free, span.first)
            elif span.is_busy:
                insort(self.busy, span.first)
            if span.state in DONE:
                self.done += span.size
            if span.is_tried:
                self.tried += span.size
            if span.hold is not None:
                self.held[span.hold.kind] += span.size
                heappush(self._deadlines, (span.hold.until_ms, span.first))
        if len(self._deadlines) > DEADLINES_SLACK + 4 * len(self.spans):
            self._deadlines = [(one.hold.until_ms, one.first) for one in self.spans if one.hold is not None]
            heapify(self._deadlines)


def _joined(spans: list[QueueSpan]) -> list[QueueSpan]:
    joined: list[QueueSpan] = []
    for span in spans:
        if joined and span.hold is None and joined[-1].says_as(span):
            joined[-1] = joined[-1]._replace(last=span.last)
        else:
            joined.append(span)
    return joined
