"""The one mechanism under every stateful operator: buckets of keys, pages of packed state, and who calls the fold.

It never knows what a fold computes. It imports PySpark late, where a query is declared or runs; `fold.py`, `pages.py`
and `buckets.py` are pure. Read `fold.py` first (what an operator is to it), then `pages.py` (bytes), then
`processor.py`.
"""
