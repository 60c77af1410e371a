"""The app that is backed up under load: an aggregate of Spark's own, whose state is on the heap, a fold of its own with
state in RocksDB, and a derived topic without state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog import App
from tidelog.operators import DUE, HASH, Clock, Step, run_fold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEPT = [("product", pa.string()), ("sold", pa.int64()), ("chain", pa.int64()), ("newest", pa.int64())]
MODULUS = 1_000_003

app = App("shop")
app.stream("orders", value="id long, product string, amount long")


@app.view("revenue", key="product")
def revenue(orders: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return orders.groupBy("product").agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))


@dataclass(frozen=True)
class Sold:
    """Sums by product, of what cannot be had twice or left out without a trace."""

    name: str = "sold"
    version: int = 1

    @property
    def state_schema(self) -> pa.Schema:
        return pa.schema([(HASH, pa.int64()), (DUE, pa.int64()), *KEPT])

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema(KEPT)

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        ones = pa.array(np.ones(len(rows), np.int64))
        links = pa.array(rows["id"].to_numpy() * rows["amount"].to_numpy() % MODULUS)
        names = [HASH, *(name for name, _ in KEPT)]
        new = pa.table([rows[HASH], rows["product"], ones, links, rows["id"]], names=names)
        both = pa.concat_tables([state.select(names), new])
        done = both.group_by([HASH, "product"], use_threads=False)
        now = done.aggregate([("sold", "sum"), ("chain", "sum"), ("newest", "max")])
        now = now.select([HASH, "product", "sold_sum", "chain_sum", "newest_max"]).rename_columns(names)
        now = now.append_column(DUE, pa.nulls(len(now), pa.int64()))
        changed = pc.is_in(now[HASH], value_set=pc.unique(rows[HASH]))
        return Step(state=now, output=now.filter(changed), counts={"in": len(rows)})


@app.view("sold", key="product", order="sold")
def sold(orders: DataFrame) -> DataFrame:
    return orders.transform(run_fold, "product", Sold())


@app.topic("large-orders")
def large_orders(orders: DataFrame) -> DataFrame:
    return orders.where("amount > 50")
