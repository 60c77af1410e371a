"""One partition on disk: batches appended, synced, read back, found by offset or time, recovered, deleted.

This room never knows topics, groups, requests or an event loop, and never changes a batch but for its base offset,
leader epoch and (by setting) append time. It may import `record` and the errors, nothing else. Read `log.py` first,
then `commit.py`.
"""
