"""Spark reads the tables of a warehouse that an applier writes: Parquet by its files, Delta by those its log names."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from proving import proves
from tidelog.schema.declaration import Row, declare
from tidelog.views.stores.delta import DeltaStore
from tidelog.views.stores.parquet import ParquetStore
from views.stores.applied import Applied

COLUMNS = {"id": "long", "day": "date", "at": "timestamp", "amount": "double", "paid": "boolean", "note": "string"}
SALES = declare(COLUMNS, ("id",))


def sale(number: int) -> Row:
    note = None if number % 3 == 0 else f"sale \N{SNOWMAN} {number}"
    at = datetime(2026, 1, 1 + number % 28, 23, 59, 59, number, UTC)
    values = (number, date(2026, 1, 1 + number % 28), at, number / 4, number % 2 == 0, note)
    return dict(zip(COLUMNS, values, strict=True))


@proves("P3", "F4")
@pytest.mark.parametrize("kind", ["parquet", "delta"])
@pytest.mark.slow
def test_spark_reads_the_rows_of_a_view_and_not_those_that_are_gone(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    store = ParquetStore(tmp_path, "sales", day="day") if kind == "parquet" else DeltaStore(tmp_path, "sales")
    one = Applied(store, SALES)
    one.put(*map(sale, range(200)))
    one.put(*({**sale(number), "amount": -1.0} for number in range(0, 200, 5)))
    one.delete((7,), (8,))
    frame = spark.read.parquet(*files(kind, tmp_path / "sales"))
    seconds = F.unix_micros("at").alias("at")
    found = {row["id"]: row.asDict() for row in frame.select("id", "day", seconds, "amount", "paid", "note").collect()}
    assert found == {row["id"]: {**row, "at": micros(row["at"])} for row in one.rows.values()}


def files(kind: str, view: Path) -> list[str]:
    if kind == "delta":
        return DeltaTable(str(view / "current")).file_uris()
    named: list[str] = json.loads((view / "latest.json").read_text())["files"]
    return named


def micros(at: Any) -> int:
    assert isinstance(at, datetime)
    return round(at.timestamp() * 1_000_000)
