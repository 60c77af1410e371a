"""Values of records into Arrow columns: Avro, Protobuf and JSON, many rows at a time, each row good or with a reason.

Nothing here fetches a schema: whoever decodes hands in those of the writers. The inner loop is compiled (`_decode`,
over four small headers in C); there is no twin in Python, which would be a hundred times slower. pyarrow is imported
late. Read `column.py` first (what columns there are), then `decoder.py`, then the programs of the three formats.
"""
