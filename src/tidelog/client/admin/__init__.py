"""Looking after a cluster: topics, settings, groups and brokers, one module a noun, plain functions over a `Cluster`.

Each does one thing and returns plain data, or raises a `BrokerError` that names the thing; lookups and retries are
`cluster.py`'s. It prints nothing and asks nobody: that is the command line's. Read `topics.py` first.
"""
