"""SQLite as a source: triggers write every change to a table of the same file, in the writer's own transaction.

Read `source.py` first, then `triggers.py` (what is written) and `shapes.py` (what tables look like).
"""
