"""Arrays, maps and structs through a fold: a stream gives what a batch gives, whatever the zone of the session."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from proving import proves
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.dedup import deduplicate
from tidelog.pipelines.operators.time import event_time
from tidelog.pipelines.operators.windows.tumbling import tumbling
from tidelog.testing.pipeline import PipelineDriver

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
LONG = 2**53 + 1  # no float has it
ZONE = "spark.sql.session.timeZone"

VALUES: dict[str, Any] = {
    "map<string,int>": {"one": 1, "none": None},
    "map<string,timestamp>": {"noon": NOON},
    "map<bigint,array<map<string,bigint>>>": {LONG: [{"a": LONG, "b": None}, None]},
    "array<bigint>": [LONG, None],
    "array<timestamp>": [NOON, None],
    "array<timestamp_ntz>": [NOON.replace(tzinfo=None)],
    "array<double>": [1.5, None, float("nan"), float("inf")],
    "array<string>": ["a", None],
    "array<binary>": [bytearray(b"\x00\xff"), None],
    "array<boolean>": [True, None],
    "array<decimal(20,2)>": [Decimal("123456789012345678.90"), None],
    "array<date>": [date(2026, 1, 1), None],
    "array<array<int>>": [[1, None], None, []],
    "array<struct<at:timestamp,n:bigint>>": [(NOON, LONG), None],
    "struct<at:timestamp,n:bigint,x:double,tags:array<bigint>>": (NOON, LONG, float("nan"), [None, LONG]),
    "struct<map:map<string,struct<at:timestamp>>>": ({"a": (NOON,)},),
}
NAMES = {f"v{place}": kind for place, kind in enumerate(VALUES)}
SCHEMA = ", ".join(["key string", "at timestamp", *(f"{name} {kind}" for name, kind in NAMES.items())])


@pytest.fixture(params=["America/New_York", pytest.param("UTC", marks=pytest.mark.full)])
def driver(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[PipelineDriver]:
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, request.param)
    try:
        with PipelineDriver(spark) as made:
            yield made
    finally:
        spark.conf.set(ZONE, str(before))


def once(rows: DataFrame) -> DataFrame:
    return rows.transform(event_time("at", "0 seconds")).transform(deduplicate("key", within="1 second"))


def last_and_late(rows: DataFrame) -> DataFrame:
    kept = {name: agg.last(name) for name in NAMES}
    window = tumbling("1 minute", by="key", aggregates=kept, late="side_output")
    return rows.transform(event_time("at", "0 seconds")).transform(window)


@proves("P1", "B1")
@pytest.mark.slow
def test_a_nested_column_is_in_a_stream_what_it_is_in_a_batch(driver: PipelineDriver) -> None:
    given = driver.input("given", SCHEMA)
    run = driver.run(once, given)
    given.add([("full", "10:00:00", *VALUES.values()), ("nulls", "10:00:01", *[None] * len(VALUES))])
    run.step()
    run.finish()
    found, expected = ({row["key"]: row for row in rows} for rows in (run.output, run.batch()))
    for name, kind in NAMES.items():
        assert repr(found["full"][name]) == repr(expected["full"][name]), kind
    assert found["nulls"] == expected["nulls"]
    assert found["full"]["v3"] == [LONG, None]


@pytest.mark.full
@proves("P7", "B1")
def test_a_late_row_and_the_last_value_of_a_window_have_their_nested_columns_whole(driver: PipelineDriver) -> None:
    given = driver.input("given", SCHEMA)
    run = driver.run(last_and_late, given)
    given.add([("a", "10:00:00", *VALUES.values()), ("b", "10:05:00", *VALUES.values())])
    (told,) = run.step()
    given.add([("a", "10:00:30", *VALUES.values())])
    (late,) = run.step()
    for name, kind in NAMES.items():
        assert repr(late["_late"]["row"][name]) == repr(told[name]), kind
    batch = [row for row in run.batch() if row["key"] == "a"]
    assert repr([told[name] for name in NAMES]) == repr([batch[0][name] for name in NAMES])
