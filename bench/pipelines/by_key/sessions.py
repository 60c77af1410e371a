"""Sessions with a gap of 10 seconds by hand: put out when they are over, and corrected for another minute.

A session that has grown after it was put out is deleted, and inserted anew when it is over again; one that has got
another row in its midst is told anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from bench.pipelines.by_key.turns import OneTimer, Turn, at_millis, in_turns
from bench.pipelines.by_key.windows import shown
from pyspark.sql import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GAP, ALLOWED = 10_000, 60_000


def session(rows: DataFrame) -> DataFrame:
    return shown(in_turns(at_millis(rows), Sessions()))


class Session(NamedTuple):
    """From its first row to its last, whose value is `value`; `told`: it has been put out."""

    first: int
    last: int
    n: int
    value: int
    told: bool

    def with_(self, other: Session) -> Session:
        later = other if other.last >= self.last else self
        return Session(min(self.first, other.first), later.last, self.n + other.n, later.value, False)

    def put_out(self, op: str, key: int) -> Row:
        return Row(op=op, start=self.first, until=self.last + GAP, key=key, n=self.n, last=self.value)


class Sessions(OneTimer):
    KEPT = "sessions array<struct<first bigint, last bigint, n bigint, value bigint, told boolean>>"
    OUTPUT = "op string, start bigint, until bigint, key bigint, n bigint, last bigint"

    def turn(self, key: int, held: tuple[Any, ...] | None, rows: list[Any], watermark: int) -> Turn:
        old = [Session(*each) for each in held[0]] if held else []
        new = [Session(row.at, row.at, 1, row.value, False) for row in rows]
        output: list[Row] = []
        kept: list[Session] = []
        for together in merged(old, new):
            kept += self._told(key, *together, watermark, output)
        kept = [each for each in kept if each.last + GAP + ALLOWED > watermark]
        if not kept:
            return Turn(None, None, output)
        due = min(each.last + GAP + (ALLOWED if each.told else 0) for each in kept)
        return Turn(([tuple(each) for each in kept],), due, output)

    def _told(
        self, key: int, whole: Session, old: list[Session], grown: bool, watermark: int, output: list[Row]
    ) -> list[Session]:
        """What stays of sessions and rows that came together; what is to be put out of it goes to `output`."""
        if not grown or whole.last + GAP + ALLOWED <= watermark:
            due = [each for each in old if not each.told and each.last + GAP <= watermark]
            output += [each.put_out("+I", key) for each in due]
            return [each._replace(told=each.told or each in due) for each in old]
        again = False
        for each in old:
            if each.told:
                same = each[:2] == whole[:2]
                again = again or same
                output.append(each.put_out("-U" if same else "-D", key))
        over = whole.last + GAP <= watermark
        if over:
            output.append(whole.put_out("+U" if again else "+I", key))
        return [whole._replace(told=over)]


def merged(old: list[Session], new: list[Session]) -> list[tuple[Session, list[Session], bool]]:
    """What is no further apart than the gap, as one; the old sessions in it, and whether there are new rows."""
    found: list[tuple[Session, list[Session], bool]] = []
    parts = [*((each, True) for each in old), *((each, False) for each in new)]
    for each, is_old in sorted(parts, key=lambda part: part[0].first):
        if found and each.first <= found[-1][0].last + GAP:
            whole, those, grown = found[-1]
            found[-1] = (whole.with_(each), [*those, each] if is_old else those, grown or not is_old)
        else:
            found.append((each, [each] if is_old else [], not is_old))
    return found
