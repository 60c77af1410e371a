"""The programs by hand that stand beside operators in the benchmarks put out what the operators do, late rows too.

Folds go through real buckets and pages, programs through Spark's own tester of such, which keeps state in dictionaries.
"""

from __future__ import annotations

import random
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql.streaming.tws_tester")

from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from pipelines.operators.joins.driving import Driver
from proving import proves
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.changelog import ADDITIONS, COUNT
from tidelog.pipelines.operators.changes import Changes
from tidelog.pipelines.operators.dedup import Once
from tidelog.pipelines.operators.joins.as_of import TIME, AsOf
from tidelog.pipelines.operators.joins.sides import GONE, LEFT, ORDER, RIGHT, Columns
from tidelog.pipelines.operators.joins.tables import TableJoin
from tidelog.pipelines.operators.joins.upserts import Upserts
from tidelog.pipelines.operators.state.fold import SIDE
from tidelog.pipelines.operators.windows.grid import Grid
from tidelog.pipelines.operators.windows.grid_fold import GridFold
from tidelog.pipelines.operators.windows.session_fold import SessionFold
from tidelog.pipelines.operators.windows.sliding_fold import SlidingFold
from tidelog.pipelines.operators.windows.spec import Spec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.pipelines import changing, keyed
from bench.pipelines.by_key import enrich, in_order, sessions, sliding, tables, windows
from bench.pipelines.by_key.programs import BY_HAND
from bench.pipelines.sides.stateful import OPERATORS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BEGIN = 1_700_000_000_000
TICK = 2_500  # ms: gaps, hops and minutes are whole ticks, so that rows stand exactly on every bound
SECOND = 1_000_000
ROWS = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
COUNTED = (("n", agg.count()), ("last", agg.last("value")))
WINDOW = ("op", "start", "until", "key", "n", "last")


class Batch(NamedTuple):
    """`watermark` in ms; 0 before there is one."""

    rows: list[dict[str, int]]
    watermark: int


def batches(seed: int) -> Iterator[Batch]:
    """Of one key no two rows have the same time, as in the benchmark; some rows are later than anything takes."""
    chance, taken = random.Random(seed), set[tuple[int, int]]()
    offset, now, watermark = 0, 100, 0
    for number in range(14):
        rows = []
        for _ in range(chance.randint(1, 10)):
            place = (chance.randint(0, 3), now - chance.choice([0, 1, 2, 3, 5, 8, 20, 50]))
            if place not in taken:
                taken.add(place)
                rows.append(
                    {"key": place[0], "value": chance.randint(0, 4), "at": BEGIN + TICK * place[1], "offset": offset}
                )
                offset += 1
        yield Batch(rows, watermark)
        now += chance.choice([1, 3, 10, 30])
        if number:
            watermark = BEGIN + TICK * (now - 5) + chance.choice([-1, 0, 1])


def moment(millis: int) -> datetime:
    return EPOCH + timedelta(milliseconds=millis)


def millis(time: datetime) -> int:
    return (time - EPOCH) // timedelta(milliseconds=1)


class ByHand:
    """A program as Spark calls it in a micro-batch: rows first, then what has expired."""

    def __init__(self, program: Any, mode: str) -> None:
        self.tester = TwsTester(program, timeMode=mode, eventTimeExtractor=lambda row: 2**62)

    def step(self, rows: list[dict[str, int]], watermark: int) -> list[Row]:
        self.tester._currentWatermarkMs = watermark  # its own way of setting it fires timers before the rows
        self.tester.handle.setWatermark(watermark)
        by_key = defaultdict(list)
        for row in rows:
            by_key[row["key"]].append(Row(**row))
        found = [out for key, those in by_key.items() for out in self.tester.test(key, those)]
        return [*found, *self.tester._handleExpiredTimers()]


class Folded:
    """A fold over the same rows; `take` makes its input of them, `show` makes rows by hand of its output."""

    def __init__(self, fold: Any, row: pa.Schema, keys: list[str], take: Any, show: Any) -> None:
        self.driver, self.take, self.show = Driver(lambda: fold, row, keys), take, show

    def step(self, rows: list[dict[str, int]], watermark: int) -> list[tuple[Any, ...]]:
        return [self.show(out) for out in self.driver.step(self.take(rows), watermark or None)]


def timed(rows: list[dict[str, int]]) -> list[dict[str, Any]]:
    return [{"key": row["key"], "value": row["value"], "at": moment(row["at"])} for row in rows]


