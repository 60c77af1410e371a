"""Protobuf schemas: one .proto file, as text or as a serialized descriptor, compared by the rules of registries.

The text is read by a small parser of our own, within limits; what it means is decided by Google's `protobuf`, which the
extra `schemas` brings. Read `parse.py` first (from text to a linked file), then `grammar.py`, `text.py` (the canonical
form) and `compatibility.py`.
"""
