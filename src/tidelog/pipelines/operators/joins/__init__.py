"""Joins: stream with stream in a window of time, stream with table as of event time, table with table.

The first is Spark's own (`stream_join.py`); the other two are folds (`as_of.py`, `latest.py`, `tables.py`), pure
functions over Arrow tables whose doors are `enrich.py` and `join_tables.py`. Nothing here reads a clock, and only
`compaction.py` asks a broker. Read `../changelog.py` first (what a table is to an operator), then `matching.py`.
"""