def window_of(out: dict[str, Any]) -> tuple[Any, ...]:
    bounds = millis(out["window_start"]), millis(out["window_end"])
    return (*([out["_op"]] if "_op" in out else []), *bounds, out["key"], out["n"], out["last"])


def of_windows(fold: Any) -> Folded:
    return Folded(fold, ROWS, ["key"], timed, window_of)


def spec(**policy: Any) -> Spec:
    return Spec(ROWS, "at", ("key",), COUNTED, **policy)


def of_rows(fold: Any, *names: str) -> Folded:
    def show(out: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(millis(out[name]) if name == "at" else out[name] for name in names)

    return Folded(fold, ROWS, ["key"], timed, show)


def enriched() -> Folded:
    stamp = pa.timestamp("us", "UTC")
    keys, lefts = pa.schema([("k_key", pa.int64())]), pa.schema([("l_value", pa.int64()), ("l_at", stamp)])
    rights = pa.schema([("r_known", pa.int64()), ("r_since", stamp)])
    head = pa.schema([(SIDE, pa.int8()), (GONE, pa.bool_()), (ORDER, pa.int64()), (TIME, stamp)])

    def take(rows: list[dict[str, int]]) -> list[dict[str, Any]]:
        found = []
        for row in rows:
            own = {SIDE: row["side"], GONE: False, ORDER: None, TIME: moment(row["at"]), "k_key": row["key"]}
            names = ("l_value", "l_at") if row["side"] == LEFT else ("r_known", "r_since")
            found.append(own | dict(zip(names, (row["value"], moment(row["at"])), strict=True)))
        return found

    def show(out: dict[str, Any]) -> tuple[Any, ...]:
        since = None if out["r_since"] is None else millis(out["r_since"])
        return out["k_key"], out["l_value"], millis(out["l_at"]), out["r_known"], since

    fold = AsOf(Columns(keys, lefts, rights), deletes_kept=86_400_000)
    return Folded(fold, pa.schema([*head, *keys, *lefts, *rights]), ["k_key"], take, show)


def upserted() -> Folded:
    columns = pa.schema([("key", pa.int64()), ("value", pa.int64())])

    def take(rows: list[dict[str, int]]) -> list[dict[str, Any]]:
        return [{"key": row["key"], "value": row["value"], GONE: False, ORDER: row["offset"]} for row in rows]

    row = pa.schema([*columns, (GONE, pa.bool_()), (ORDER, pa.int64())])
    return Folded(Upserts(columns, ("key",)), row, ["key"], take, lambda out: (out["_op"], out["key"], out["value"]))


class JoinedChanges:
    """Of rows with an `op`."""

    def __init__(self) -> None:
        number = pa.int64()
        self.columns = Columns(*(pa.schema([(name, number)]) for name in ("k_key", "l_value", "r_other")))
        row = pa.schema([(SIDE, pa.int8()), (COUNT, number), *self.columns.all])
        self.driver = Driver(lambda: TableJoin(self.columns, "inner"), row, ["k_key"])

    def step(self, rows: list[dict[str, Any]], watermark: int) -> list[tuple[Any, ...]]:
        changes = []
        for row in rows:
            name, count = ("l_value", "r_other")[row["side"]], 1 if row["op"] in ADDITIONS else -1
            changes.append({SIDE: row["side"], COUNT: count, "k_key": row["key"], name: row["value"]})
        names = ("_op", "k_key", "l_value", "r_other")
        return [tuple(out[name] for name in names) for out in self.driver.step(changes)]


class JoinedFolds:
    """Both sides' changelogs, and their join."""

    def __init__(self) -> None:
        self.sides = upserted(), upserted()
        self.join = JoinedChanges()

    def step(self, rows: list[dict[str, int]], watermark: int) -> list[tuple[Any, ...]]:
        changes = []
        for side, upserts in enumerate(self.sides):
            for op, key, value in upserts.step([row for row in rows if row["side"] == side], 0):
                changes.append({"side": side, "op": op, "key": key, "value": value})
        return self.join.step(changes, 0)


MINUTE = 60 * SECOND
CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], tuple[str, ...]]] = {
    "tumbling, early": (
        lambda: of_windows(GridFold(spec(early=True), Grid(10 * MINUTE, 10 * MINUTE))),
        windows.Tumbling,
        WINDOW,
    ),
    "hopping, corrected": (
        lambda: of_windows(GridFold(spec(allowed=MINUTE), Grid(MINUTE, MINUTE // 2))),
        windows.Hopping,
        WINDOW,
    ),
    "sliding": (lambda: of_windows(SlidingFold(spec(), MINUTE)), sliding.Sliding, WINDOW[1:]),
    "session, corrected": (
        lambda: of_windows(SessionFold(spec(allowed=MINUTE), 10 * SECOND)),
        sessions.Sessions,
        WINDOW,
    ),
    "deduplicate": (
        lambda: of_rows(Once(ROWS, "at", ("key",), MINUTE), "key", "value", "at"),
        in_order.Deduplicate,
        ("key", "value", "at"),
    ),
    "changes": (
        lambda: of_rows(Changes(ROWS, "at", ("key",), None, ("value",)), "key", "value", "at", "value_before"),
        in_order.Changes,
        ("key", "value", "at", "before"),
    ),
    "as_changelog": (upserted, tables.Upserts, ("op", "key", "value")),
    "enrich": (enriched, enrich.Enrich, ("key", "value", "at", "known", "since")),
    "join_tables": (JoinedChanges, tables.Joined, ("op", "key", "value", "other")),
    "join_tables, of upserts": (JoinedFolds, tables.JoinedUpserts, ("op", "key", "value", "other")),
}
WITHOUT_TIME = ("as_changelog", "join_tables", "join_tables, of upserts")
TWO_SIDES = ("enrich", "join_tables, of upserts")


def with_sides(rows: list[dict[str, int]], chance: random.Random) -> list[dict[str, int]]:
    return [row | {"side": side} for row in rows for side in chance.choice([(LEFT,), (RIGHT,), (LEFT, RIGHT)])]


class Given:
    """What a program is given of rows, by its name; of tables that change, only a row that is there is taken away."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.chance = name, random.Random(seed)
        self.there: tuple[list[Any], list[Any]] = ([], [])

    def of(self, rows: list[dict[str, int]]) -> list[dict[str, Any]]:
        if self.name == "join_tables":
            found = [self._change(row) for row in with_sides(rows, self.chance)]
            self.chance.shuffle(found)
            return found
        return with_sides(rows, self.chance) if self.name in TWO_SIDES else rows

    def _change(self, row: dict[str, int]) -> dict[str, Any]:
        held = self.there[row["side"]]
        if held and self.chance.random() < 0.4:
            return {"op": "-D", **held.pop(self.chance.randrange(len(held)))}
        held.append(row)
        return {"op": "+I", **row}


@proves("benchmarks")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "join_tables" else pytest.mark.full) for name in OPERATORS]
)
def test_a_program_by_hand_puts_out_what_its_operator_does_in_every_micro_batch(name: str) -> None:
    make_fold, program, names = CASES[name]
    told = 0
    for seed in range(15):
        fold, given = make_fold(), Given(name, seed)
        by_hand = ByHand(program(), "None" if name in WITHOUT_TIME else "EventTime")
        for rows, watermark in batches(seed):
            taken = given.of(rows)
            ours, theirs = fold.step(taken, watermark), by_hand.step(taken, watermark)
            assert Counter(tuple(row[each] for each in names) for row in theirs) == Counter(ours)
            told += len(ours)
    assert told > 100


@proves("benchmarks")
def test_every_operator_has_a_program_by_hand_beside_it() -> None:
    assert list(BY_HAND) == list(OPERATORS) == list(CASES)


@proves("benchmarks")
def test_fewer_keyed_rows_are_the_first_of_more() -> None:
    for number in range(keyed.PARTITIONS):
        few, many = (keyed.Input(1000, rows).partition(number) for rows in (2000, 7000))
        for some, all_of_it in zip(few, many, strict=True):
            assert some.tolist() == all_of_it[: len(some)].tolist()


@proves("benchmarks")
def test_tables_that_change_take_away_only_what_was_added_before_and_stay_as_large_as_they_are() -> None:
    """By SQLite, which computes what Spark does of an offset."""
    with sqlite3.connect(":memory:") as sql:
        sql.execute("create table rows (offset int)")
        sql.executemany("insert into rows values (?)", ((offset,) for offset in range(4 * changing.FILLED)))
        found = sql.execute(f"select {changing.DELETES}, {changing.NUMBER} from rows order by offset").fetchall()
    sql.close()
    there, added = set[int](), 0
    for offset, (deletes, number) in enumerate(found):
        if deletes:
            there.remove(number)
        else:
            assert number == added
            there.add(number)
            added += 1
        assert offset < changing.FILLED or len(there) >= changing.FILLED - 1
    assert added > 2 * changing.FILLED
