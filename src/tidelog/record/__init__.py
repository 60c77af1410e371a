"""One record batch (RecordBatch v2): its bytes, its header, its rows as columns.

This room turns bytes into columns and columns into bytes, checks and stamps batch headers, and chooses partitions for
keys. It never opens a file or a socket, keeps no state between calls, and imports nothing of Tidelog but `errors`;
cramjam and pyarrow are imported late, by the functions that need them. Read `header.py` first (the layout), then
`_pure.py` (what every function does, in Python), then `_codec.pyx` (the same, compiled).
"""
