"""Nexmark's queries with Tidelog's operators. What each answers: `oracle.py`.

Where Spark has what is asked for, an operator is Spark's own plan and not slower; q0, q3, q18 and q20 ask for nothing
else, and are the queries by hand. The average of q4, whose rows change, is a fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from bench.pipelines.sides import by_hand
from pyspark.sql import functions as F

from tidelog.pipelines.operators import aggregates as agg
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
LONGEST = "4 seconds"  # that an auction is open
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
    bids = frames.bids(*BID).transform(event_time("at", LATENESS)).withColumnRenamed("at", "bid_at")
    auctions = frames.auctions("id", "category", "expires").transform(event_time("at", LATENESS))
    auctions = auctions.withColumnRenamed("id", "auction")
    both = auctions.transform(stream_join(bids, on="auction", within=("0 seconds", LONGEST)))
    earlier = (-F.col("dateTime")).alias("earlier")
    ranked = both.where("dateTime <= expires").select(
        "at", "auction", "category", F.struct("price", earlier, "bidder", "dateTime").alias("bid")
    )
    best = tumbling("1 second", by=["auction", "category"], aggregates={"best": Highest("bid")})
    return ranked.transform(best).select("auction", "category", "best.price", "best.bidder", "best.dateTime")


def q11(frames: Frames) -> DataFrame:
    bids = frames.bids("bidder").transform(event_time("at", LATENESS))
    return bids.transform(session("10 seconds", by="bidder", aggregates={"n": agg.count()})).select(
        "bidder", start(), "n"
    )
