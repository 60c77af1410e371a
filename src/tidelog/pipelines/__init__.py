"""What is computed from topics, kept up to date on Spark: operators, and apps that declare and run them.

It never speaks Kafka's protocol itself and never writes to a store: rows come and go as DataFrames, and views are
topics. It may import `spark`, `views`, `client`, PySpark and pyarrow; only `testing` and `cli` import it. Read
`app.py` first (what users declare), then `graph.py`, `inputs.py` and `view_topic.py` (from topics to topics), then
`running.py`; of operators, `operators/__init__.py`.
"""
