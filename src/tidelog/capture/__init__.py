"""Databases become topics: a source's committed changes, in order, once, as Debezium envelopes."""
