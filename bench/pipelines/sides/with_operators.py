"""Nexmark's queries with Tidelog's operators. What each answers: `oracle.py`.

Where Spark has what is asked for, an operator is Spark's own plan and not slower; q0, q3, q18 and q20 ask for nothing
else, and are the queries by hand. In q4 and q9 a bid is enriched with its auction, as of its own time, and not joined
with a stream of them: then the state has auctions, and of bids only those that wait. Which bid has won, and the average
of those, are folds, as somebody writes them who needs an operator of his own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench.pipelines.sides import by_hand
from pyspark.sql import functions as F

from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.joins.enrich import enrich
from tidelog.pipelines.operators.joins.stream_join import stream_join
from tidelog.pipelines.operators.state.fold import DUE, HASH, Clock, Step
from tidelog.pipelines.operators.state.operator import run_fold
from tidelog.pipelines.operators.time import event_time
from tidelog.pipelines.operators.windows.hopping import hopping
from tidelog.pipelines.operators.windows.session import session
from tidelog.pipelines.operators.windows.tumbling import tumbling

if TYPE_CHECKING:
    from bench.pipelines.sides.frames import Frames
    from pyspark.sql import Column, DataFrame

    from tidelog.pipelines.operators.grouping import Groups

LATENESS = "4 seconds"
NO_AUCTION = -1
MODES = {"q18": "update"}
BID = by_hand.BID

q0, q3, q18, q20 = by_hand.q0, by_hand.q3, by_hand.q18, by_hand.q20


def start() -> Column:
    return F.unix_millis("window_start").alias("start")


def q4(frames: Frames) -> DataFrame:
    return run_fold(q9(frames).select("category", "price"), ["category"], Averages())


@dataclass(frozen=True)
class Averages:
    """By category, and put out whenever it has changed."""

    name: str = "averages"
    version: int = 1

    @property
    def state_schema(self) -> pa.Schema:
        kept = [("category", pa.int64()), ("total", pa.int64()), ("n", pa.int64())]
        return pa.schema([(HASH, pa.int64()), (DUE, pa.int64()), *kept])

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([("category", pa.int64()), ("average", pa.float64())])

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        new = rows.select([HASH, "category"]).append_column("total", rows["price"])
        new = new.append_column("n", pa.array([1] * len(rows), pa.int64()))
        both = pa.concat_tables([state.select(new.column_names), new]).group_by([HASH, "category"])
        sums = both.aggregate([("total", "sum"), ("n", "sum")])
        now = sums.rename_columns([HASH, "category", "total", "n"]).append_column(DUE, pa.nulls(len(sums), pa.int64()))
        averages = pa.array(now["total"].to_numpy() / now["n"].to_numpy())
        output = pa.table([now["category"], averages], schema=self.output_schema)
        return Step(now.select(self.state_schema.names), output)


@dataclass(frozen=True, slots=True)
class Highest:
    """An aggregate of one's own: the largest struct, which Spark orders by its fields. It is Spark's alone."""

    column: str

    def output_type(self, kind: pa.DataType) -> pa.DataType:
        return kind

    def state_types(self, kind: pa.DataType) -> tuple[pa.DataType, ...]:
        return (kind,)

    def lift(self, values: pa.Array, times: pa.Array) -> Sequence[pa.Array]:
        return (values,)

    def reduce(self, state: Sequence[pa.Array], groups: Groups) -> Sequence[pa.Array]:
        raise NotImplementedError

    def finish(self, state: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
        return state[0]

    def native(self, time: str) -> Column | None:
        return F.max(self.column)


def q5(frames: Frames) -> DataFrame:
    bids = frames.bids("auction").transform(event_time("at", LATENESS))
    counts = bids.transform(hopping("10 seconds", every="2 seconds", by="auction", aggregates={"n": agg.count()}))
    each = counts.select("window_time", F.struct("auction", "n", start()).alias("each"))
    windows = each.groupBy(F.window("window_time", "2 seconds"))  # no two windows end together
    most = windows.agg(F.collect_list("each").alias("all"), F.max("each.n").alias("most"))
    return most.select(F.explode(F.expr("filter(all, one -> one.n = most)")).alias("each")).select("each.*")


def q7(frames: Frames) -> DataFrame:
    bids = frames.bids(*BID).transform(event_time("at", LATENESS))
    ranked = bids.select("at", F.struct("price", "auction", "bidder", "dateTime").alias("bid"))
    best = ranked.transform(tumbling("10 seconds", aggregates={"best": Highest("bid")}))
    return best.select(start(), "best.*")


def q8(frames: Frames) -> DataFrame:
    window = F.unix_millis(F.window("at", "10 seconds").start).alias("start")
    people = frames.people("id", "name").transform(event_time("at", LATENESS)).select("at", "id", "name", window)
    auctions = frames.auctions("seller").transform(event_time("at", LATENESS))
    opened = auctions.select(F.col("at").alias("opened"), F.col("seller").alias("id"), window)
    first = opened.dropDuplicatesWithinWatermark(["id", "start"])
    both = people.transform(stream_join(first, on=["id", "start"], within="10 seconds"))
    return both.select("id", "name", "start")


def q9(frames: Frames) -> DataFrame:
    bids = frames.bids(*BID).transform(event_time("at", LATENESS))
    auctions = frames.auctions("id", "category", "expires").transform(event_time("at", LATENESS))
    auctions = auctions.withColumnsRenamed({"id": "auction", "at": "opened"})
    in_time = enrich(auctions, on="auction", how="inner", where="dateTime <= expires")
    return run_fold(bids.transform(in_time).drop("at", "opened"), ["auction"], Winning())


@dataclass(frozen=True)
class Winning:
    """By auction: the highest bid, of those the first; put out when the auction is over, and then forgotten."""

    name: str = "winning"
    version: int = 1

    @property
    def state_schema(self) -> pa.Schema:
        return pa.schema([(HASH, pa.int64()), (DUE, pa.int64()), *self.output_schema])

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([(name, pa.int64()) for name in (*BID, "category")])

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        new = rows.rename_columns({"expires": DUE}).select(self.state_schema.names)
        both = pa.concat_tables([state, new.cast(self.state_schema)])
        auction, price, time = (both[name].to_numpy() for name in ("auction", "price", "dateTime"))
        order = np.lexsort((time, -price, auction))
        auction = auction[order]
        best = both.take(pa.array(order[np.diff(auction, prepend=NO_AUCTION) != 0]))
        over = pc.less_equal(best[DUE], -1 if clock.watermark is None else clock.watermark)
        return Step(best.filter(pc.invert(over)), best.filter(over).select(self.output_schema.names))


def q11(frames: Frames) -> DataFrame:
    bids = frames.bids("bidder").transform(event_time("at", LATENESS))
    return bids.transform(session("10 seconds", by="bidder", aggregates={"n": agg.count()})).select(
        "bidder", start(), "n"
    )
