"""Excision: records that must not be anywhere any more are taken out of a running broker's files, and noted.

`order.py` is what is asked for, `state.py` the fold of `__tidelog.excisions` (the audit), `shell.py` carries orders out
one by one, `shunning.py` does the same to a folder that was restored, before a broker opens it. How a partition loses a
record is `log/excising.py`.
"""
