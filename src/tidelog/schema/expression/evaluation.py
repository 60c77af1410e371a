"""An expression over a row: true, false, or None where nobody knows. Compiled once to closures, then called by row.

Rules, as in SQL (and the same as what a SQL store answers to what `to_sql.py` makes of the expression):
- Comparison with null is None, `not` of None is None; `and` is false if one part is, `or` is true if one part is, and
  else None where one part is. A column that a row does not have is null.
- `in` is true if one choice is equal, else None if one is null.
- Text is compared by code point, and `like` minds the case. NaN is equal to itself and above all other numbers.
- Values that cannot be compared (a text with a number) are neither equal nor different: None. Where the columns'
  types are known, `checking.py` refuses such an expression before it is evaluated.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from tidelog.schema.expression.pattern import matcher
from tidelog.schema.expression.tree import And, Compare, Expression, In, IsNull, Like, Literal, Name, Not, Operand, Or

Row = Mapping[str, Any]
Truth = bool | None
Predicate = Callable[[Row], Truth]

ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def evaluate(expression: Expression, row: Row) -> Truth:
    return predicate(expression)(row)


def predicate(expression: Expression) -> Predicate:
    """For many rows."""
    match expression:
        case Compare(op, left, right):
            return _compared(ORDERINGS[op], _value(left), _value(right))
        case In(item, choices):
            return _among(_value(item), [choice.value for choice in choices])
        case Like(item, pattern):
            return _like(_value(item), matcher(pattern))
        case IsNull(item):
            asked = _value(item)
            return lambda row: asked(row) is None
        case Not(part):
            return _negated(predicate(part))
        case And(parts):
            return _joined([predicate(part) for part in parts], decisive=False)
        case Or(parts):
            return _joined([predicate(part) for part in parts], decisive=True)
        case Name() | Literal():
            return _truth(_value(expression))


def _value(operand: Operand) -> Callable[[Row], Any]:
    if isinstance(operand, Literal):
        constant = operand.value
        return lambda row: constant
    name = operand.name
    return lambda row: row.get(name)


def _truth(value: Callable[[Row], Any]) -> Predicate:
    def truth(row: Row) -> Truth:
        found = value(row)
        return found if isinstance(found, bool) else None

    return truth


def _compared(
    ordering: Callable[[Any, Any], bool], left: Callable[[Row], Any], right: Callable[[Row], Any]
) -> Predicate:
    return lambda row: compare(ordering, left(row), right(row))


def _among(item: Callable[[Row], Any], choices: list[Any]) -> Predicate:
    def among(row: Row) -> Truth:
        value = item(row)
        equal = [compare(operator.eq, value, choice) for choice in choices]
        return True if True in equal else None if None in equal else False

    return among


def _like(item: Callable[[Row], Any], matches: Callable[[str], bool]) -> Predicate:
    def like(row: Row) -> Truth:
        value = item(row)
        return matches(value) if isinstance(value, str) else None

    return like


def _negated(part: Predicate) -> Predicate:
    def negated(row: Row) -> Truth:
        found = part(row)
        return None if found is None else not found

    return negated


def _joined(parts: list[Predicate], *, decisive: bool) -> Predicate:
    """`and` is decided by a false part, `or` by a true one."""

    def joined(row: Row) -> Truth:
        unknown = False
        for part in parts:
            found = part(row)
            if found is decisive:
                return decisive
            unknown = unknown or found is None
        return None if unknown else not decisive

    return joined


def compare(ordering: Callable[[Any, Any], bool], left: Any, right: Any) -> Truth:
    if left is None or right is None or _kind(left) is not _kind(right):
        return None
    try:
        if left != left or right != right:
            return ordering(left != left, right != right)
        return ordering(left, right)
    except (TypeError, InvalidOperation):
        return None


def _kind(value: Any) -> type | None:
    """Values of one kind can be compared. A bool is a number in Python, and a datetime is a date."""
    if isinstance(value, bool):
        return bool
    if isinstance(value, int | float | Decimal):
        return float
    for kind in (str, bytes, datetime, date):
        if isinstance(value, kind):
            return kind
    return None
