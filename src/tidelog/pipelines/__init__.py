"""What is computed from topics, kept up to date on Spark: operators now, apps that declare and run them later.

It never speaks Kafka's protocol itself and never writes to a store: rows come and go as DataFrames. It may import
`spark`, PySpark and pyarrow; only `testing`, `gateway`, `console` and `cli` import it. Read `operators/__init__.py`
first.
"""
