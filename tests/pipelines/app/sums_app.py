"""The app whose parts are killed: one aggregate of Spark's own, into a view of four partitions, in every store that
SUMS_STORES names. An order of no amount is none, so that a micro-batch may move its source and change no row.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog import App

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 4

app = App("sums")
app.stream("orders", value="id long, product string, amount long")


@app.view("sums", key="product", stores=os.environ.get("SUMS_STORES", "").split(), partitions=PARTITIONS)
def sums(orders: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    taken = orders.where("amount > 0").groupBy("product")
    return taken.agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"), F.max("id").alias("newest"))
