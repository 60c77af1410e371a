"""Readings of devices whose clocks are wrong, at the times when they were taken.

python examples/device_clocks.py

Needs `pip install 'tidelog[spark]'` and nothing else but Java 17.
"""

import tidelog
from tidelog.operators import clock_verdict, corrected_time

READINGS = [
    ("right", "2026-03-01 10:00:00", "2026-03-01 10:00:05", "2026-03-01 10:00:05"),
    ("a day ahead", "2026-03-02 10:00:00", "2026-03-02 10:00:05", "2026-03-01 10:00:05"),
    ("still in 1970", "1970-01-01 00:10:00", "1970-01-01 02:10:00", "2026-03-01 12:00:00"),
    ("set back in between", "2026-03-01 10:00:00", "2026-03-01 09:00:00", "2026-03-01 10:00:05"),
    ("does not say", "2026-03-01 10:00:00", None, "2026-03-01 10:00:05"),
]

spark = tidelog.spark_session("device clocks", settings={"spark.sql.session.timeZone": "UTC"})
spark.sparkContext.setLogLevel("ERROR")
rows = spark.createDataFrame(READINGS, "device string, occurred string, sent string, received string")
rows = rows.selectExpr("device", *(f"cast({name} as timestamp) as {name}" for name in ("occurred", "sent", "received")))
times = ("occurred", "sent", "received")
told = rows.select("device", corrected_time(*times).cast("string").alias("at"), clock_verdict(*times).alias("clock"))
for row in told.collect():
    print(f"{row.device}: {row.at} ({row.clock})")
spark.stop()
