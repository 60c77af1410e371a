"""The app that `asking.py` asks: the latest price of an item, by the operator that keeps it and by the view of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog import App

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

app = App("asked")
app.stream("prices", value="item string, price long", record=["offset"])


@app.view("latest", key="item")
def latest(prices: DataFrame, questions: DataFrame) -> DataFrame:
    from tidelog.pipelines.operators.changelog import as_changelog

    return prices.transform(as_changelog(by=["item"], order="offset", questions=questions))
