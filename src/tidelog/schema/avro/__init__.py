"""Avro schemas, by the rules of Avro's specification and of its Java library, which registries go by.

Needs no library: those for Python read data well, but take schemas that Avro forbids. Read `model.py` first (what there
is), then `parse.py`, `text.py` (the canonical form) and `compatibility.py`.
"""
