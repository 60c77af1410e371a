"""The app whose run is killed: an aggregate of Spark's own over a stream, and a table, both with bad records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog import App

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

app = App("shop")
app.stream("orders", value="product string, amount long", on_error="dead_letter")
app.table("prices", key="product", value="product string, price long", on_error="dead_letter")


@app.view("revenue", key="product")
def revenue(orders: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return orders.groupBy("product").agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))


@app.view("latest", key="product")
def latest(prices: DataFrame) -> DataFrame:
    return prices
