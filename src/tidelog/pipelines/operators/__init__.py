"""Operators: functions from DataFrame to DataFrame, for streams and batches alike, usable by `df.transform(...)`.

What Spark has natively stays native and runs in the JVM; what it lacks is a *fold* (`state/fold.py`), a pure function
over Arrow tables, run by one mechanism (`state/`) that keeps its state in Spark's own state store. On a batch DataFrame
an operator gives the batch answer: that is the oracle of its tests. Read `state/fold.py` first, then `windows/`.
"""
