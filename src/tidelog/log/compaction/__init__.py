"""Compaction of one partition: of records with the same key only the last stays, at its offset.

A pass reads the records that no pass has been over (the dirty ones), notes where each key was last, and writes the
complete segments anew without what is no longer needed. This folder never touches the segment that grows, changes no
record that stays, and imports what the rest of `log` may. Read `plan.py` first, then `cleaning.py`, then
`compactor.py`.
"""
