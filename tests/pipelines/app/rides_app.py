"""The app over a day of rides: a deduplication and a window of Spark's own, a fold of one's own, a join with versions
that waits for the watermark, and a view of the derived topic, whose function asks a service that may be away.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from tidelog import App
from tidelog.operators import (
    DUE,
    HASH,
    Clock,
    Step,
    corrected_time,
    deduplicate,
    enrich,
    event_time,
    run_fold,
    tumbling,
)
from tidelog.operators import aggregates as agg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AWAY = os.environ.get("RIDES_AWAY", "nowhere")  # a file that is there while the service is away
LONG_AGO = -(2**63)

app = App("rides")
app.stream(
    "rides",
    value="id long, driver string, zone string, fare long, occurred timestamp, sent timestamp",
    record="timestamp",
    on_error="dead_letter",
)
app.table(
    "tariffs",
    key="zone",
    value="zone string, rate long, since timestamp",
    versions=True,
    event_time="since",
    watermark_delay="10 minutes",
)


def timed(rides: DataFrame) -> DataFrame:
    """By a clock that is right, where that of the device is a day ahead."""
    at = corrected_time("occurred", "sent", "timestamp", threshold="1 minute")
    rows = rides.withColumn("at", at).drop("occurred", "sent", "timestamp")
    return rows.transform(event_time("at", "10 minutes"))


@app.topic("clean", key="id")
def clean(rides: DataFrame) -> DataFrame:
    return timed(rides).transform(deduplicate("id"))


@app.view("zones", key=("zone", "window_start"))
def zones(rides: DataFrame) -> DataFrame:
    counted = {"rides": agg.count(), "fares": agg.sum("fare")}
    return timed(rides).transform(tumbling("1 hour", by="zone", aggregates=counted))


@dataclass(frozen=True)
class Shifts:
    """Rides and fares of each driver; late ones are dropped."""

    name: str = "shifts"
    version: int = 1

    @property
    def state_schema(self) -> pa.Schema:
        return pa.schema([(HASH, pa.int64()), (DUE, pa.int64()), *self.output_schema])

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([("driver", pa.string()), ("rides", pa.int64()), ("fares", pa.int64())])

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        there = rows.filter(pc.is_valid(rows["at"]))
        used = there.filter(pc.greater(there["at"], LONG_AGO if clock.late is None else clock.late))
        names = [HASH, "driver", "rides", "fares"]
        ones = pa.array(np.ones(len(used), np.int64))
        new = pa.table([used[HASH], used["driver"], ones, used["fare"]], names=names)
        both = pa.concat_tables([state.select(names), new]).group_by([HASH, "driver"], use_threads=False)
        done = both.aggregate([("rides", "sum"), ("fares", "sum")])
        now = done.select([HASH, "driver", "rides_sum", "fares_sum"]).rename_columns(names)
        now = now.append_column(DUE, pa.nulls(len(now), pa.int64()))
        changed = now.filter(pc.is_in(now[HASH], value_set=pc.unique(used[HASH]))).select(names[1:])
        lost = {"late": len(there) - len(used), "without_time": len(rows) - len(there)}
        return Step(now, changed, {"in": len(rows), "used": len(used), **lost})


@app.view("drivers", key="driver")
def drivers(rides: DataFrame) -> DataFrame:
    rows = timed(rides).selectExpr("driver", "fare", "unix_millis(at) AS at")
    return run_fold(rows, "driver", Shifts(), one_row=True)


@app.topic("priced", key="id")
def priced(rides: DataFrame, tariffs: DataFrame) -> DataFrame:
    found = timed(rides).transform(enrich(tariffs, on="zone", deleted="_deleted", horizon="2 days"))
    return found.select("id", "zone", "fare", "rate", "at")


@F.udf(LongType())
def tax(fare: int) -> int:
    if Path(AWAY).exists():
        raise ConnectionError("the office of taxes is away")
    return fare // 10


@app.view("totals", key="zone")
def totals(clean: DataFrame) -> DataFrame:
    taxed = clean.withColumn("tax", tax("fare"))
    return taxed.groupBy("zone").agg(
        F.count("*").alias("rides"), F.sum("fare").alias("fares"), F.sum("tax").alias("tax")
    )
