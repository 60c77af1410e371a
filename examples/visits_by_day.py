"""Seven days of visits: hours as sketches, days made of the hours, and each day beside the one before it.

python examples/visits_by_day.py

It is a batch here, so that it ends; on a stream the same function gives a day's row when the day is over. Needs
`pip install 'tidelog[spark]'` and nothing else but Java 17.
"""

from pyspark.sql import DataFrame

import tidelog
from tidelog.operators import (
    aggregates as agg,
)
from tidelog.operators import (
    compare_with_earlier,
    distinct,
    event_time,
    percentiles,
    top_k,
    tumbling,
)


def daily(visits: DataFrame) -> DataFrame:
    hour = {
        "visits": agg.count(),
        "users": distinct("user", sketch=True),
        "ms": percentiles("ms", 0.99, sketch=True),
        "pages": top_k("page", 2, sketch=True),
    }
    day = {
        "visits": agg.sum("visits"),
        "users": distinct("users", merge=True),
        "ms": percentiles("ms", 0.99, merge=True),
        "pages": top_k("pages", 2, merge=True),
    }
    timed = visits.transform(event_time("at", "1 hour"))
    days = timed.transform(tumbling("1 hour", aggregates=hour)).transform(tumbling("1 day", aggregates=day))
    return days.transform(compare_with_earlier("1 day", columns="visits", slack="1 day"))


spark = tidelog.spark_session("visits by day", settings={"spark.sql.session.timeZone": "UTC"})
spark.sparkContext.setLogLevel("ERROR")
# Day n has n + 1 thousand visits, by 500 users; every second visit is to the start page.
visits = spark.range(28_000).selectExpr("id", "cast(floor((sqrt(8 * floor(id / 1000) + 1) - 1) / 2) as int) as day")
visits = visits.selectExpr(
    "timestamp'2026-03-01 00:00:00' + make_dt_interval(day, id % 24) as at",
    "id % 500 as user",
    "cast(id % 100 as double) as ms",
    "if(id % 2 = 0, 'start', concat('page ', id % 7)) as page",
)
for row in daily(visits).orderBy("window_start").collect():
    before = "no day before" if row.visits_earlier is None else f"{row.visits - row.visits_earlier:+} on the day before"
    most = row.pages[0]
    print(f"{row.window_start:%a}: {row.visits} visits ({before}), {most.item} {most['count']}")
    print(f"    {row.users} users, 99 of 100 within {row.ms:.0f} ms")
spark.stop()
