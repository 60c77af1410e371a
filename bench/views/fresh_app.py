"""The app whose freshness is measured: one aggregate of Spark's own, in every store that FRESH_STORES names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog import App

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

app = App("fresh")
app.stream("measured", value="key long, number long")


@app.view("fresh", key="key", stores=os.environ.get("FRESH_STORES", "").split())
def fresh(measured: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return measured.groupBy("key").agg(F.count("*").alias("records"), F.max("number").alias("newest"))
