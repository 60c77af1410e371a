"""The bytes-level client that no library offers: fetch batches as they lie in the log, produce them as encoded.

It blocks, runs in the caller's thread, starts none, and works the same against Tidelog and Apache Kafka. It never
decides what a broker should do and never imports `broker` or `log`; it may import `record`, `wire` and `errors`. Read
`connection.py` first (one socket), then `cluster.py` (all of them), then `consumer.py` and `producer.py`, then
`transactions.py`; `admin/` is the rest.
"""
