"""The text of a view in SQL, as far as it is looked at without Spark: its words, the relations that it names, and which
line of the user's file a place in it is. Pure, but for reading that file.

Spark parses the SQL. Here it is only cut into words, so that `tidelog plan` knows what a view reads, blanks and
comments are not part of its fingerprint, and a command is refused before Spark would run it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

BLANK, COMMENT, TEXT, QUOTED, WORD, NUMBER, SIGN = KINDS = (
    *("blank", "comment", "text", "quoted"),
    *("word", "number", "sign"),
)
_TOKEN = re.compile(
    r"""(?P<blank>\s+)
      | (?P<comment>--[^\n]*|/\*.*?(?:\*/|$))
      | (?P<text>[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<word>[^\W\d]\w*)
      | (?P<number>\d+\w*(?:\.\d+\w*)?|\.\d+\w*)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
QUERIES = ("SELECT", "WITH", "FROM")
ENDS_OF_RELATIONS = frozenset(
    (
        *("WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "WINDOW", "UNION"),
        *("EXCEPT", "MINUS", "INTERSECT", "SELECT", "QUALIFY", "PIVOT", "UNPIVOT"),
        "TABLESAMPLE",
    )
)
NO_NAMES = ("LATERAL", "SELECT", "WITH", "FROM", "VALUES", "TABLE")
OF_AN_EXPRESSION = frozenset(("EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY", "POSITION"))  # with FROM inside


class SqlToken(NamedTuple):
    kind: str
    text: str
    at: int  # in the SQL

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind == WORD else self.text if self.kind == SIGN else ""

    @property
    def name(self) -> str:
        """As an identifier."""
        return self.text[1:-1].replace("``", "`") if self.kind == QUOTED else self.text


class SqlRelation(NamedTuple):
    name: str
    at: int


def tokens_of(sql: str) -> list[SqlToken]:
    """Without blanks and comments."""
    found = (SqlToken(str(one.lastgroup), one.group(), one.start()) for one in _TOKEN.finditer(sql))
    return [one for one in found if one.kind not in (BLANK, COMMENT)]


def bare(sql: str) -> str:
    """The same SQL, written in one way."""
    return " ".join(one.text for one in tokens_of(sql))


def not_a_query(sql: str) -> SqlToken | None:
    """What makes it a command, which Spark would run at once, or several statements; None for a query."""
    tokens = tokens_of(sql)
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    first = next((one for one in tokens if one.text != "("), None)
    if first is None:
        return SqlToken(SIGN, "", 0)
    if first.upper not in QUERIES:
        return first
    depth = 0
    for one in tokens:
        depth += (one.text == "(") - (one.text == ")")
        if one.text == ";" or (depth == 0 and one.upper == "INSERT"):
            return one
    return None


def relations(sql: str) -> list[SqlRelation]:
    """What it reads: names behind FROM and JOIN, each once, without those that WITH declares. A name of several parts
    has dots.
    """
    tokens = tokens_of(sql)
    declared = dict(reversed(list(_declared(tokens))))
    found: dict[str, SqlRelation] = {}
    for place in _places(tokens):
        name, after = _name(tokens, place)
        if name and place < declared.get(name.lower(), len(tokens)) and not _is(tokens, after, "("):
            found.setdefault(name, SqlRelation(name, tokens[place].at))
    return list(found.values())


def _declared(tokens: Sequence[SqlToken]) -> Iterator[tuple[str, int]]:
    """Names of WITH, `name AS (` or `name (columns) AS (`, and from where on they are what it declares: behind its
    parentheses. Inside them the same name is another relation, but for WITH RECURSIVE.
    """
    if not any(one.upper == "WITH" for one in tokens):
        return
    is_recursive = any(one.upper == "RECURSIVE" for one in tokens)
    for place, one in enumerate(tokens):
        if one.upper == "AS" and _is(tokens, place + 1, "(") and place:
            before = place - 1
            if tokens[before].text == ")":
                before = _opening(tokens, before) - 1
            if before >= 0 and tokens[before].kind in (WORD, QUOTED):
                yield tokens[before].name.lower(), before if is_recursive else _closing(tokens, place + 1)


def _closing(tokens: Sequence[SqlToken], opening: int) -> int:
    depth = 0
    for place in range(opening, len(tokens)):
        depth += (tokens[place].text == "(") - (tokens[place].text == ")")
        if depth == 0:
            return place
    return len(tokens)


def _opening(tokens: Sequence[SqlToken], closing: int) -> int:
    depth = 0
    for place in range(closing, -1, -1):
        depth += (tokens[place].text == ")") - (tokens[place].text == "(")
        if depth == 0:
            return place
    return 0


def _places(tokens: Sequence[SqlToken]) -> Iterator[int]:
    """Where a relation may stand: behind FROM, JOIN, and the commas of a FROM."""
    lists: list[bool] = [False]  # of each open parenthesis: whether commas part relations
    functions: list[str] = [""]
    for place, one in enumerate(tokens):
        before = tokens[place - 1] if place else None
        if one.text == "(":
            functions.append(before.upper if before is not None and before.kind == WORD else "")
            inside = lists[-1] and before is not None and before.upper in ("FROM", "JOIN", ",")
            lists.append(inside)
            if inside:
                yield place + 1
        elif one.text == ")" and len(lists) > 1:
            functions.pop()
            lists.pop()
        elif one.upper == "FROM" and _is_clause(before, functions[-1]):
            lists[-1] = True
            yield place + 1
        elif one.upper == "JOIN":
            yield place + 1
        elif one.upper in ENDS_OF_RELATIONS or (
            one.upper == "VIEW" and before is not None and before.upper == "LATERAL"
        ):
            lists[-1] = False
        elif one.text == "," and lists[-1]:
            yield place + 1


def _is_clause(before: SqlToken | None, function: str) -> bool:
    """Not that of `extract(year FROM at)`, nor of `IS DISTINCT FROM`."""
    return function not in OF_AN_EXPRESSION and (before is None or before.upper != "DISTINCT")


def _name(tokens: Sequence[SqlToken], place: int) -> tuple[str, int]:
    """The name that stands there, and what comes behind it; nothing where it is none, as before a subquery."""
    parts: list[str] = []
    while place < len(tokens) and tokens[place].kind in (WORD, QUOTED):
        if tokens[place].upper in NO_NAMES and not parts:
            return "", place
        parts.append(tokens[place].name)
        if not _is(tokens, place + 1, "."):
            return ".".join(parts), place + 1
        place += 2
    return "", place


def _is(tokens: Sequence[SqlToken], place: int, text: str) -> bool:
    return place < len(tokens) and tokens[place].text == text


# Where it stands in a file --------------------------------------------------------------------------------------------


def line_in(sql: str, at: int) -> int:
    """Counted from 0."""
    return sql.count("\n", 0, max(0, at))


def first_line(file: str, line: int, sql: str) -> int | None:
    """The line of the file where this text begins, if it stands there as one literal in a call around `line`; lines of
    the two are the same only there.
    """
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno):
            for keyword in node.keywords:
                value = keyword.value
                if isinstance(value, ast.Constant) and value.value == sql:
                    lines = (value.end_lineno or value.lineno) - value.lineno
                    return value.lineno if lines == sql.count("\n") else None
    return None
