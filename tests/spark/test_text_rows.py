"""Rows of texts, as the JVM packs them for the driver: the same as Spark's own `collect` has."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from proving import proves
from tidelog.spark.foreach_batch import metrics_in
from tidelog.spark.text_rows import TextBatch, columns_of, for_each_batch, unpacked


def text(value: str | None) -> bytes:
    data = b"" if value is None else value.encode()
    return struct.pack(">i", -1 if value is None else len(data)) + data


@proves("P1")
def test_packed_rows_are_texts_and_numbers_and_what_is_null_is_none() -> None:
    packed = text("k") + text('{"a":"☕"}') + struct.pack(">q", -(2**63)) + text(None) + text("") + struct.pack(">q", 7)
    assert list(unpacked(packed, "ssq")) == [("k", '{"a":"☕"}', -(2**63)), (None, "", 7)]
    assert list(unpacked(b"", "ssq")) == []


@proves("P1")
def test_bytes_come_in_parts_and_rows_may_be_cut_between_them() -> None:
    packed = b"".join(text(f"row {number}") for number in range(5))
    parts = iter([b"\x01" + packed[:7], b"\x01" + packed[7:9], b"\x00" + packed[9:]])
    batch = TextBatch("rows", Any, "s", lambda rows: SimpleNamespace(next=lambda: next(parts)))  # type: ignore[arg-type]
    assert [one for (one,) in batch.collect()] == [f"row {number}" for number in range(5)]


@proves("P1")
def test_rows_that_our_jar_does_not_know_are_collected_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = SimpleNamespace(collect=lambda: [("collected",)])
    monkeypatch.setattr(TextBatch, "frame", frame)
    for text_rows in (None, lambda rows: None):
        assert TextBatch("rows", Any, "s", text_rows).collect() == [("collected",)]  # type: ignore[arg-type]


@proves("P1")
def test_a_changelog_whose_numbers_are_short_is_not_packed() -> None:
    text, number = StringType(), LongType()
    assert columns_of(StructType().add("key", text).add("row", text).add("_seq", number)) == "ssq"
    assert columns_of(StructType().add("key", text).add("_seq", IntegerType())) is None
    assert columns_of(StructType().add("key", StringType("UTF8_LCASE"))) is None


@proves("P1")
def test_metrics_of_a_plan_are_told_in_one_text() -> None:
    assert metrics_in("") == {}
    assert metrics_in("tidelog dropped 1\tkeyless\t3\ntidelog time 2\tlatest_ms\t-5\n") == {
        "tidelog dropped 1": {"keyless": 3},
        "tidelog time 2": {"latest_ms": -5},
    }


@pytest.mark.full
@proves("P1", "eo.12")
def test_what_is_packed_is_what_spark_collects(spark: SparkSession, tmp_path: Path) -> None:
    """Of several partitions, in their order; long texts come in parts, and an empty micro-batch is empty."""
    (tmp_path / "in").mkdir()
    lines = ["", "a", 'b "☕" \\', "ü" * 3_000_000, *(f"line {number}" for number in range(500))]
    (tmp_path / "in" / "1.txt").write_text("\n".join(lines))
    rows = spark.readStream.text(str(tmp_path / "in")).repartition(3, "value")
    shown = F.when(F.col("value") != "a", F.col("value")).alias("row")
    numbered = rows.select("value", shown, F.length("value").cast("long").alias("size"))
    found: list[tuple[Any, Any, Any]] = []

    def each(batch: TextBatch, batch_id: int) -> None:
        known = batch._text_rows(batch._rows) is not None
        kept = batch.frame.collect()
        found.append((known, list(batch.collect()), [tuple(row) for row in kept]))

    for folder, limit in (("checkpoint", None), ("empty", 0)):
        rows = numbered if limit is None else numbered.where("value is null")
        stream = for_each_batch(rows.writeStream, rows, each).option("checkpointLocation", str(tmp_path / folder))
        stream.trigger(availableNow=True).start().awaitTermination()
    (known, packed, collected), (_, nothing, none) = found
    assert known and packed == collected and len(packed) == len(lines)
    assert nothing == none == []
