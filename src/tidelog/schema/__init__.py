"""Schemas of records: Avro, JSON Schema and Protobuf behind one small interface; parse, compare, decode to columns.

Nothing here reads a file, a socket or a clock, and no text of a schema can make it run long, go deep or run a regular
expression (`bounds.py`). It imports `errors` alone; libraries of a format are loaded on first use. Read `schema.py`
first (what a schema is here), then `formats.py` (the three of them), `compatibility.py` and `decoding/`. The types of
columns, whatever they are made of or kept in, are one table: `column_types.py`, and `connect.py` for captured ones.
"""
