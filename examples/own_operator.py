"""An operator of one's own: orders that nobody has paid within an hour, told when the hour is over.

Spark has no operator for what did not happen. A fold is one pure function over Arrow tables: what is known of each key,
the new rows, and how far time has come. Tidelog keeps its state, wakes it when something is due, and gives the same
answer over history.

python examples/own_operator.py

Needs `pip install 'tidelog[spark]'` and nothing else.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

import tidelog
from tidelog.client import Cluster, Producer, topics
from tidelog.operators import DUE, HASH, Clock, Step, event_time, read_states, run_fold

EVENTS = [("10:00", 1, "placed"), ("10:05", 2, "placed"), ("10:20", 1, "paid"), ("11:30", 3, "placed")]
EVENTS += [("12:10", 3, "paid"), ("12:45", 4, "placed")]

LONG_AGO = -(2**63)
KEPT = [("order", pa.int64()), ("placed", pa.int64()), ("paid", pa.int64())]  # times are ms since 1970, or null


@dataclass(frozen=True)
class Unpaid:
    within: timedelta
    name: str = "unpaid"
    version: int = 1

    @property
    def state_schema(self) -> pa.Schema:
        return pa.schema([(HASH, pa.int64()), (DUE, pa.int64()), *KEPT])

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([("order", pa.int64()), ("placed", pa.int64())])

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        on_time = rows.filter(pc.greater(rows["at"], LONG_AGO if clock.late is None else clock.late))
        now = self.together(state, on_time)
        limit = self.within // timedelta(milliseconds=1)
        now = now.append_column(DUE, pc.add(pc.coalesce(now["placed"], now["paid"]), limit))
        is_over = pc.less_equal(now[DUE], LONG_AGO if clock.watermark is None else clock.watermark)
        over = now.filter(is_over)
        in_time = pc.fill_null(pc.less_equal(pc.subtract(over["paid"], over["placed"]), limit), False)
        unpaid = over.filter(pc.and_(over["placed"].is_valid(), pc.invert(in_time)))
        counts = {"in": len(rows), "late": len(rows) - len(on_time), "unpaid": len(unpaid)}
        return Step(now.filter(pc.invert(is_over)), unpaid, counts)

    def together(self, state: pa.Table, rows: pa.Table) -> pa.Table:
        """A row an order, whichever of its events came first, in this step or in an earlier one."""
        nothing, is_paid = pa.scalar(None, pa.int64()), pc.equal(rows["kind"], "paid")
        times = [pc.if_else(is_paid, nothing, rows["at"]), pc.if_else(is_paid, rows["at"], nothing)]
        new = pa.table([rows[HASH], rows["order"], *times], names=[HASH, "order", "placed", "paid"])
        both = pa.concat_tables([state.select(new.column_names), new]).group_by([HASH, "order"])
        earliest = both.aggregate([("placed", "min"), ("paid", "min")])
        return earliest.select([HASH, "order", "placed_min", "paid_min"]).rename_columns(new.column_names)


def unpaid(events: DataFrame) -> DataFrame:
    """On a stream and, with the same lines, on a batch."""
    timed = events.transform(event_time("timestamp", "10 seconds"))
    rows = timed.selectExpr("order", "kind", "unix_millis(timestamp) as at")
    found = rows.transform(run_fold, "order", Unpaid(within=timedelta(hours=1)))
    return found.selectExpr("order", "timestamp_millis(placed) as placed")


def parsed(records: DataFrame) -> DataFrame:
    value = "from_json(cast(value as string), 'order bigint, kind string') as event"
    return records.selectExpr(value, "timestamp").select("event.*", "timestamp")


def shown(found: DataFrame) -> str:
    return ", ".join(f"{row.order} of {row.placed:%H:%M}" for row in found.orderBy("order").collect())


if __name__ == "__main__":
    with tidelog.Broker() as broker, tempfile.TemporaryDirectory() as folder:
        with Cluster(broker.bootstrap) as cluster:
            topics.create(cluster, "orders", partitions=1)
            with Producer(cluster) as producer:
                for time, order, kind in EVENTS:
                    at = datetime.fromisoformat(f"2026-03-01T{time}").replace(tzinfo=UTC)
                    value = json.dumps({"order": order, "kind": kind}).encode()
                    producer.send("orders", value, timestamp=round(at.timestamp() * 1000))
        spark = tidelog.spark_session(state_store="rocksdb", settings={"spark.sql.session.timeZone": "UTC"})
        topic = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "orders", "startingOffsets": "earliest"}
        stream = parsed(spark.readStream.format("tidelog").options(**topic).load()).transform(unpaid)
        query = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        query.trigger(availableNow=True).start(f"{folder}/unpaid").awaitTermination()
        print("not paid within an hour:", shown(spark.read.parquet(f"{folder}/unpaid")))
        (state,) = read_states(spark, f"{folder}/checkpoint")  # as `tidelog state` does
        print("still open:", state.rows["order"].to_pylist(), "counted:", dict(sorted(state.counts.items())))
        history = parsed(spark.read.format("tidelog").options(**topic).load())
        print("over history, at whose end every hour is over:", shown(history.transform(unpaid)))
        spark.stop()
