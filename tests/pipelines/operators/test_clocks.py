"""Three timestamps, and what a plain function makes of them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from proving import proves
from tidelog.errors import UsageError
from tidelog.pipelines.operators.clocks import clock_verdict, corrected_time
from tidelog.pipelines.operators.time import event_time
from tidelog.testing.pipeline import PipelineDriver

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
THRESHOLD = timedelta(minutes=55)
SCHEMA = "occurred timestamp, sent timestamp, received timestamp"


class Case(NamedTuple):
    occurred: datetime | None
    sent: datetime | None
    received: datetime | None


def oracle(case: Case, threshold: timedelta) -> tuple[datetime | None, str | None]:
    occurred, sent, received = case
    if occurred is None:
        return None, None
    if sent is None or received is None:
        return occurred, "unknown"
    if sent < occurred:
        return received, "stepped"
    if abs(received - sent) < threshold:
        return min(occurred, received), "trusted"
    return received - (sent - occurred), "corrected"


def cases(seed: int, count: int = 400) -> list[Case]:
    """Any clock, any delay, and the boundaries: nothing waited, no time on the way, wrong by exactly the threshold."""
    chance = random.Random(seed)

    def case() -> Case:
        wrong = chance.choice(
            [timedelta(0), THRESHOLD, -THRESHOLD, timedelta(microseconds=chance.randrange(-(10**13), 10**13))]
        )
        age = chance.choice([timedelta(0), timedelta(microseconds=1), timedelta(microseconds=chance.randrange(10**12))])
        way = chance.choice([timedelta(0), timedelta(microseconds=chance.randrange(10**9))])
        stepped = chance.choice([timedelta(0)] * 4 + [-age - timedelta(microseconds=1), timedelta(hours=-9)])
        made = Case(NOW + wrong, NOW + wrong + age + stepped, NOW + age + way)
        return Case(*(time if chance.random() > 0.05 else None for time in made))

    return [case() for _ in range(count)]


def shifted(given: list[Case], by: timedelta) -> list[Case]:
    return [Case(one.occurred and one.occurred + by, one.sent and one.sent + by, one.received) for one in given]


def corrected(frame: DataFrame, threshold: timedelta) -> DataFrame:
    columns = ("occurred", "sent", "received")
    at = corrected_time(*columns, threshold=threshold)
    return frame.select(at.alias("at"), clock_verdict(*columns, threshold=threshold).alias("verdict"))


def answers(spark: SparkSession, given: list[Case], threshold: timedelta) -> list[tuple[datetime | None, str | None]]:
    """In order: a local DataFrame has one."""
    rows = corrected(spark.createDataFrame(given, SCHEMA).coalesce(1), threshold).collect()
    return [(row.at and row.at.astimezone(UTC), row.verdict) for row in rows]


@proves("P7")
@pytest.mark.parametrize("threshold", [timedelta(0), THRESHOLD])
def test_every_case_is_what_a_plain_function_says(spark: SparkSession, seed: int, threshold: timedelta) -> None:
    given = cases(seed)
    found = answers(spark, given, threshold)
    assert found == [oracle(case, threshold) for case in given]
    assert {verdict for _, verdict in found} >= {None, "corrected", "stepped", "unknown"}
    assert ("trusted" in {verdict for _, verdict in found}) is bool(threshold)


@proves("P7")
def test_a_clock_that_is_wrong_by_a_constant_makes_no_difference(spark: SparkSession, seed: int) -> None:
    """But for what was not corrected at all."""
    given = [case for case in cases(seed) if None not in case]
    for by in (timedelta(microseconds=1), timedelta(days=-400)):
        assert answers(spark, shifted(given, by), timedelta(0)) == answers(spark, given, timedelta(0))


@proves("P7")
@pytest.mark.parametrize("threshold", [timedelta(0), THRESHOLD])
def test_nothing_that_was_sent_after_it_occurred_is_after_it_was_received(
    spark: SparkSession, seed: int, threshold: timedelta
) -> None:
    """Nor is anything else that was corrected: one time in the future, and Spark drops all that follows."""
    given = cases(seed)
    for case, (at, verdict) in zip(given, answers(spark, given, threshold), strict=True):
        if verdict not in (None, "unknown"):
            assert at is not None and case.received is not None
            assert at <= case.received


@proves("P7", "B1")
@pytest.mark.slow
def test_rows_of_a_stream_are_corrected_before_their_time_is_declared(tidelog_spark: SparkSession) -> None:
    """Ada's clock is a day ahead: uncorrected, her row would make all the others late."""

    def pipeline(rows: DataFrame) -> DataFrame:
        timed = rows.withColumn("at", corrected_time("occurred", "sent", "received"))
        timed = timed.transform(event_time("at", "10 seconds"))
        return timed.groupBy(F.window("at", "1 minute")).count().select("window.start", "count")

    right = NOW
    wrong = right + timedelta(days=1)
    second = timedelta(seconds=1)
    with PipelineDriver(tidelog_spark) as driver:
        rows = driver.input("rows", SCHEMA)
        run = driver.run(pipeline, rows)
        rows.add([Case(wrong, wrong + second, right + second)])
        run.step()
        rows.add([Case(right + 5 * second, right + 6 * second, right + 6 * second)])
        run.step()
        rows.add([Case(right + 120 * second, right + 120 * second, right + 120 * second)])
        found = run.step() + run.step()
        assert [row["count"] for row in found] == [2]
        assert 2 in [row["count"] for row in run.batch()]


@proves("P7")
def test_a_threshold_that_is_no_duration_is_refused() -> None:
    with pytest.raises(UsageError, match="threshold is 'a while', which is not a duration"):
        clock_verdict(F.lit(None), F.lit(None), F.lit(None), threshold="a while")
