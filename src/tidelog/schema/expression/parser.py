"""An expression's text, to a tree. By hand, one token ahead, in time that grows with the text's length and no faster.

    expression   any ("or" any)*         any   all ("and" all)*          all   "not" all | test
    test         operand [("=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=") operand
                         | ["not"] "in" "(" literal ("," literal)* ")"
                         | ["not"] "like" text
                         | ["not"] "between" operand "and" operand
                         | "is" ["not"] "null"]
                 | "(" expression ")"
    operand      a column:   price   "unit price"   `unit price`         quotes within are doubled
                 a literal:  12   -1.5   1e3   'it''s'   true   false   null

Rules:
- Words of the language are written in any case, columns as they are declared. A column that is called like a word is
  quoted.
- A text has no NUL, at most LENGTH_MAX characters, NODES_MAX parts, and DEPTH_MAX of them within each other.
- Whatever is wrong is a `UsageError` that says where, what stands there, and what was expected.
- A number is an int, a float, or a Decimal if no double is just that number. It is one that a double comes near to.
"""

from __future__ import annotations

import re
from decimal import Decimal
from math import isinf
from typing import NamedTuple, NoReturn

from tidelog.errors import UsageError
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

LENGTH_MAX = 8192
NODES_MAX = 500
DEPTH_MAX = 32
NUMBER_LENGTH_MAX = 400
SHOWN_CHARACTERS = 40  # of a token, in an error

COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
WORDS = frozenset(("and", "or", "not", "in", "like", "between", "is", "null", "true", "false"))
IN_QUOTES = "; a text or a time is written in single quotes: 'New York', '2026-01-31'"
CONSTANTS: dict[str, Scalar] = {"true": True, "false": False, "null": None}

NUMBER, TEXT, NAME, WORD, MARK, END = "number", "text", "name", "word", "mark", "the end"
# Possessive, so that nothing is tried twice.
TOKEN = re.compile(
    r"""(?P<number>[0-9]++(?:\.[0-9]*+)?+(?:[eE][+-]?[0-9]++)?+|\.[0-9]++(?:[eE][+-]?[0-9]++)?+)
      | '(?P<text>(?:[^']|'')*+)'
      | "(?P<double>(?:[^"]|"")*+)" | `(?P<back>(?:[^`]|``)*+)`
      | (?P<bare>[^\W\d]\w*+)
      | (?P<mark>==|!=|<>|<=|>=|[=<>(),+-])""",
    re.VERBOSE,
)
BLANK = re.compile(r"\s*+")


class Token(NamedTuple):
    kind: str
    text: str  # of a word, in lower case
    at: int  # the position of its first character, from 0
    end: int


