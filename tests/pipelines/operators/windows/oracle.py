"""What windows come to, in plain Python: one row and one window at a time, with nothing packed and nothing forgotten.

Each oracle takes micro-batches as the mechanism does (`run(rows, watermark)`), and gives what is to be put out, in the
order of key and window, and the rows that came too late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipelines.operators.windows.mechanism import Late, Row, Told

MS = 1_000


class Rules(NamedTuple):
    """Microseconds."""

    early: bool = False
    allowed: int | None = None


def values_of(rows: Sequence[Row]) -> tuple[Any, ...]:
    """As `mechanism.AGGREGATES`; rows in the order of arrival."""
    numbers = [row.x for row in rows if row.x is not None]
    total = sum(numbers) if numbers else None
    if not rows:
        return (0, None, None, None)
    times = [row.at for row in rows if row.at is not None]
    earliest = next(row.x for row in rows if row.at == min(times))
    newest = next(row.x for row in reversed(rows) if row.at == max(times))
    return (len(rows), total, earliest, newest)


def order(key: str | None) -> tuple[bool, str]:
    return (key is not None, key or "")


@dataclass
class Window:
    key: str | None
    start: int
    end: int
    rows: list[Row] = field(default_factory=list)
    told: tuple[Any, ...] | None = None
    changed: bool = False


@dataclass
class GridOracle:
    """[start, end) every `every` from `offset`."""

    size: int
    every: int
    offset: int
    rules: Rules
    windows: dict[tuple[str | None, int], Window] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: {"in": 0, "aggregated": 0, "late": 0})

    def starts(self, at: int) -> Iterator[int]:
        start = at - (at - self.offset) % self.every
        while start > at - self.size:
            yield start
            start -= self.every

    def run(self, rows: Sequence[Row], watermark: int | None) -> tuple[list[Told], list[Late]]:
        reached = -(2**62) if watermark is None else watermark * MS
        late = []
        told = [
            each for window in self._sorted() if self._over(window, reached) for each in self._tell(window, reached)
        ]
        for row in rows:
            late += self._take(row, reached)
        told += [each for window in self._sorted() for each in self._tell(window, reached)]
        return sorted(told, key=lambda each: (order(each.key), each.start, each.end)), late

    def _over(self, window: Window, reached: int) -> bool:
        return window.end + (self.rules.allowed or 0) <= reached

    def _take(self, row: Row, reached: int) -> Iterator[Late]:
        if row.at is None:
            self.counts["in"] += 1
            self.counts["late"] += 1
            yield Late(row, None, None)
            return
        for start in self.starts(row.at):
            self.counts["in"] += 1
            window = Window(row.key, start, start + self.size)
            if self._over(window, reached):
                self.counts["late"] += 1
                yield Late(row, window.start, window.end)
                continue
            self.counts["aggregated"] += 1
            window = self.windows.setdefault((row.key, start), window)
            window.rows.append(row)
            window.changed = True

    def _tell(self, window: Window, reached: int) -> Iterator[Told]:
        if not (self.rules.early or window.end <= reached) or not (window.changed or window.told is None):
            return
        now = values_of(window.rows)
        place = (window.key, window.start, window.end)
        if window.told is None:
            yield Told("+I", *place, now)
        else:
            yield Told("-U", *place, window.told)
            yield Told("+U", *place, now)
        window.told, window.changed = now, False

    def _sorted(self) -> list[Window]:
        return [self.windows[each] for each in sorted(self.windows, key=lambda place: (order(place[0]), place[1]))]


@dataclass
class SlidingOracle:
    """[t - d, t] for every record, and [t + 1, t + 1 + d] where it holds another; [0, d] for 0 <= t < d. In ms."""

    size: int
    rules: Rules
    taken: list[Row] = field(default_factory=list)
    over: int = -(2**62)  # windows that end before it took no more rows in the last micro-batch
    told: dict[tuple[str | None, int], list[Row]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: {"in": 0, "aggregated": 0, "late": 0})

    def run(self, rows: Sequence[Row], watermark: int | None) -> tuple[list[Told], list[Late]]:
        reached = -(2**62) if watermark is None else watermark
        closed = reached - (self.rules.allowed or 0) // MS  # windows that end before it take no more rows
        told = list(self._tell(reached, closed, over=True))
        late = [each for row in rows for each in self._take(row, closed)]
        told += self._tell(reached, closed, over=False)
        self.over = closed
        return sorted(told, key=lambda each: (order(each.key), each.start, each.end)), late

    def entered(self, time: int) -> int:
        return 0 if 0 <= time < self.size else time - self.size

    def _take(self, row: Row, closed: int) -> Iterator[Late]:
        self.counts["in"] += 1
        if row.at is None:
            self.counts["late"] += 1
            yield Late(row, None, None)
            return
        time = row.at // MS
        start = self.entered(time)
        late = start + self.size < closed
        self.counts["late" if late else "aggregated"] += 1
        if late:
            yield Late(row, start * MS, (start + self.size) * MS)
        if time + self.size >= closed:
            self.taken.append(row)

    def _windows(self) -> Iterator[tuple[str | None, int, list[Row]]]:
        for key in {row.key for row in self.taken}:
            its = [row for row in self.taken if row.key == key]
            times = {row.at // MS for row in its if row.at is not None}
            for start in sorted({self.entered(time) for time in times} | {time + 1 for time in times}):
                inside = [row for row in its if row.at is not None and start <= row.at // MS <= start + self.size]
                if inside:
                    yield key, start, inside

    def _tell(self, reached: int, closed: int, *, over: bool) -> Iterator[Told]:
        for key, start, rows in self._windows():
            before = self.told.get((key, start))
            due = self.rules.early or start + self.size < reached
            if before == rows or not due or over != (start + self.size < closed):
                continue
            if start + self.size < self.over:
                continue  # whatever is there now came too late for it
            place = (key, start * MS, (start + self.size) * MS)
            if before is None:
                yield Told("+I", *place, values_of(rows))
            else:
                yield Told("-U", *place, values_of(before))
                yield Told("+U", *place, values_of(rows))
            self.told[key, start] = rows


@dataclass
class SessionOracle:
    """Records no further apart than the gap, from the first to the gap behind the last. Microseconds."""

    gap: int
    rules: Rules
    sessions: list[Window] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: {"in": 0, "aggregated": 0, "late": 0})

    def run(self, rows: Sequence[Row], watermark: int | None) -> tuple[list[Told], list[Late]]:
        reached = -(2**62) if watermark is None else watermark * MS
        self.counts["in"] += len(rows)
        late = [Late(row, None, None) for row in rows if row.at is None]
        told: list[Told] = []
        for key in sorted({row.key for row in rows} | {session.key for session in self.sessions}, key=order):
            its = [row for row in rows if row.key == key and row.at is not None]
            for sessions, more in self._together(key, its):
                put_out, too_late = self._tell(key, sessions, more, reached)
                told += put_out
                late += too_late
        self.counts["late"] += len(late)
        self.counts["aggregated"] += len(rows) - len(late)
        self.sessions = [each for each in self.sessions if each.end + (self.rules.allowed or 0) > reached]
        return sorted(told, key=lambda each: (order(each.key), each.start, each.end)), late

    def _together(self, key: str | None, rows: list[Row]) -> Iterator[tuple[list[Window], list[Row]]]:
        """Sessions and rows of a key that go together, by joining one thing after the other to what it touches."""
        clusters: list[tuple[list[Window], list[Row], int, int]] = []
        things = [([each], [], each.start, each.end - self.gap) for each in self.sessions if each.key == key]
        for thing in [*things, *(([], [row], row.at, row.at) for row in rows)]:
            touching = [each for each in clusters if thing[2] <= each[3] + self.gap and each[2] <= thing[3] + self.gap]
            clusters = [each for each in clusters if each not in touching]
            joined = [*touching, thing]
            inside = [each for sessions, *_ in joined for each in sessions]
            more = [row for _, rows, *_ in joined for row in rows]
            clusters.append((inside, more, min(each[2] for each in joined), max(each[3] for each in joined)))
        for sessions, more, *_ in sorted(clusters, key=lambda each: each[2]):
            yield sessions, [row for row in rows if any(row is each for each in more)]

    def _tell(
        self, key: str | None, sessions: list[Window], rows: list[Row], reached: int
    ) -> tuple[list[Told], list[Late]]:
        times = [row.at for row in rows if row.at is not None]
        end = max([each.end for each in sessions] + [time + self.gap for time in times])
        if end + (self.rules.allowed or 0) <= reached or not rows:
            told = [each for session in sessions for each in self._insert(session, reached)]
            return told, [Late(row, time, time + self.gap) for row, time in zip(rows, times, strict=True)]
        start = min([each.start for each in sessions] + times)
        merged = Window(key, start, end, [row for each in sessions for row in each.rows] + rows)
        self.sessions = [each for each in self.sessions if each not in sessions] + [merged]
        before = [each for each in sessions if each.told is not None]
        again = len(before) == 1 and (before[0].start, before[0].end) == (start, end)
        taken_back = [Told("-U" if again else "-D", key, each.start, each.end, each.told or ()) for each in before]
        new = [each._replace(op="+U" if again else "+I") for each in self._insert(merged, reached)]
        return taken_back + new, []

    def _insert(self, session: Window, reached: int) -> Iterator[Told]:
        if session.told is None and (self.rules.early or session.end <= reached):
            session.told = values_of(session.rows)
            yield Told("+I", session.key, session.start, session.end, session.told)
