"""Testing a Spark pipeline one step at a time: fixed micro-batches, late rows, a crash, and the batch answer.

The fixture `tidelog_pipeline` comes with the package. It runs the pipeline in Spark itself, in the test's own process,
and hands the test what is random elsewhere: which rows share a micro-batch, the watermark, the clock, and crashes.

    pip install '/path/to/tidelog[spark]' pytest
    pytest examples/test_pipeline.py
"""

import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from tidelog.testing import at


def visits_by_minute(visits: DataFrame) -> DataFrame:
    """The code under test, as it may stand in any application: a function of DataFrames."""
    timed = visits.withWatermark("at", "30 seconds")
    minutes = timed.groupBy(F.window("at", "1 minute").alias("minute"), "page").agg(F.count("*").alias("visits"))
    return minutes.select("minute.start", "page", "visits")


VISITS = "page string, at timestamp"


def test_a_minute_is_reported_when_the_watermark_has_passed_it(tidelog_pipeline):
    visits = tidelog_pipeline.input("visits", VISITS)
    run = tidelog_pipeline.run(visits_by_minute, visits)

    visits.add([("home", "10:03:20"), ("home", "10:03:59"), ("cart", "10:04:10")])
    assert run.step() == []
    assert run.watermark == at("10:03:40")

    visits.add([("home", "10:04:30")])
    assert sorted(run.step()) == [Row(start=at("10:03"), page="home", visits=2)]


def test_a_late_visit_is_not_counted(tidelog_pipeline):
    visits = tidelog_pipeline.input("visits", VISITS)
    run = tidelog_pipeline.run(visits_by_minute, visits)

    visits.add([("home", "10:10:00")])
    run.step()
    visits.add([("home", "10:03:00")])  # more than 30 seconds behind
    run.step()
    assert [row.start for row in run.finish()] == [at("10:10")]


@pytest.mark.parametrize("point", ["after offsets", "between tasks", "before the sink", "before the commit"])
def test_a_crash_changes_nothing(tidelog_pipeline, point):
    visits = tidelog_pipeline.input("visits", VISITS, partitions=2)
    run = tidelog_pipeline.run(visits_by_minute, visits)

    visits.add([("home", "10:03:20")], partition=0)
    run.step()
    visits.add([("home", "10:03:30"), ("cart", "10:03:31")], partition=1)
    run.crash(point)
    run.restart()
    assert {row["page"]: row["count"] for row in run.state()} == {"home": 2, "cart": 1}  # Spark's own name for it

    run.finish()
    run.assert_equal_to_batch()