def parse(text: str) -> Expression:
    if len(text) > LENGTH_MAX:
        raise UsageError(f"the expression has {len(text)} characters; write at most {LENGTH_MAX}")
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError("the expression has a NUL or half a character in it; no text of a database has")
    parser = _Parser(text)
    parsed = parser.expression(0)
    if parser.token.kind != END:
        parser.fail("and, or, or the end" + (IN_QUOTES if parser.is_within_a_text() else ""))
    return parsed


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._nodes = 0
        self.token = self._next(0)
        self.before = END  # the kind of the token before it

    # Tokens -----------------------------------------------------------------------------------------------------------

    def _next(self, position: int) -> Token:
        found = BLANK.match(self._text, position)
        assert found is not None, "no blanks are blanks"
        at = found.end()
        if at == len(self._text):
            return Token(END, "", at, at)
        token = TOKEN.match(self._text, at)
        if token is None:
            character = self._text[at]
            what = f"the {_QUOTED[character]} is not closed" if character in _QUOTED else f"{character!r} means nothing"
            raise UsageError(f"the expression, at character {at + 1}: {what} here")
        return _token(token, at)

    def take(self) -> Token:
        taken, self.token = self.token, self._next(self.token.end)
        self.before = taken.kind
        return taken

    def accept(self, kind: str, *texts: str) -> Token | None:
        if self.token.kind == kind and (not texts or self.token.text in texts):
            return self.take()
        return None

    def expect(self, kind: str, text: str) -> None:
        if self.accept(kind, text) is None:
            self.fail(repr(text) if kind == MARK else text)

    def fail(self, expected: str) -> NoReturn:
        at, end = self.token.at, self.token.end
        there = repr(self._text[at : min(end, at + SHOWN_CHARACTERS)]) if self.token.kind != END else END
        raise UsageError(f"the expression, at character {at + 1}: found {there}; expected {expected}")

    def is_within_a_text(self) -> bool:
        """Whether this token and the one before it look like a text without its quotes: New York, 2026-01-31."""
        if self.token.text in ("-", "+"):
            return self.before in (NAME, NUMBER)
        return self.before == NAME and self.token.kind in (NAME, NUMBER)

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise UsageError(f"the expression has more than {NODES_MAX} parts; write a shorter one")

    # Grammar ----------------------------------------------------------------------------------------------------------

    def expression(self, depth: int) -> Expression:
        if depth > DEPTH_MAX:
            raise UsageError(
                f"the expression, at character {self.token.at + 1}: more than {DEPTH_MAX} within each other; write it"
                " flatter"
            )
        parts = [self._any(depth)]
        while self.accept(WORD, "or"):
            parts.append(self._any(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _any(self, depth: int) -> Expression:
        parts = [self._all(depth)]
        while self.accept(WORD, "and"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _all(self, depth: int) -> Expression:
        negations = 0
        while self.accept(WORD, "not"):
            negations += 1
            self._count()
        tested = self._test(depth)
        # Twice not is as if it were not written: so that any number of them adds no depth.
        return Not(tested) if negations % 2 else tested

    def _test(self, depth: int) -> Expression:
        if self.accept(MARK, "("):
            inner = self.expression(depth + 1)
            self.expect(MARK, ")")
            return inner
        item = self._operand("a column, a value, not or '('")
        if compared := self.accept(MARK, *COMPARISONS):
            return Compare(COMPARISONS[compared.text], item, self._operand("a column or a value"))
        if self.accept(WORD, "is"):
            negated = self.accept(WORD, "not")
            self.expect(WORD, "null")
            return Not(IsNull(item)) if negated else IsNull(item)
        negated = self.accept(WORD, "not")
        tested = self._further(item)
        if tested is None:
            if negated:
                self.fail("in, like or between")
            return item
        return Not(tested) if negated else tested

    def _further(self, item: Operand) -> Expression | None:
        if self.accept(WORD, "in"):
            return In(item, self._choices())
        if self.accept(WORD, "like"):
            return Like(item, self._pattern())
        if self.accept(WORD, "between"):
            low = self._operand("a column or a value")
            self.expect(WORD, "and")
            return And((Compare(">=", item, low), Compare("<=", item, self._operand("a column or a value"))))
        return None

    def _choices(self) -> tuple[Literal, ...]:
        self.expect(MARK, "(")
        choices = [self._literal()]
        while self.accept(MARK, ","):
            choices.append(self._literal())
        if self.accept(MARK, ")") is None:
            self.fail("',' or ')'")
        return tuple(choices)

    def _pattern(self) -> str:
        if self.token.kind != TEXT:
            self.fail("a pattern in single quotes")
        return self.take().text

    def _operand(self, expected: str) -> Operand:
        if self.token.kind == NAME:
            self._count()
            return Name(self.take().text)
        return self._literal(expected)

    def _literal(self, expected: str = "a value") -> Literal:
        self._count()
        if self.token.kind == TEXT:
            return Literal(self.take().text)
        if self.token.kind == WORD and self.token.text in CONSTANTS:
            return Literal(CONSTANTS[self.take().text])
        sign = self.accept(MARK, "-", "+")
        if self.token.kind == NUMBER:
            return Literal(self._number("-" if sign is not None and sign.text == "-" else ""))
        return self.fail("a number" if sign else expected + (IN_QUOTES if self.token.kind == NAME else ""))

    def _number(self, sign: str) -> Scalar:
        token = self.take()
        near = float(sign + token.text)
        # The mantissa alone tells 0 from what is too small: a Decimal has limits of its own.
        vanished = near == 0 and token.text.lower().partition("e")[0].strip("0.")
        if isinf(near) or vanished or len(token.text) > NUMBER_LENGTH_MAX:
            raise UsageError(
                f"the expression, at character {token.at + 1}: {token.text[:SHOWN_CHARACTERS]} is a number beyond all"
                " columns; write one that a double comes near to"
            )
        if token.text.isdigit():
            return int(sign + token.text)
        exact = Decimal(sign + token.text)
        return near if exact == Decimal(repr(near)) else exact


_QUOTED = {"'": "text", '"': "name", "`": "name"}


def _token(found: re.Match[str], at: int) -> Token:
    kind = found.lastgroup or ""
    text, end = found[kind], found.end()
    if kind == "text":
        return Token(TEXT, text.replace("''", "'"), at, end)
    if kind == "double":
        return Token(NAME, text.replace('""', '"'), at, end)
    if kind == "back":
        return Token(NAME, text.replace("``", "`"), at, end)
    if kind == "bare":
        return Token(WORD, text.lower(), at, end) if text.lower() in WORDS else Token(NAME, text, at, end)
    return Token(NUMBER if kind == "number" else MARK, text, at, end)
