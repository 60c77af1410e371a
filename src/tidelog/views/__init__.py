"""Changelog topics applied to real stores: declared, applied, queried, waited for, followed and switched.

A view is its topic first (`catalog.py`): what a store has is a copy up to a mark, and can always be made anew. It never
imports PySpark and never writes a view's topic. It may import `client`, `schema`, `record` and `wire`; each store's
library is loaded when a store of that kind is opened. Read `declaration.py` first, then
`changes.py`, then `applier.py`.
"""
