"""Backups of a data folder: taken while its broker runs, checked, and put back elsewhere.

Nothing here is part of a broker but the one file that says where its partitions end (`cut.py`, given by
`broker/cutting.py`); it runs in a process of its own and never writes to a file that a broker has. It may import `log`,
`record` and what folds topics. Read `cut.py` first, then `taking.py`.
"""
