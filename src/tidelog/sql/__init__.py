"""SQL over live topics and views, without a JVM: DuckDB reads what the codec decodes.

It never writes a topic or a store and keeps no copy. It may import `views`, `client`, `schema` and `record`; DuckDB and
pyarrow are loaded when the first question is asked. Read `session.py` first.
"""
