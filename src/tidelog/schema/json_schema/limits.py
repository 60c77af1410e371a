"""Numbers that bound what a schema lets through: when a change of one lets less through."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tidelog.schema.schema import Reason

# Decimals whose remainder would be a number of that many digits are not divided.
DIGITS_MAX = 30


def compare_limits(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    upper: tuple[str, ...],
    lower: tuple[str, ...],
    path: str,
    divisor: str | None = None,
) -> list[Reason]:
    reasons = []
    for keyword in (*upper, *lower):
        before, after = _number(old, keyword), _number(new, keyword)
        if after is None or before == after:
            continue
        if before is None:
            reasons.append(_reason(keyword, "ADDED", path, f"{keyword} {after} has come"))
        elif keyword in upper and after < before:
            reasons.append(_reason(keyword, "DECREASED", path, f"{keyword} was {before} and is {after}"))
        elif keyword in lower and after > before:
            reasons.append(_reason(keyword, "INCREASED", path, f"{keyword} was {before} and is {after}"))
    if divisor is not None:
        reasons += _divisor(_number(old, divisor), _number(new, divisor), divisor, path)
    return reasons


def _divisor(before: Any, after: Any, keyword: str, path: str) -> list[Reason]:
    if after is None or before == after:
        return []
    if before is None:
        return [_reason(keyword, "ADDED", path, f"{keyword} {after} has come")]
    one, other = Decimal(str(before)), Decimal(str(after))
    if _divides(other, one):
        return []
    change = "EXPANDED" if _divides(one, other) else "CHANGED"
    return [_reason(keyword, change, path, f"{keyword} was {before} and is {after}")]


def _divides(one: Decimal, other: Decimal) -> bool:
    if not one.is_finite() or not other.is_finite() or not one or abs(other.adjusted() - one.adjusted()) > DIGITS_MAX:
        return False
    return not other % one


def _number(value: Mapping[str, Any], keyword: str) -> Any:
    """Draft 4 has booleans for exclusive bounds; those are not compared."""
    number = value.get(keyword)
    return number if isinstance(number, int | float) and not isinstance(number, bool) else None


def _reason(keyword: str, change: str, path: str, sentence: str) -> Reason:
    kind = "".join(f"_{letter}" if letter.isupper() else letter for letter in keyword).upper()
    return Reason(f"{kind}_{change}", f"{path}/{keyword}", sentence)
