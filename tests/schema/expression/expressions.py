"""Random rows and expressions over them, for properties. Names and values have what SQL would stumble over."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from hypothesis import strategies as st

from tidelog.schema.expression.tree import And, Compare, Expression, In, IsNull, Like, Literal, Name, Not, Operand, Or

COLUMNS = {
    "id": "long",
    "unit price": "double",
    'it"s': "string",
    "100%s": "string",
    "open": "boolean",
    "at": "timestamp",
    "day": "date",
    "raw": "binary",
    "note?": "json",
}
TEXTS = st.one_of(
    st.sampled_from(["", "a", "A", "ab", "a%b", "a_b", "*", "?", "[a]", "'; drop table t; --", "ä", "🌊", "\\", "%s"]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=6),
)
PATTERNS = st.text(st.sampled_from("aAb%_\\*?[]^-ä🌊'"), max_size=6)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "long": st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)),
    "double": st.one_of(st.sampled_from([-1.5, 0.0, 1.0, 2.5]), st.floats(allow_nan=False)),
    "string": TEXTS,
    "boolean": st.booleans(),
    "timestamp": st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=st.just(UTC)),
    "date": st.dates(date(1970, 1, 1), date(2100, 1, 1)),
    "binary": st.binary(max_size=3),
    "json": st.just([1]),
}
OPS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


def rows() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: st.none() | VALUES[kind] for name, kind in COLUMNS.items()})


def operands(kind: str) -> st.SearchStrategy[Operand]:
    names = [Name(name) for name, its in COLUMNS.items() if its == kind]
    return st.sampled_from(names) | st.none().map(Literal) | VALUES[kind].map(Literal)


def tests() -> st.SearchStrategy[Expression]:
    kinds = st.sampled_from([kind for kind in VALUES if kind != "json"])
    compared = kinds.flatmap(lambda kind: st.builds(Compare, OPS, operands(kind), operands(kind)))
    numbers = operands("long") | operands("double")
    mixed = st.builds(Compare, OPS, numbers, numbers).filter(_has_like_types)
    among = kinds.flatmap(
        lambda kind: st.builds(
            In,
            operands(kind),
            st.lists(st.builds(Literal, st.none() | VALUES[kind]), min_size=1, max_size=4).map(tuple),
        )
    )
    like = st.builds(Like, operands("string"), PATTERNS)
    null = st.builds(IsNull, st.sampled_from(list(COLUMNS)).map(Name))
    return st.one_of(compared, mixed, among, like, null, operands("boolean"))


def _has_like_types(compared: Compare) -> bool:
    """A double that has no place among longs is refused where it is compared with one."""
    name = next((one for one in (compared.left, compared.right) if isinstance(one, Name)), None)
    fractions = [
        one for one in (compared.left, compared.right) if isinstance(one, Literal) and type(one.value) is float
    ]
    return name is None or COLUMNS[name.name] == "double" or all(abs(one.value) < 2**53 for one in fractions)  # type: ignore[arg-type]


def expressions() -> st.SearchStrategy[Expression]:
    return st.recursive(
        tests(),
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
            st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        ),
        max_leaves=6,
    )
