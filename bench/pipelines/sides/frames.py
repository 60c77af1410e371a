"""Nexmark's topics as streaming DataFrames of the columns that a query asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEXTS = ("name", "city", "state", "itemName")


class Frames(NamedTuple):
    session: SparkSession
    connector: str
    bootstrap: str
    topics: dict[str, str]
    a_batch: int

    def bids(self, *columns: str) -> DataFrame:
        return self._rows("bid", columns)

    def auctions(self, *columns: str) -> DataFrame:
        return self._rows("auction", columns)

    def people(self, *columns: str) -> DataFrame:
        return self._rows("person", columns)

    def _rows(self, kind: str, columns: tuple[str, ...]) -> DataFrame:
        """With `at`, the time of the event, which is the timestamp of the record too."""
        from pyspark.sql import functions as F

        share = max(int(self.a_batch * SHARES[kind] / sum(SHARES[each] for each in self.topics)), 1)
        reader = self.session.readStream.format(self.connector).option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.option("subscribe", self.topics[kind]).option("startingOffsets", "earliest")
        rows = reader.option("maxOffsetsPerTrigger", str(share)).load()
        schema = ", ".join(f"{name} {'string' if name in TEXTS else 'bigint'}" for name in columns)
        parsed = F.from_json(F.col("value").cast("string"), schema).alias("event")
        return rows.select(F.col("timestamp").alias("at"), parsed).select("at", "event.*")


SHARES = {"person": 1, "auction": 3, "bid": 46}
