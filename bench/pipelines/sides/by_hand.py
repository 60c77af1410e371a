"""Nexmark's queries as somebody writes them who knows Structured Streaming well. What each answers: `oracle.py`.

Spark has no aggregate of an aggregate whose results change, so q4 averages by `transformWithState`, a group a category;
and q9 answers once an auction is over, since that is when a join and an aggregate may follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from bench.pipelines.sides.frames import Frames
    from pyspark.sql import DataFrame

LATENESS = "4 seconds"
LONGEST = "INTERVAL 4 SECONDS"  # that an auction is open
MODES = {"q18": "update"}
BID = ("auction", "bidder", "price", "dateTime")


def q0(frames: Frames) -> DataFrame:
    return frames.bids(*BID).drop("at")


def q3(frames: Frames) -> DataFrame:
    auctions = frames.auctions("id", "seller", "category").where("category = 10").select("id", "seller")
    people = frames.people("id", "name", "city", "state").where("state in ('OR', 'ID', 'CA')")
    people = people.withColumnRenamed("id", "person").drop("at")
    return auctions.join(people, F.expr("seller = person")).select("id", "name", "city", "state")


def q4(frames: Frames) -> DataFrame:
    grouped = q9(frames).groupBy("category")
    return grouped.transformWithState(Averages(), "category bigint, average double", "Append", "None")


class Averages(StatefulProcessor):
    """The methods' names, and those of their arguments, are Spark's."""

    def init(self, handle: Any) -> None:
        self.state = handle.getValueState("state", "total bigint, n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        total, n = self.state.get() or (0, 0)
        for row in rows:
            total, n = total + row.price, n + 1
        self.state.update((total, n))
        yield Row(category=key[0], average=total / n)

    def close(self) -> None:
        pass


def q5(frames: Frames) -> DataFrame:
    bids = frames.bids("auction").withWatermark("at", LATENESS)
    counts = bids.groupBy(F.window("at", "10 seconds", "2 seconds"), "auction").agg(F.count("*").alias("n"))
    windows = counts.groupBy("window").agg(
        F.collect_list(F.struct("auction", "n")).alias("all"), F.max("n").alias("most")
    )
    chosen = windows.select("window", F.explode(F.expr("filter(all, each -> each.n = most)")).alias("each"))
    return chosen.select(F.unix_millis("window.start").alias("start"), "each.auction", "each.n")


def q7(frames: Frames) -> DataFrame:
    bids = frames.bids(*BID).withWatermark("at", LATENESS)
    best = bids.groupBy(F.window("at", "10 seconds")).agg(F.max_by(F.struct(*BID), "price").alias("best"))
    return best.select(F.unix_millis("window.start").alias("start"), "best.*")


def q8(frames: Frames) -> DataFrame:
    people = frames.people("id", "name").withWatermark("at", LATENESS)
    people = people.select("id", "name", F.window("at", "10 seconds").alias("came"))
    auctions = frames.auctions("seller").withWatermark("at", LATENESS)
    auctions = auctions.select("seller", F.window("at", "10 seconds").alias("opened")).dropDuplicates()
    both = people.join(auctions, F.expr("id = seller and came = opened"))
    return both.select("id", "name", F.unix_millis("came.start").alias("start"))


def q9(frames: Frames) -> DataFrame:
    bids = frames.bids(*BID).withWatermark("at", LATENESS)
    auctions = frames.auctions("id", "category", "expires").withWatermark("at", LATENESS)
    auctions = auctions.withColumnRenamed("at", "opened")
    in_time = f"auction = id and at >= opened and at <= opened + {LONGEST} and dateTime <= expires"
    best = bids.join(auctions, F.expr(in_time)).groupBy(F.window("opened", "1 second"), "id", "category")
    highest = F.max_by(F.struct(*BID), F.struct("price", -F.col("dateTime")))
    return best.agg(highest.alias("best")).select("category", "best.*")


def q11(frames: Frames) -> DataFrame:
    bids = frames.bids("bidder").withWatermark("at", LATENESS)
    sessions = bids.groupBy(F.session_window("at", "10 seconds").alias("window"), "bidder").agg(F.count("*").alias("n"))
    return sessions.select("bidder", F.unix_millis("window.start").alias("start"), "n")


def q18(frames: Frames) -> DataFrame:
    last = (
        frames.bids(*BID)
        .groupBy("bidder", "auction")
        .agg(F.max_by(F.struct("price", "dateTime"), "dateTime").alias("last"))
    )
    return last.select("bidder", "auction", "last.*")


def q20(frames: Frames) -> DataFrame:
    wanted = frames.auctions("id", "itemName", "seller", "expires", "category").where("category = 10")
    wanted = wanted.drop("at", "category")
    return frames.bids(*BID).drop("at").join(wanted, F.expr("auction = id")).drop("id")
