"""Figures about Spark: topics as DataFrames beside Spark's own Kafka connector, the session beside PySpark's defaults.

`bench.py` takes turns and keeps figures; `reading.py`, `copying.py`, `committing.py`, `memory.py` and `sessions.py` are
the rows. `floor.py` is what a micro-batch costs before it does anything, and how old a record is when a sink sees it;
its sides are sessions (`floor_side.py`), each in a process of its own.
"""
