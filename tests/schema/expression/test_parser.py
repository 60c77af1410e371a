"""The language's grammar, its errors, and that no text of anybody's does harm."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proving import proves
from tidelog.errors import UsageError
from tidelog.schema.expression.checking import check
from tidelog.schema.expression.evaluation import evaluate
from tidelog.schema.expression.parser import DEPTH_MAX, LENGTH_MAX, NODES_MAX, parse
from tidelog.schema.expression.to_sql import POSTGRES, SQLITE, to_sql
from tidelog.schema.expression.tree import And, Compare, Expression, In, IsNull, Like, Literal, Name, Not, Or

A, B, ONE = Name("a"), Name("b"), Literal(1)
EQUAL = Compare("=", A, ONE)


@proves("expressions", "D7")
@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1", EQUAL),
        ("a==1", EQUAL),
        ("(((a=1)))", EQUAL),
        ("1 <> a", Compare("!=", ONE, A)),
        ("a >= -1.5", Compare(">=", A, Literal(-1.5))),
        ("a < +.5e1", Compare("<", A, Literal(5.0))),
        ("a = 0.12345678901234567891", Compare("=", A, Literal(Decimal("0.12345678901234567891")))),
        ("a = 'it''s'", Compare("=", A, Literal("it's"))),
        ('"a b" = `c``d`', Compare("=", Name("a b"), Name("c`d"))),
        ('"not" = "x""y"', Compare("=", Name("not"), Name('x"y'))),
        ("größe = 1", Compare("=", Name("größe"), ONE)),
        ("a AND NOT b OR a = 1", Or((And((A, Not(B))), EQUAL))),
        ("a and (b or a = 1) and b", And((A, Or((B, EQUAL)), B))),
        ("not not a", A),
        ("not a = 1", Not(EQUAL)),
        ("a in (1, 'x', null, TRUE)", In(A, (ONE, Literal("x"), Literal(None), Literal(True)))),
        ("a not in (1)", Not(In(A, (ONE,)))),
        ("a like 'x%'", Like(A, "x%")),
        ("a not like ''", Not(Like(A, ""))),
        ("a is null", IsNull(A)),
        ("a is not null", Not(IsNull(A))),
        ("a between 1 and b and b", And((And((Compare(">=", A, ONE), Compare("<=", A, B))), B))),
        ("a not between 1 and 1", Not(And((Compare(">=", A, ONE), Compare("<=", A, ONE))))),
    ],
)
def test_a_text_is_this_tree(text: str, tree: Expression) -> None:
    assert parse(text) == tree


@proves("expressions")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "at character 1: found the end; expected a column, a value, not or '('"),
        ("a =", "at character 4: found the end; expected a column or a value"),
        ("a = 1 b", "at character 7: found 'b'; expected and, or, or the end"),
        ("a = (1)", "at character 5: found '('; expected a column or a value"),
        ("a in 1", "at character 6: found '1'; expected '('"),
        ("a in ()", "at character 7: found ')'; expected a value"),
        ("a in (b)", "at character 7: found 'b'; expected a value; a text or a time is written in single quotes"),
        ("a = New York", "at character 9: found 'York'; expected and, or, or the end; a text or a time is written in"),
        ("a > 2026-01-31", "at character 9: found '-'; expected and, or, or the end; a text or a time is written in"),
        ("a in (1", "expected ',' or ')'"),
        ("a not 1", "at character 7: found '1'; expected in, like or between"),
        ("a like 1", "expected a pattern in single quotes"),
        ("a is 1", "expected null"),
        ("a between 1", "expected and"),
        ("(a", "expected ')'"),
        ("a = 'x", "at character 5: the text is not closed here"),
        ('"x', "the name is not closed"),
        ("a = 1; drop", "at character 6: ';' means nothing here"),
        ("a = - b", "at character 7: found 'b'; expected a number"),
        ("a = 1e999", "at character 5: 1e999 is a number beyond all columns"),
        ("a = 1e-999", "beyond all columns"),
        ("a = " + "0" * 5000 + "1", "beyond all columns"),
        ("a = '\0'", "NUL"),
        ("a = '\ud800'", "half a character"),
        ("f(a)", "at character 2: found '('"),
        ("a.b = 1", "'.' means nothing here"),
        ("(" * 40 + "a" + ")" * 40, f"more than {DEPTH_MAX} within each other"),
        (" or ".join(["a"] * (NODES_MAX + 1)), f"more than {NODES_MAX} parts"),
        ("not " * (NODES_MAX + 1) + "a", f"more than {NODES_MAX} parts"),
        ("a = 1".ljust(LENGTH_MAX + 1), f"write at most {LENGTH_MAX}"),
    ],
)
def test_an_error_says_where_and_what_was_expected(text: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert told in str(refused.value)


WORDS = [
    *("a", "b", "and", "or", "not", "in", "like", "between", "is", "null", "true", "(", ")", ",", "=", "<", ">=", "!="),
    *("'x'", "'", '"', "`", "1", "-", "1.5e3", ".", "e", "''", "%", "\\", "\0", "\ud800", "٣", ";", "--", "/*"),
]


@proves("expressions", "hostile")
@given(st.lists(st.sampled_from(WORDS), max_size=24).map(" ".join) | st.text(max_size=60))
@example("a" + " and a" * 400)
def test_no_text_makes_anything_but_a_tree_or_a_refusal(text: str) -> None:
    try:
        tree = parse(text)
    except UsageError:
        return
    assert evaluate(tree, {"a": 1, "b": "x"}) in (True, False, None)
    try:
        checked = check(tree, [("a", "long"), ("b", "string")])
    except UsageError:
        return
    for dialect in (SQLITE, POSTGRES):
        written, parameters = to_sql(checked, dialect)
        assert written.count(dialect.placeholder) == len(parameters)


@proves("expressions", "hostile")
@pytest.mark.parametrize(
    "part", ["'", '"', "(", "not ", "a", "1", "''", "-", "a and ", "a in (1,", "`", " ", "1e", "."]
)
def test_the_largest_text_is_read_and_refused(part: str) -> None:
    """A parser that goes back would not end."""
    for size in (LENGTH_MAX, LENGTH_MAX + 1):
        with pytest.raises(UsageError):
            parse((part * size)[: size - 1] + "(")
