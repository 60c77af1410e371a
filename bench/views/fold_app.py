"""The app of row `fold`: one fold of ours, of the shape of the demo's `minutes`, in what FRESH_STORES names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog import App
from tidelog.operators import aggregates as agg
from tidelog.operators import tumbling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

app = App("fold")
app.stream("timed", value="key long, number long, at timestamp", event_time="at", watermark_delay="10 seconds")


@app.view("minutes", key="minute", stores=os.environ.get("FRESH_STORES", "").split())
def minutes(timed: DataFrame) -> DataFrame:
    aggregates = {"records": agg.count(), "numbers": agg.sum("number")}
    late = {"late": "correct", "allowed_lateness": "1 hour"}
    found = timed.transform(tumbling("1 minute", aggregates=aggregates, early=True, **late))
    return found.withColumnRenamed("window_start", "minute").drop("window_end", "window_time")
