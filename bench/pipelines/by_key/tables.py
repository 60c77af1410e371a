"""Tables by hand: upserts of a key as a changelog, and the changelog of two tables joined by it.

Of upserts, the newest row of a key by `offset` is what it is; two tables of upserts are joined in one state. Tables
that come as changelogs have any number of rows of a key, and all of them are kept. The names of methods, and those of
their arguments, are Spark's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from bench.pipelines.changing import changes_sql
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEFT, RIGHT = 0, 1
by_offset = attrgetter("offset")


def as_changelog(rows: DataFrame) -> DataFrame:
    made = rows.groupBy("key").transformWithState(Upserts(), Upserts.OUTPUT, "Append", "None")
    return made.selectExpr("op as _op", "key", "value")


def join_tables(rows: DataFrame) -> DataFrame:
    return joined((rows.selectExpr(*changes_sql(side), f"{side} as side") for side in (LEFT, RIGHT)), Joined())


def join_upserts(rows: DataFrame) -> DataFrame:
    """No changelog of either table is needed on the way."""
    return joined((rows.selectExpr("*", f"{side} as side") for side in (LEFT, RIGHT)), JoinedUpserts())


def joined(sides: Iterable[DataFrame], program: Joined | JoinedUpserts) -> DataFrame:
    """Both tables in one stream and one state."""
    left, right = sides
    made = left.unionByName(right).groupBy("key").transformWithState(program, program.OUTPUT, "Append", "None")
    return made.selectExpr("op as _op", "key", "value", "other")


class Upserts(StatefulProcessor):
    OUTPUT = "op string, key bigint, value bigint"

    def init(self, handle: Any) -> None:
        self.state = handle.getValueState("state", "value bigint, offset bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        held, newest = self.state.get(), max(rows, key=by_offset)
        if held is not None and newest.offset < held[1]:
            return
        self.state.update((newest.value, newest.offset))
        if held is None:
            yield Row(op="+I", key=key[0], value=newest.value)
        elif held[0] != newest.value:
            yield Row(op="-U", key=key[0], value=held[0])
            yield Row(op="+U", key=key[0], value=newest.value)

    def close(self) -> None:
        pass


class Joined(StatefulProcessor):
    OUTPUT = "op string, key bigint, value bigint, other bigint"

    def init(self, handle: Any) -> None:
        self.state = handle.getValueState("state", "lefts array<bigint>, rights array<bigint>")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """A row may be taken away before it comes: all of a micro-batch counts at once."""
        held = self.state.get()
        before = held or ([], [])
        counts = Counter(before[LEFT]), Counter(before[RIGHT])
        for row in rows:
            counts[row.side][row.value] += 1 if row.op == "+I" else -1
        now = [list(each.elements()) for each in counts]
        if now[LEFT] or now[RIGHT]:
            self.state.update(tuple(now))
        elif held is not None:
            self.state.clear()
        was, is_ = Counter(product(*before)), Counter(product(*now))
        for op, pairs in (("-D", was - is_), ("+I", is_ - was)):
            for value, other in pairs.elements():
                yield Row(op=op, key=key[0], value=value, other=other)

    def close(self) -> None:
        pass


class JoinedUpserts(StatefulProcessor):
    OUTPUT = "op string, key bigint, value bigint, other bigint"

    def init(self, handle: Any) -> None:
        schema = "value bigint, value_offset bigint, other bigint, other_offset bigint"
        self.state = handle.getValueState("state", schema)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """The newest of each side; a side that has none yet has no offset, and the key is not in the join."""
        held = list(self.state.get() or (None, None, None, None))
        now = list(held)
        for row in rows:
            place = 2 * row.side
            if now[place + 1] is None or row.offset >= now[place + 1]:
                now[place : place + 2] = row.value, row.offset
        self.state.update(tuple(now))
        was, is_ = (None not in (each[1], each[3]) for each in (held, now))
        if was and is_ and held[::2] == now[::2]:
            return
        if was:
            yield Row(op="-D", key=key[0], value=held[0], other=held[2])
        if is_:
            yield Row(op="+I", key=key[0], value=now[0], other=now[2])

    def close(self) -> None:
        pass
