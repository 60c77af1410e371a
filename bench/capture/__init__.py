"""Capture beside Debezium on a worker of Kafka Connect: the same database, broker and rows, in one run."""
