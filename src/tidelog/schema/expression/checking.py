"""An expression against the columns that there are: names looked up, literals made values of their columns' types.

Rules:
- An unknown column is refused, and the nearest name is told.
- A literal that is compared with a column becomes what that column holds: a text is a timestamp, a date, a decimal or
  base64 where the column is such. One that cannot is refused. One that is that already stays.
- Columns are compared with columns of their own type, and long with double. A json column can be asked whether it is
  null, and nothing else. A column that stands alone is a boolean one. `like` is for strings.
- What has no column in it, or is compared with null, is worked out here: SQL is not asked what 1 = 1 is.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from typing import Any

from tidelog.errors import UsageError
from tidelog.schema.column_types import (
    BINARY,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    JSON,
    LONG,
    LONG_MAX,
    LONG_MIN,
    STRING,
    TIMESTAMP,
)
from tidelog.schema.expression.evaluation import evaluate
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

SAID_AS_TEXT = (STRING, DATE, TIMESTAMP, DECIMAL, BINARY)
NOT_FINITE = ("NaN", "Infinity", "-Infinity")
SHOWN_CHARACTERS = 80


def check(expression: Expression, columns: Iterable[tuple[str, str]]) -> Expression:
    """The same with its literals converted; `columns` are names and types."""
    return _Checker(dict(columns)).checked(expression)


class _Checker:
    def __init__(self, types: dict[str, str]) -> None:
        self._types = types

    def checked(self, expression: Expression) -> Expression:
        match expression:
            case Not(part):
                return Not(self.checked(part))
            case And(parts):
                return And(tuple(self.checked(part) for part in parts))
            case Or(parts):
                return Or(tuple(self.checked(part) for part in parts))
            case Compare(op, left, right):
                return self._compared(op, left, right)
            case In(item, choices):
                return self._among(item, choices)
            case Like(item, _):
                self._demand(item, STRING, "like")
                return _folded(expression, item)
            case IsNull(item):
                self._type(item)
                return _folded(expression, item)
            case Name() | Literal():
                self._demand(expression, BOOLEAN, "a condition")
                return expression

    def _type(self, operand: Operand, beside: Operand | None = None) -> str | None:
        """None of a literal. `beside` is what it is compared with."""
        if isinstance(operand, Literal):
            return None
        if operand.name not in self._types:
            raise UsageError(f"no column {operand.name[:SHOWN_CHARACTERS]!r}; {self._meant(operand.name, beside)}")
        return self._types[operand.name]

    def _meant(self, name: str, beside: Operand | None) -> str:
        """Beside a column that texts are compared with, a name that is not one is mostly a text without its quotes."""
        if isinstance(beside, Name) and self._types.get(beside.name) in SAID_AS_TEXT:
            quoted = "'" + name.replace("'", "''")[:SHOWN_CHARACTERS] + "'"
            near = get_close_matches(name, self._types, 1)
            told = f", or did you mean {near[0]!r}?" if near else ""
            return f"if it is a text, write it in single quotes: {quoted}{told}"
        near = get_close_matches(name, self._types, 1, 0.0)
        return f"did you mean {near[0]!r}?" if near else "it has no columns"

    def _demand(self, operand: Operand, wanted: str, where: str) -> None:
        kind = self._type(operand)
        if kind is None:
            assert isinstance(operand, Literal)
            fits = operand.value is None or isinstance(operand.value, str if wanted == STRING else bool)
            if not fits:
                raise UsageError(f"{_shown(operand.value)} is not a {wanted}; {where} needs one")
        elif kind != wanted:
            assert isinstance(operand, Name)
            raise UsageError(f"column {operand.name!r} is a {kind}; {where} is for a {wanted}")

    def _compared(self, op: str, left: Operand, right: Operand) -> Expression:
        kinds = self._type(left, right), self._type(right, left)
        for operand, kind in zip((left, right), kinds, strict=True):
            if kind == JSON:
                raise UsageError(f"{_called(operand)} is json; it can be asked whether it is null, and nothing else")
        if kinds[0] is not None and kinds[1] is not None:
            if kinds[0] != kinds[1] and set(kinds) != {LONG, DOUBLE}:
                raise UsageError(
                    f"{_called(left)} is a {kinds[0]} and {_called(right)} a {kinds[1]}; compare like types"
                )
            return Compare(op, left, right)
        kind = kinds[0] or kinds[1]
        made = Compare(op, _converted(left, kind, right), _converted(right, kind, left))
        return _folded(made, made.left, made.right)

    def _among(self, item: Operand, choices: tuple[Literal, ...]) -> Expression:
        kind = self._type(item)
        if kind == JSON:
            raise UsageError(f"{_called(item)} is json; it can be asked whether it is null, and nothing else")
        converted = [_converted(choice, kind, item) for choice in choices]
        made = In(item, tuple(choice for choice in converted if isinstance(choice, Literal)))
        return _folded(made, item)


def _folded(expression: Compare | In | Like | IsNull, *operands: Operand) -> Expression:
    """Its truth, where no row is needed to know it."""
    known = all(isinstance(operand, Literal) for operand in operands)
    if not known and isinstance(expression, Compare):
        known = any(isinstance(operand, Literal) and operand.value is None for operand in operands)
    return Literal(evaluate(expression, {})) if known else expression


def _called(operand: Operand) -> str:
    return f"column {operand.name!r}" if isinstance(operand, Name) else _shown(operand.value)


def _shown(value: Scalar) -> str:
    return repr(value)[:SHOWN_CHARACTERS] if isinstance(value, str) else str(value)[:SHOWN_CHARACTERS].lower()


# Values ---------------------------------------------------------------------------------------------------------------


def value_of(kind: str, said: Any) -> Scalar:
    """What a column of this type holds, of a value as JSON has it; None where it is not of the type."""
    try:
        return None if said is None else _CONVERTED[kind](said)
    except (KeyError, ValueError, TypeError, InvalidOperation, OverflowError, binascii.Error):
        return None


def _converted(operand: Operand, kind: str | None, beside: Operand) -> Operand:
    """As a value of type `kind`, which is that of the column `beside` it; None if that is a literal too."""
    if isinstance(operand, Name) or operand.value is None or kind is None:
        return operand
    try:
        return Literal(_CONVERTED[kind](operand.value))
    except (ValueError, TypeError, InvalidOperation, OverflowError, binascii.Error) as error:
        raise UsageError(f"{_shown(operand.value)} is not a {kind}, as {_called(beside)} is{_HINTS[kind]}") from error


def _exactly(*kinds: type) -> Callable[[Any], Any]:
    def check_kind(said: Any) -> Any:
        if type(said) not in kinds:
            raise TypeError(said)
        return said

    return check_kind


_number = _exactly(int, float, Decimal)


def _long(said: Any) -> int | float:
    """A fraction is left as it is, for `>` and `<`: below 2^53 a double has it exactly."""
    value = int(said) if _number(said) == int(said) else _exactly(float)(said)
    if not LONG_MIN <= value <= LONG_MAX:
        raise ValueError(said)
    return int(value) if value == int(value) else float(value)


def _double(said: Any) -> float:
    return float(said) if type(said) is str and said in NOT_FINITE else float(_number(said))


def _decimal(said: Any) -> Decimal:
    value = Decimal(repr(said)) if isinstance(said, float) else Decimal(_exactly(str, int, Decimal)(said))
    if not value.is_finite() or abs(value.adjusted()) > DECIMAL_DIGITS_MAX:
        raise ValueError(said)
    return value


def _binary(said: Any) -> bytes:
    return said if type(said) is bytes else b64decode(_exactly(str)(said), validate=True)


def _date(said: Any) -> date:
    return said if type(said) is date else date.fromisoformat(_exactly(str)(said))


def _timestamp(said: Any) -> datetime:
    at = said if type(said) is datetime else datetime.fromisoformat(_exactly(str)(said))
    return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)


DECIMAL_DIGITS_MAX = 400  # before or after the point
_CONVERTED: dict[str, Callable[[Any], Scalar]] = {
    BOOLEAN: _exactly(bool),
    LONG: _long,
    DOUBLE: _double,
    DECIMAL: _decimal,
    STRING: _exactly(str),
    BINARY: _binary,
    DATE: _date,
    TIMESTAMP: _timestamp,
}
_HINTS = {
    BOOLEAN: "; write true or false",
    LONG: "; write a whole number of 64 bits",
    DOUBLE: "; write a number",
    DECIMAL: "; write a number, or one in single quotes",
    STRING: "; write a text in single quotes",
    BINARY: "; write base64 in single quotes",
    DATE: "; write it as '2026-01-31'",
    TIMESTAMP: "; write it as '2026-01-31T23:59:59Z'",
}
