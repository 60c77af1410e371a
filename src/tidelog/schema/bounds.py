"""Limits on what a schema from outside may cost, and JSON read within them.

Rules:
- A text is measured before it is parsed, and a parsed one before it is walked.
- Walks recurse, so they are run inside `bounded`: one that goes too deep by way of names is refused like one that is
  nested too deep.
- Comparing is paid for by steps, of which there is a fixed number. What is found of a pair is told wherever it stands,
  so of that too there is a fixed number: else it doubles with each level that names it twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tidelog.errors import InvalidSchema

TEXT_MAX = 1 << 20  # characters, those of the references included
DEPTH_MAX = 128  # of nested JSON values, or of nested blocks
NODES_MAX = 100_000  # JSON values, or tokens
STEPS_MAX = 50_000  # that one comparison takes: pairs of types, and what is listed in them
REASONS_MAX = 100  # that are told of one comparison, and kept of each pair of types in it
REFERENCES_MAX = 1_000  # schemas that one schema refers to, directly or not


class Budget:
    """Steps that are left."""

    def __init__(self, steps: int = STEPS_MAX) -> None:
        self._steps = steps

    def spend(self, steps: int = 1) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise InvalidSchema(f"the schema takes more than {STEPS_MAX} steps to compare; split it up")


@contextmanager
def bounded() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise InvalidSchema("the schema goes too deep to be followed; split it up") from None


def check_size(text: str) -> None:
    if len(text) > TEXT_MAX:
        raise InvalidSchema(f"the schema has {len(text)} characters; {TEXT_MAX} is the most")


def load_json(text: str) -> Any:
    from json import loads

    check_size(text)
    try:
        value = loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise InvalidSchema(f"the schema is nested more than {DEPTH_MAX} deep; split it up") from None
    except ValueError as error:
        raise InvalidSchema(f"the schema is not JSON: {error}") from error
    _measure(value)
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:50]} is too large a number")
    return number


def _measure(value: Any) -> None:
    level, nodes, depth = [value], 0, 0
    while level:
        nodes += len(level)
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"the schema is nested more than {DEPTH_MAX} deep; split it up")
        if nodes > NODES_MAX:
            raise InvalidSchema(f"the schema has more than {NODES_MAX} values; split it up")
        depth += 1
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        level = inner
