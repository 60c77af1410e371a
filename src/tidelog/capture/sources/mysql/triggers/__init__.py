"""Changes of a MySQL or MariaDB database by triggers, for a server whose binlog we may not read.

Read `source.py` first, then `statements.py` (what a trigger writes) and `changelog.py` (in which order it is read).
"""
