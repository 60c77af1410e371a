"""What an expression means is one thing: over a row in Python, and to a database that runs its SQL."""

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from proving import proves
from schema.expression.expressions import COLUMNS, expressions, rows
from tidelog.errors import UsageError
from tidelog.schema.column_types import quoted
from tidelog.schema.expression.checking import check
from tidelog.schema.expression.evaluation import evaluate
from tidelog.schema.expression.parser import parse
from tidelog.schema.expression.to_sql import POSTGRES, SQLITE, to_sql
from tidelog.schema.expression.tree import Compare, Expression, Literal, Name

TYPED = {
    "id": "long",
    "price": "double",
    "cost": "decimal",
    "name": "string",
    "other": "string",
    "open": "boolean",
    "at": "timestamp",
    "day": "date",
    "raw": "binary",
    "extra": "json",
}


def true(text: str, **row: Any) -> bool | None:
    return evaluate(parse(text), row)


def bound(value: Any) -> Any:
    """As a store of SQLite's might have it; text of one width is ordered as what it says."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f")
    return value.isoformat() if isinstance(value, date) else "json" if isinstance(value, list) else value


@proves("expressions", "D7")
@given(rows(), expressions())
def test_a_database_answers_as_the_evaluation_does(row: dict[str, Any], expression: Expression) -> None:
    checked = check(expression, COLUMNS.items())
    with sqlite3.connect(":memory:") as database:
        database.execute(f"CREATE TABLE t ({', '.join(quoted(name) for name in row)})")
        database.execute(f"INSERT INTO t VALUES ({', '.join('?' for _ in row)})", [bound(one) for one in row.values()])
        text, parameters = to_sql(checked, SQLITE._replace(bound=bound))
        (answer,) = database.execute(f"SELECT {text} FROM t", parameters).fetchone()
    expected = evaluate(expression, row)
    assert check(checked, COLUMNS.items()) == checked
    assert (None if answer is None else bool(answer)) == expected == evaluate(checked, row), text


@proves("expressions")
@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("a = 1", None),
        ("a != 1", None),
        ("not a = 1", None),
        ("a = 1 and b = 2", False),
        ("a = 1 and b = 1", None),
        ("a = 1 or b = 1", True),
        ("a = 1 or b = 2", None),
        ("a = null", None),
        ("null = null", None),
        ("a in (1, 2)", None),
        ("b in (1, null)", True),
        ("b in (2, null)", None),
        ("b not in (2, null)", None),
        ("b not in (2, 3)", True),
        ("a is null", True),
        ("a is not null", False),
        ("missing is null", True),
        ("a like '%'", None),
        ("b between 0 and 1", True),
        ("b between a and 1", None),
        ("b between 2 and a", False),
        ("b not between 2 and 3", True),
        ("true", True),
        ("not false and not null is null", False),
        ("b = 'one'", None),
        ("b == 1.0 and b <> 1.5", True),
        ("B = 1", None),
    ],
)
def test_null_is_neither_true_nor_false(text: str, truth: bool | None) -> None:
    assert true(text, a=None, b=1) is truth


@proves("expressions")
def test_nan_is_itself_and_above_all() -> None:
    nan = {"a": float("nan"), "b": float("inf"), "c": float("nan")}
    for text in ("a = c", "a > b", "a >= c", "b < a", "not a < c", "a != b"):
        assert true(text, **nan) is True, text
    assert true("a > 1", a=Decimal("NaN")) is True and true("a > 1", a=Decimal("sNaN")) is None


@proves("expressions")
@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", [""], ["a"]),
        ("%", ["", "a", "\n"], []),
        ("a%", ["a", "ab"], ["", "ba", "A"]),
        ("%a", ["a", "ba"], ["ab"]),
        ("a%a", ["aa", "aba"], ["a"]),
        ("%a%b%", ["ab", "xaxbx"], ["ba"]),
        ("_", ["a", "🌊"], ["", "ab"]),
        ("a_c%_", ["abcd", "abcxy"], ["abc", "ac"]),
        ("%a_c%", ["xabcx", "aaac"], ["ac", "xacx"]),
        ("%_%", ["a", "ab"], [""]),
        ("100\\%", ["100%"], ["100a"]),
        ("\\_\\\\", ["_\\"], ["a\\"]),
        ("\\a", ["\\a"], ["a"]),
        ("[a]*?", ["[a]*?"], ["a*?", "abc"]),
    ],
)
def test_like_takes_the_whole_text(pattern: str, matching: list[str], others: list[str]) -> None:
    for text in (*matching, *others):
        assert true(f"a like '{pattern}'", a=text) is (text in matching), text
        compared = to_sql(parse(f"a like '{pattern}'"), SQLITE)
        with sqlite3.connect(":memory:") as database:
            (answer,) = database.execute(f"SELECT {compared[0]} FROM (SELECT ? AS a)", [*compared[1], text]).fetchone()
        assert bool(answer) is (text in matching), text


@proves("expressions", "hostile")
@pytest.mark.parametrize("pattern", ["%a" * 2000 + "%b", "%a_" * 1000 + "%b", "%" + "a_" * 2000 + "b%"])
def test_no_pattern_takes_long(pattern: str) -> None:
    """A matcher that goes back would not end within a life."""
    assert true(f"a like '{pattern}'", a="a" * 20_000) is False


@proves("expressions")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("id = 1e3", 1000),
        ("id > 1.5", 1.5),
        ("price = 1", 1.0),
        ("price = 'NaN'", float("nan")),
        ("cost = 0.1", Decimal("0.1")),
        ("cost = 12345678901234567.89", Decimal("12345678901234567.89")),
        ("cost = '12.50'", Decimal("12.50")),
        ("at = '2026-01-31T23:59:59+01:00'", datetime(2026, 1, 31, 22, 59, 59, tzinfo=UTC)),
        ("at = '2026-01-31'", datetime(2026, 1, 31, tzinfo=UTC)),
        ("day = '2026-01-31'", date(2026, 1, 31)),
        ("raw = '/wA='", b"\xff\0"),
        ("open = true", True),
        ("name = '1'", "1"),
    ],
)
def test_a_literal_becomes_what_its_column_holds(text: str, value: object) -> None:
    checked = check(parse(text), TYPED.items())
    assert isinstance(checked, Compare) and isinstance(checked.right, Literal)
    assert repr(checked.right.value) == repr(value)
    turned = check(Compare("=", Literal(parse(text).right.value), Name(checked.left.name)), TYPED.items())  # type: ignore[union-attr]
    assert isinstance(turned, Compare) and repr(turned.left) == repr(checked.right)


@proves("expressions")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nmae = 'a'", "no column 'nmae'; did you mean 'name'?"),
        ("Name is null", "did you mean 'name'?"),
        ("name = Oslo", "no column 'Oslo'; if it is a text, write it in single quotes: 'Oslo'"),
        ('"Oslo" = name', "if it is a text, write it in single quotes: 'Oslo'"),
        ("name between A and B", "no column 'A'; if it is a text, write it in single quotes: 'A'"),
        ("name = nmae", "write it in single quotes: 'nmae', or did you mean 'name'?"),
        ("id = Oslo", "no column 'Oslo'; did you mean "),
        ("id = 'one'", "'one' is not a long, as column 'id' is; write a whole number of 64 bits"),
        ("id = 9223372036854775808", "is not a long"),
        ("id = 9007199254740993.5", "is not a long"),
        ("id = true", "true is not a long"),
        ("id in (1, 'two')", "'two' is not a long"),
        ("price = '1'", "'1' is not a double"),
        ("cost = '1e999999'", "is not a decimal"),
        ("cost = 'NaN'", "is not a decimal"),
        ("open = 1", "1 is not a boolean, as column 'open' is; write true or false"),
        ("name = 1", "write a text in single quotes"),
        ("at > 'yesterday'", "'yesterday' is not a timestamp"),
        ("day = '2026-02-30'", "is not a date"),
        ("raw = 'ä'", "is not a binary"),
        ("extra = '1'", "column 'extra' is json; it can be asked whether it is null"),
        ("extra in (1)", "is json"),
        ("name = id", "column 'name' is a string and column 'id' a long; compare like types"),
        ("cost = price", "compare like types"),
        ("id like '1%'", "column 'id' is a long; like is for a string"),
        ("1 like '1%'", "1 is not a string; like needs one"),
        ("name", "column 'name' is a string; a condition is for a boolean"),
        ("id = 1 and 1", "1 is not a boolean; a condition needs one"),
    ],
)
def test_what_does_not_fit_the_columns_is_told(text: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        check(parse(text), TYPED.items())
    assert told in str(refused.value)


@proves("expressions")
def test_what_needs_no_row_is_asked_of_no_database() -> None:
    for text, truth in {
        "1 = 1": True,
        "'a' > 'b'": False,
        "id = null": None,
        "null like 'a'": None,
        "2 in (1)": False,
    }.items():
        assert check(parse(text), TYPED.items()) == Literal(truth), text


@proves("expressions", "hostile")
def test_no_value_is_ever_in_the_text() -> None:
    said = (
        "name = '''; drop table t; --' or name like '%''%s\"' or name in ('?', '%(a)s') or price > 123456.5"
        " or at > '2031-01-01'"
    )
    for dialect, placeholder in ((SQLITE, "?"), (POSTGRES, "%s")):
        text, parameters = to_sql(check(parse(said), TYPED.items()), dialect)
        assert text.count(placeholder) == len(parameters) == 6
        assert not any(part in text for part in ("drop", "'", "(a)", "123456", "2031")), text
    text, _ = to_sql(check(parse('"100%s" = \'a\' or "it""s" = \'b\''), COLUMNS.items()), POSTGRES)
    assert text == '("100%%s" = %s OR "it""s" = %s)'
