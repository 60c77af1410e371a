"""The shop's app: two streams, three views. `tidelog run` runs this very file.

    orders       what was bought, when (`at`), for how many cents; some come late, from phones without a network
    deliveries   what came into stock

    revenue      by product, in all; Spark's own aggregate
    minutes      by minute of event time, while the minute goes on; an order that comes late corrects its minute
    stock        by product: deliveries less orders, of both streams

`checking.py` says the same three once more, without Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipelines.app import App
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.windows.tumbling import tumbling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDERS, DELIVERIES = "orders", "deliveries"
LATENESS_S = 10

app = App("shop")
app.stream(
    ORDERS,
    value="id long, product string, quantity long, cents long, at timestamp",
    event_time="at",
    watermark_delay=f"{LATENESS_S} seconds",
    record="timestamp",
)
app.stream(DELIVERIES, value="id long, product string, quantity long, at timestamp")


@app.view("revenue", key="product")
def revenue(orders: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return orders.groupBy("product").agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))


@app.view("minutes", key="minute")
def minutes(orders: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    came_late = F.col("timestamp") - F.col("at") > F.expr(f"interval {LATENESS_S} seconds")
    by_minute = tumbling(
        "1 minute",
        aggregates={"cents": agg.sum("cents"), "orders": agg.count(), "late": agg.sum("late")},
        early=True,
        late="correct",
        allowed_lateness="1 hour",
    )
    found = orders.withColumn("late", came_late.cast("long")).transform(by_minute)
    return found.withColumnRenamed("window_start", "minute").drop("window_end", "window_time")


@app.view("stock", key="product")
def stock(orders: DataFrame, deliveries: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    sold = orders.select("product", (-F.col("quantity")).alias("quantity"))
    moved = sold.unionByName(deliveries.select("product", "quantity"))
    return moved.groupBy("product").agg(F.sum("quantity").alias("quantity"))
