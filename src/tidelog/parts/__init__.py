"""Parts of a deployment: what runs for long, is kept running, and tells how it is. No PySpark.

Read `part.py` first (what a part is), then `supervision.py` (when it is started again: pure), `running.py` (the shell),
and `blocking.py` and `children.py` for the two kinds of parts that any room can use. How a part is, by what it tells,
`control/health.py` says, and its numbers stand in `control/metrics.py`: who shows them needs no part.
"""
