"""`python -m bench.pipelines`: operators on Spark beside hand-written PySpark and beside what else a Python user has.

Nexmark's queries (`nexmark.py` makes the input, `oracle.py` knows the answers), and the state of many keys
(`state.py`). Every side is a program of its own, `sides/`, which the command launches, watches and checks. Read
`watch.py` first: it says what is measured.
"""
