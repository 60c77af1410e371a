"""Many partitions and everything known about them: topics, groups, offsets, producers, and who waits for what.

This room decides; it never parses a record and never invents a byte of one. Sockets and threads are in `server.py` and
`loop.py` alone, and one thread owns all state. It may import `record`, `wire` and `log`. Read `broker.py` first, then
`decision.py`, `internal.py` and one handler.
"""
