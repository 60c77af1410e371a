"""`make bench-broker`: every figure that is published about the broker, Apache Kafka 4.3 beside it in the same run.

A client in C on librdkafka (`load.c`) makes the load; librdkafka's own broker in memory is the native ceiling. Sides
take turns within each repetition, so that what else the machine does falls on all of them; figures are medians. The
rows are modules with a `run(bench)`; `report.py` knows the goals. Start with `__main__.py`, then `bench.py`.
"""
