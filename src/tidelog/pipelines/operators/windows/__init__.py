"""Windows over event time: tumbling, hopping, sliding and session windows, and what becomes of rows that come too late.

Where Spark has the window natively and nothing else is asked for, it stays Spark's; else it is a fold
that imports nothing of Spark. Read `firing.py` first (when a window is put out, and with what), then `panes.py`, then
the fold of a window; `declared.py` is what the functions that users call have in common.
"""
