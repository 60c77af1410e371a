"""Changes of a PostgreSQL database by triggers, for a server that does not let us read its log.

Read `source.py` first, then `functions.py` (what a trigger writes) and `changelog.py` (in which order it is read).
"""
