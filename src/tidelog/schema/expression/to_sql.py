"""An expression as SQL: text with placeholders, and the values that belong in them. No value is ever in the text.

    "price" > ? AND "name" GLOB ?           [100, 'T*']                   SQLite
    "price" > %s AND "name" LIKE %s         [100, 'T%']                   PostgreSQL

Rules:
- The expression has been checked (`checking.py`), so that values have their columns' types.
- A store says how it has columns and values, by a `Dialect`: `column` is a name's SQL, quoted (where text would not be
  compared by code point, with the collation that does); `bound` is what is bound for a value.
- What is true gives rows, whatever else is false or unknown, as in `evaluation.py`. There `like` minds the case;
  SQLite's own does not, so it becomes GLOB, which stops at a NUL within a text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.schema.column_types import quoted
from tidelog.schema.expression.pattern import ANY, ESCAPE, ONE, Piece, split
from tidelog.schema.expression.tree import (
    And,
    Compare,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Not,
    Operand,
    Or,
    Scalar,
)


def _quoted_for_format(name: str) -> str:
    """A % of a name would begin a placeholder."""
    return quoted(name).replace("%", "%%")


class Pattern(NamedTuple):
    """How a database says `like`."""

    operator: str
    any: str
    one: str
    escaped: Callable[[str], str]


def _glob(character: str) -> str:
    return f"[{character}]" if character in "*?[" else character


def _like(character: str) -> str:
    return ESCAPE + character if character in (ANY, ONE, ESCAPE) else character


GLOB = Pattern("GLOB", "*", "?", _glob)
LIKE = Pattern("LIKE", ANY, ONE, _like)


class Dialect(NamedTuple):
    placeholder: str
    pattern: Pattern
    column: Callable[[str], str] = quoted
    bound: Callable[[Scalar], Any] = lambda value: value


SQLITE = Dialect("?", GLOB)
POSTGRES = Dialect("%s", LIKE, _quoted_for_format)


def to_sql(expression: Expression, dialect: Dialect) -> tuple[str, list[Any]]:
    """A condition, in parentheses where it has several parts, and its parameters in their order."""
    parameters: list[Any] = []
    return _Writer(dialect, parameters).condition(expression), parameters


class _Writer:
    def __init__(self, dialect: Dialect, parameters: list[Any]) -> None:
        self._dialect = dialect
        self._parameters = parameters

    def condition(self, expression: Expression) -> str:
        match expression:
            case Compare(op, left, right):
                return f"{self._operand(left)} {'<>' if op == '!=' else op} {self._operand(right)}"
            case In(item, choices):
                return f"{self._operand(item)} IN ({', '.join(self._operand(choice) for choice in choices)})"
            case Like(item, pattern):
                return f"{self._operand(item)} {self._dialect.pattern.operator} {self._bound(self._pattern(pattern))}"
            case IsNull(item):
                return f"{self._operand(item)} IS NULL"
            case Not(part):
                return f"NOT ({self.condition(part)})"
            case And(parts):
                return f"({' AND '.join(self.condition(part) for part in parts)})"
            case Or(parts):
                return f"({' OR '.join(self.condition(part) for part in parts)})"
            case Name(name):
                return self._dialect.column(name)
            case Literal(value):
                # As comparisons: not every database has words for all three.
                return "1 = 1" if value is True else "1 = 0" if value is False else "NULL = 1"

    def _operand(self, operand: Operand) -> str:
        if isinstance(operand, Name):
            return self._dialect.column(operand.name)
        return self._bound(self._dialect.bound(operand.value))

    def _bound(self, value: Any) -> str:
        self._parameters.append(value)
        return self._dialect.placeholder

    def _pattern(self, pattern: str) -> str:
        first, middle, last = split(pattern)
        written = self._piece(first)
        if last is None:
            return written
        pieces = [written, *(self._piece(piece) for piece in middle), self._piece(last)]
        return self._dialect.pattern.any.join(pieces)

    def _piece(self, piece: Piece) -> str:
        said = self._dialect.pattern
        return "".join(said.one if one is None else said.escaped(one) for one in piece)
