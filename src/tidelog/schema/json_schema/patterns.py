"""Whether a pattern of JSON Schema's matches a name, without running it: for the simplest patterns, else unknown.

A pattern from outside could run for hours. These need no engine: letters, digits, `_` and `-`, with `^` in front, and
`$` or `.*` behind.
"""

from __future__ import annotations

PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def matches(pattern: str, name: str) -> bool | None:
    """None when it takes an engine to tell."""
    from_start, to_end = pattern.startswith("^"), pattern.endswith("$")
    literal = pattern[from_start : len(pattern) - to_end]
    if literal.endswith(".*"):
        literal, to_end = literal[:-2], False
    if literal.startswith(".*"):
        literal, from_start = literal[2:], False
    if not PLAIN.issuperset(literal):
        return None
    if from_start and to_end:
        return name == literal
    if from_start:
        return name.startswith(literal)
    return name.endswith(literal) if to_end else literal in name
