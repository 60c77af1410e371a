"""What a fold was declared with, as plain values that stand beside its state: who goes on with it has to say the same.

State means something only to the parameters that it was made with. A window of one minute is none of five; a row that
an inner join never put out is none that a left join may take back.

    {"size": 60000000, "by": ["user"], "aggregate n": ["Sum", {"column": "x"}], ...}     of a fold of ours
    {"low": "Rule", "low.limit": 1, "more": [["Rule", {"limit": 2}]], ...}               of any other

Rules:
- Names are those of the fold's own fields. Fields within a field (`Spec`, `Grid`) have their bare names in our own
  folds, where none is there twice. In others the field's name comes first, and has the class as its value: there may
  be another one later, or None. What has fields and is in a tuple is kept too, in ours only of aggregates.
- Names of fields and of classes are part of the format of state: who renames one of ours gives the fold a new version.
- The same in every process and on every Python: numbers, text, truth, lists of these, and as text durations, days,
  times and decimals; whatever else a field holds is left out. Schemas are: where they matter, the columns of the state
  are compared.
- A name that only one of the two has is no difference: state from before there was such a parameter takes the present.
- NaN is the same as NaN.
- What may change touches no state, or is asked anew of all state in every step: of our own folds the names in `FREE`,
  of others only fields that no comparison looks at (`field(compare=False)`).
- Our own folds have the columns of their key in a field; to those of others they are added here.
- Where the state is Spark's own, they are kept as text (`said_of`, `spark/native_operators.py`).
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

NAMED = frozenset(("name", "version"))  # they stand beside the parameters
FREE = NAMED | frozenset(
    (
        "diverts",  # of windows, and of `enrich`: where rows go that are in no state
        "divert",
        "interval",  # of early results: what is held back is due by the old one, and from then on by the new
        "deletes_kept",  # asked of every deletion that is kept, in every step
        "slack",
        "load_until",  # asked of every row that waits
        "k",  # of sketches: what is told of them, and how
        "ranks",
        "single",
        "sketch",
    )
)
AGGREGATES, AGGREGATE = "aggregates", "aggregate "
KEY_COLUMNS = "key columns"  # no name that a field could have
MICROSECONDS = frozenset(("size", "every", "offset", "gap", "allowed", "remembers", "span"))
SAID = {
    "allowed": "allowed_lateness",
    "remembers": "within (or forget_after)",
    "span": "period",
}  # what users know them by

Parameters = Mapping[str, Any]


def parameters_of(fold: Any, keys: Sequence[str] = ()) -> dict[str, Any]:
    if is_ours(fold):
        return dict(_flat(fold))
    return dict(_qualified(fold, NAMED)) | ({KEY_COLUMNS: list(keys)} if keys else {})


def is_ours(declared: Any) -> bool:
    return type(declared).__module__.startswith("tidelog.")


def _flat(declared: Any) -> Iterator[tuple[str, Any]]:
    free = FREE if is_ours(declared) else NAMED
    for name, value in _fields(declared):
        if name == AGGREGATES:
            yield from ((f"{AGGREGATE}{one}", [type(by).__name__, dict(_flat(by))]) for one, by in value)
        elif _has_fields(value):
            yield from _flat(value)
        elif name not in free and (found := _plain(value)) is not Ellipsis:
            yield name, found


def _qualified(declared: Any, free: Collection[str], within: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in ((f"{within}{name}", value) for name, value in _fields(declared) if name not in free):
        if _has_fields(value):
            yield name, type(value).__name__
            yield from _qualified(value, _free_within(value), f"{name}.")
        elif (found := _plain(value, _with_class)) is not Ellipsis:
            yield name, found


def _free_within(value: Any) -> Collection[str]:
    """A name or a version that stands nowhere else is a parameter as any other."""
    return FREE if is_ours(value) else ()


def _with_class(value: Any) -> Any:
    return [type(value).__name__, dict(_qualified(value, _free_within(value)))] if _has_fields(value) else ...


def _has_fields(value: Any) -> bool:
    return not isinstance(value, type) and (is_dataclass(value) or hasattr(value, "_fields"))


def _fields(declared: Any) -> list[tuple[str, Any]]:
    if is_dataclass(declared):
        return [(field.name, getattr(declared, field.name)) for field in fields(declared) if field.compare]
    return list(zip(declared._fields, declared, strict=True)) if hasattr(declared, "_fields") else []


def _plain(value: Any, other: Callable[[Any], Any] = lambda _: ...) -> Any:
    """As JSON gives it back; `other` says what becomes of what that does not know, and Ellipsis leaves it out."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, timedelta | date | time | Decimal):
        return str(value)
    if isinstance(value, tuple | list):
        found = [_plain(one, other) for one in value]
        return ... if any(one is ... for one in found) else found
    return other(value)


def said_of(fold: Any) -> dict[str, str]:
    """As text, of a fold in whose place Spark's own operator stands: its state has aggregates by place, not by name."""
    places = count(1)
    return {
        f"{AGGREGATE}{next(places)}" if name.startswith(AGGREGATE) else SAID.get(name, name): _said(name, value)
        for name, value in parameters_of(fold).items()
        if value is not None and value is not False  # what Spark's own is never asked for
    }


def difference(made_with: Parameters, now: Parameters, *, ours: bool = True) -> str | None:
    """What is not as it was, in the words of an error; None where all is."""
    changed = [name for name in sorted({*made_with} & {*now}) if not _is_same(made_with[name], now[name])]
    if not changed:
        return None
    was, is_ = (
        ", ".join(_told(name, those[name]) if ours else f"{name} {_text(those[name])}" for name in changed)
        for those in (made_with, now)
    )
    return f"was made with {was}, and the query now has {is_}"


def _is_same(was: Any, is_: Any) -> bool:
    return bool(was == is_) or repr(was) == repr(is_)


def _told(name: str, value: Any) -> str:
    return f"{SAID.get(name, name)} {_said(name, value)}"


def _said(name: str, value: Any) -> str:
    if name in MICROSECONDS and isinstance(value, int):
        return str(timedelta(microseconds=value))
    if name.startswith(AGGREGATE) and isinstance(value, list):
        kind, given = value
        return f"{kind.lower()}({', '.join(f'{field}={_text(one)}' for field, one in given.items())})"
    return _text(value)


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)
