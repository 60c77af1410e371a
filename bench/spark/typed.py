"""Rows a second from bytes to typed columns, by format: the decoder beside what else there is, and inside of Spark.

    python -m bench.spark.typed [--rounds 5] [--rows 200000] [--no-spark]

The same 200,000 orders of six fields in Avro, Protobuf and JSON. The decoder runs on one core; beside it stand
fastavro, Google's protobuf and pyarrow's JSON reader, each bringing its rows into the same Arrow table (checked
before anything is timed). In Spark, the bytes come from a cached DataFrame, so that neither a broker nor a disk is in
the figure, and go to nowhere; beside it stand `from_json`, and `mapInArrow` that hands its batches back, which is
what a stage in Python costs by itself. All take turns, round after round; figures are medians, and the load average
of the run is printed with them.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.json

from tidelog.schema.decoding.decoder import Decoder, reader_of, value_type

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["OPEN", "PAID", "SENT"]}},
        {"name": "quantity", "type": "int"},
        {"name": "note", "type": ["null", "string"]},
    ],
}
PROTOBUF = """
syntax = "proto3";
enum Status { OPEN = 0; PAID = 1; SENT = 2; }
message Order { int64 id = 1; string customer = 2; double amount = 3; Status status = 4; int32 quantity = 5;
                optional string note = 6; }
"""
JSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "customer": {"type": "string"},
        "amount": {"type": "number"},
        "status": {"type": "string"},
        "quantity": {"type": "integer"},
        "note": {"type": ["string", "null"]},
    },
}
DDL = "id bigint, customer string, amount double, status string, quantity bigint, note string"
QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
SLOW_SHARE = 10  # contenders that go row by row get this part of the rows


class Contender(NamedTuple):
    name: str
    rows: int
    work: Callable[[], Any]


def orders(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": 10**9 + n,
            "customer": f"customer-{n % 5000:06d}",
            "amount": round((n * 7919 % 100_000) / 7, 2),
            "status": ("OPEN", "PAID", "SENT")[n % 3],
            "quantity": n % 50,
            "note": f"leave at door {n % 17}" if n % 4 == 0 else None,
        }
        for n in range(count)
    ]


def as_avro(rows: list[dict[str, Any]]) -> list[bytes]:
    schema, made = fastavro.parse_schema(json.loads(json.dumps(AVRO))), []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        made.append(out.getvalue())
    return made


def order_class() -> Any:
    from google.protobuf.message_factory import GetMessageClass

    from tidelog.schema.decoding.protobuf_program import find_message
    from tidelog.schema.formats import parse

    return GetMessageClass(find_message(parse("PROTOBUF", PROTOBUF, {}).model, "Order"))


def as_protobuf(rows: list[dict[str, Any]], order: Any) -> list[bytes]:
    return [order(**{k: v for k, v in row.items() if v is not None}).SerializeToString() for row in rows]


# --- the decoder alone -----------------------------------------------------------------------------------------------


def decoding(count: int) -> list[Contender]:
    rows, order = orders(count), order_class()
    few = count // SLOW_SHARE
    avro = pa.array(as_avro(rows), pa.binary())
    protobuf = pa.array(as_protobuf(rows, order), pa.binary())
    texts = pa.array([json.dumps(row).encode() for row in rows], pa.binary())
    readers = [reader_of("AVRO", json.dumps(AVRO), {}), reader_of("PROTOBUF", PROTOBUF, {}, message="Order")]
    readers.append(reader_of("JSON", json.dumps(JSON), {}))
    ours = [Decoder(reader) for reader in readers]
    kinds = [value_type(reader) for reader in readers]
    return [
        Contender("Avro, tidelog", count, lambda: decoded(ours[0], avro)),
        Contender("Avro, fastavro", few, lambda: by_fastavro(avro.slice(0, few), kinds[0])),
        Contender("Protobuf, tidelog", count, lambda: decoded(ours[1], protobuf)),
        Contender("Protobuf, protobuf (upb)", few, lambda: by_upb(protobuf.slice(0, few), order, kinds[1])),
        Contender("JSON, tidelog", count, lambda: decoded(ours[2], texts)),
        Contender("JSON, pyarrow.json", count, lambda: by_pyarrow(texts, kinds[2])),
        Contender("JSON, json.loads", few, lambda: by_loads(texts.slice(0, few), kinds[2])),
    ]


def decoded(decoder: Decoder, values: pa.Array) -> pa.Array:
    made, failed = decoder.decode(values)
    assert not failed, failed[0]
    return made


def by_fastavro(values: pa.Array, kind: pa.DataType) -> pa.Array:
    schema = fastavro.parse_schema(json.loads(json.dumps(AVRO)))
    rows = [fastavro.schemaless_reader(io.BytesIO(value), schema, None) for value in values.to_pylist()]
    return pa.array(rows, kind)


def by_upb(values: pa.Array, order: Any, kind: pa.DataType) -> pa.Array:
    """Column by column, which is the quick way to take messages apart in Python."""
    messages = [order.FromString(value) for value in values.to_pylist()]
    names = order.DESCRIPTOR.fields_by_name["status"].enum_type
    status = {value.number: value.name for value in names.values}
    columns = [
        [one.id for one in messages],
        [one.customer for one in messages],
        [one.amount for one in messages],
        [status[one.status] for one in messages],
        [one.quantity for one in messages],
        [one.note if one.HasField("note") else None for one in messages],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, kind, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def by_pyarrow(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Quick, but a bad row fails its whole block, and rows have to be put into lines first."""
    text = b"\n".join(values.to_pylist())
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore")
    read = pyarrow.json.ReadOptions(use_threads=False)
    table = pyarrow.json.read_json(io.BytesIO(text), read_options=read, parse_options=options)
    return pa.concat_arrays(table.to_struct_array().chunks)


