"""An expression as a tree. Pure data; what it means is in `evaluation.py`, how it is written in `parser.py`.

Comparison with null is neither true nor false, and neither is what is made of it, as in SQL; a row counts where the
whole is true.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

# As written: bool, int, float, str, None, and Decimal where a double has not that number. `checking.py` makes the rest.
Scalar = bool | int | float | Decimal | str | bytes | date | datetime | None


@dataclass(frozen=True, slots=True)
class Name:
    """A column."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    value: Scalar


Operand = Name | Literal


@dataclass(frozen=True, slots=True)
class Compare:
    op: str  # = != < <= > >=
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class In:
    item: Operand
    choices: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """`%` stands for any characters, `_` for one; a backslash before either takes that meaning away."""

    item: Operand
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    item: Operand


@dataclass(frozen=True, slots=True)
class Not:
    part: Expression


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Expression, ...]


Expression = Compare | In | Like | IsNull | Not | And | Or | Name | Literal
