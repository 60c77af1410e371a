"""The levels: who must read whom, and against how many of those before."""

from __future__ import annotations

import json

import pytest

from proving import proves
from tidelog.schema.compatibility import LEVELS, conflicts
from tidelog.schema.formats import compatible, parse
from tidelog.schema.schema import Schema


def record(*fields: str) -> Schema:
    """A field with a question mark has a default."""
    made = [
        {"name": name.rstrip("?"), "type": "int", **({"default": 0} if name.endswith("?") else {})} for name in fields
    ]
    return parse("AVRO", json.dumps({"type": "record", "name": "R", "fields": made}), {})


ONE = record("a")
MORE = record("a", "b")
MORE_WITH_DEFAULT = record("a", "b?")
OTHER = record("c")

ALLOWED = [
    ("NONE", OTHER, [ONE, MORE], True),
    ("BACKWARD", ONE, [MORE], True),
    ("BACKWARD", MORE, [ONE], False),
    ("BACKWARD", MORE, [ONE, MORE], True),
    ("BACKWARD_TRANSITIVE", MORE, [ONE, MORE], False),
    ("FORWARD", MORE, [ONE], True),
    ("FORWARD", ONE, [MORE], False),
    ("FORWARD", ONE, [MORE, ONE], True),
    ("FORWARD_TRANSITIVE", ONE, [MORE, ONE], False),
    ("FULL", MORE, [ONE], False),
    ("FULL", ONE, [MORE], False),
    ("FULL", MORE_WITH_DEFAULT, [ONE], True),
    ("FULL", MORE_WITH_DEFAULT, [MORE, ONE], True),
    ("FULL_TRANSITIVE", ONE, [MORE, MORE_WITH_DEFAULT], False),
    ("FULL_TRANSITIVE", MORE_WITH_DEFAULT, [ONE, MORE], True),
]


@proves("schemas")
@pytest.mark.parametrize(("level", "new", "earlier", "allowed"), ALLOWED)
def test_a_level_says_who_reads_whom(level: str, new: Schema, earlier: list[Schema], allowed: bool) -> None:
    assert (not conflicts(level, new, earlier)) is allowed


@proves("schemas")
@pytest.mark.parametrize("level", LEVELS)
def test_the_first_schema_of_a_subject_may_be_any(level: str) -> None:
    assert conflicts(level, ONE, []) == []


@proves("schemas")
def test_a_conflict_says_with_which_schema_it_is() -> None:
    found = conflicts("BACKWARD_TRANSITIVE", MORE, [ONE, MORE, ONE])
    assert [conflict.earlier for conflict in found] == [2, 0]


@proves("schemas")
def test_a_schema_of_another_format_reads_nothing() -> None:
    (reason,) = compatible(parse("JSON", "{}", {}), ONE)
    assert reason.kind == "FORMAT_CHANGED"