def by_loads(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.array([json.loads(value) for value in values.to_pylist()], kind)


def check(contenders: list[Contender]) -> None:
    made = {one.name: one.work().slice(0, one.rows // SLOW_SHARE).to_pylist() for one in contenders}
    for name, rows in made.items():
        least = min(len(rows), 100)
        first = next(iter(made.values()))
        assert rows[:least] == first[:least], f"{name} reads something else"


# --- in Spark --------------------------------------------------------------------------------------------------------


def in_spark(count: int) -> tuple[Any, list[Contender]]:
    from pyspark.sql import functions as f

    import tidelog
    import tidelog.spark

    spark = tidelog.spark_session(master="local[2]", settings=QUIET)
    rows, order = orders(count), order_class()
    table = pa.table(
        {
            "avro": pa.array(as_avro(rows), pa.binary()),
            "protobuf": pa.array(as_protobuf(rows, order), pa.binary()),
            "json": pa.array([json.dumps(row).encode() for row in rows], pa.binary()),
        }
    )
    held = spark.createDataFrame(table).repartition(2).cache()
    held.count()

    def run(rows: Any) -> Callable[[], Any]:
        return lambda: rows.write.format("noop").mode("overwrite").save()

    typed = tidelog.spark.typed
    avro, protobuf, texts = (held.select(f.col(name).alias("value")) for name in table.column_names)
    return spark, [
        Contender("a stage in Python that does nothing", count, run(avro.mapInArrow(handed_back, "value binary"))),
        Contender("Avro, typed", count, run(avro.transform(typed(AVRO)))),
        Contender("Protobuf, typed", count, run(protobuf.transform(typed(PROTOBUF, message="Order")))),
        Contender("JSON, typed", count, run(texts.transform(typed(JSON)))),
        Contender("JSON, from_json", count, run(texts.select(f.from_json(f.col("value").cast("string"), DDL)))),
    ]


def handed_back(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


# --- turns -----------------------------------------------------------------------------------------------------------


def warm_up(contenders: list[Contender]) -> None:
    """The JVM compiles what it has seen often enough."""
    for _ in range(2):
        for one in contenders:
            one.work()


def measure(contenders: list[Contender], rounds: int, *, here: bool) -> None:
    """`here`: this process does all the work, so that its CPU time is known, which a busy machine changes less."""
    taken: dict[str, list[tuple[float, float]]] = {one.name: [] for one in contenders}
    for _ in range(rounds):
        for one in contenders:
            begin, used = time.perf_counter(), time.process_time()
            one.work()
            taken[one.name].append((time.perf_counter() - begin, time.process_time() - used))
    for one in contenders:
        wall, cpu = (one.rows / statistics.median(times) / 1e6 for times in zip(*taken[one.name], strict=True))
        print(f"{one.name:38} {wall:8.2f} M rows/s" + (f" {cpu:8.2f} M rows a CPU second" if here else ""))


def main() -> None:
    options = argparse.ArgumentParser(description="rows a second from bytes to typed columns")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--rows", type=int, default=200_000)
    options.add_argument("--spark-rows", type=int, default=1_000_000)
    options.add_argument("--no-spark", action="store_true")
    given = options.parse_args()
    alone = decoding(given.rows)
    check(alone)
    print(f"one core, {given.rows} rows; load average {os.getloadavg()[0]:.1f}")
    measure(alone, given.rounds, here=True)
    if not given.no_spark:
        spark, contenders = in_spark(given.spark_rows)
        warm_up(contenders)
        print(f"\nSpark, 2 cores, {given.spark_rows} rows; load average {os.getloadavg()[0]:.1f}")
        measure(contenders, given.rounds, here=False)
        spark.stop()


if __name__ == "__main__":
    main()
