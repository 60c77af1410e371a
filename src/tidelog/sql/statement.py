"""What a question says, read from DuckDB's own parse of it (`json_serialize_sql`): nothing here reads SQL itself. Pure.

tables     every table that is named, with the schema before it
columns    the names that may be columns' (too many rather than too few), or None where all are needed
limits     what the WHERE of a plain SELECT over one table says of its `offset`, `timestamp` and `partition`
plain      None, or why the question cannot be followed: it is more than a filter of rows one by one
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tidelog.errors import UsageError
from tidelog.sql.span import Limits

Node = Mapping[str, Any]
Evaluate = Callable[[Node, str], int | None]  # an expression without columns, to be compared with that column

LATEST = "$latest"
LATEST_CALL = "latest"
MIRRORED = {
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_EQUAL": "COMPARE_EQUAL",
}
TAKES_ALL = ("STAR", "SHOW_REF", "PIVOT", "POSITIONAL_REFERENCE")
STEADY = {  # functions that give the same each time within a question, or, for the clock, only ever more
    *("now", "get_current_timestamp", "current_timestamp", "transaction_timestamp", "today", "current_date"),
    *("+", "-", "*", "trunc", "to_milliseconds", "to_seconds", "to_minutes", "to_hours", "to_days", "to_weeks"),
    *("to_months", "to_years", "to_timestamp", "make_timestamp", "date_trunc"),
}
LOCKED = "disabled by configuration"  # in DuckDB's words
FILES = "--external-access (external_access=True) lets a question read files"
LIKE_A_FILE = re.compile(r"/|\.(csv|tsv|json|jsonl|ndjson|parquet)(\.gz|\.zst)?$", re.IGNORECASE)
NARROWING = ("offset", "timestamp", "partition")


class TableName(NamedTuple):
    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


class Statement(NamedTuple):
    root: Node
    tables: tuple[TableName, ...]
    called: tuple[str, ...]  # by latest('...')
    local: frozenset[str]  # names of common table expressions
    columns: frozenset[str] | None


def read_statement(parsed: Node) -> Statement:
    if parsed.get("error"):
        said = str(parsed.get("error_message", "it cannot be read"))
        if "SELECT" in said:
            raise UsageError("only questions are taken, that is SELECT; nothing is written by SQL here")
        raise UsageError(said)
    statements = parsed["statements"]
    if len(statements) != 1:
        raise UsageError(f"{len(statements)} statements; ask one question at a time")
    root = statements[0]["node"]
    every = list(nodes(root))
    tables = tuple(dict.fromkeys(_table(node) for node in every if node.get("type") == "BASE_TABLE"))
    called = tuple(dict.fromkeys(name for node in every if (name := _called(node)) is not None))
    local = frozenset(entry["key"] for node in every for entry in _ctes(node))
    return Statement(root, tables, called, local, _columns(every))


def nodes(tree: Any) -> Iterator[Node]:
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(reversed(list(node.values())))
        elif isinstance(node, list):
            pending.extend(reversed(node))


def _table(node: Node) -> TableName:
    schema = str(node.get("schema_name") or "")
    if catalog := str(node.get("catalog_name") or ""):
        schema = f"{catalog}.{schema}" if schema else catalog
    return TableName(schema, str(node["table_name"]))


def _called(node: Node) -> str | None:
    """The name within `latest('orders')`."""
    if node.get("type") != "TABLE_FUNCTION":
        return None
    function = node.get("function") or {}
    if str(function.get("function_name", "")).lower() != LATEST_CALL:
        return None
    given = arguments(function)
    text = constant_text(given[0]) if len(given) == 1 else None
    if text is None:
        raise UsageError("latest takes the name of a topic, in quotes: latest('orders')")
    return text


def arguments(function: Node) -> list[Node]:
    """Newer DuckDBs have a name with each."""
    if "arguments" in function:
        return [one.get("expression", one) for one in function["arguments"]]
    return list(function.get("children") or ())


def constant_text(node: Node) -> str | None:
    if node.get("class") != "CONSTANT":
        return None
    literal = node.get("literal") or node.get("value") or {}
    held = literal.get("text", literal.get("value"))
    return held if isinstance(held, str) else None


def _ctes(node: Node) -> list[Node]:
    listed = (node.get("cte_map") or {}).get("map") if isinstance(node.get("cte_map"), dict) else None
    return list(listed or ())


def _columns(every: list[Node]) -> frozenset[str] | None:
    names: set[str] = set()
    tables: set[str] = set()
    for node in every:
        kind = node.get("type")
        if kind in TAKES_ALL or node.get("ref_type") == "NATURAL":
            return None
        if node.get("class") == "COLUMN_REF":
            names |= {str(part).lower() for part in node["column_names"]}
        names |= {str(name).lower() for name in node.get("using_columns") or ()}
        if kind in ("BASE_TABLE", "TABLE_FUNCTION"):
            if node.get("column_name_alias"):
                return None
            tables |= {str(node.get("table_name") or "").lower(), str(node.get("alias") or "").lower()}
            tables |= {str(name).lower() for name in [_called(node)] if name is not None}
    whole = {str(node["column_names"][0]).lower() for node in every if _is_one_name(node)}
    return None if whole & (tables - {""}) else frozenset(names)


def _is_one_name(node: Node) -> bool:
    """A column, or else a whole row, by the name of its table."""
    return node.get("class") == "COLUMN_REF" and len(node["column_names"]) == 1


# --- limits ----------------------------------------------------------------------------------------------------------


def limits_of(statement: Statement, table: TableName, evaluate: Evaluate) -> Limits:
    """None at all, where the table is named twice, joined, or read otherwise than by one plain SELECT."""
    named = [node for node in nodes(statement.root) if node.get("type") == "BASE_TABLE" and _table(node) == table]
    holders = [
        node
        for node in nodes(statement.root)
        if node.get("type") == "SELECT_NODE" and node.get("from_table") in named and node.get("where_clause")
    ]
    if len(named) != 1 or len(holders) != 1 or named[0].get("sample") or table.name.endswith(LATEST):
        return Limits()
    alias = str(named[0].get("alias") or table.name).lower()
    limits = Limits()
    for term in _terms(holders[0]["where_clause"]):
        limits = _narrowed(limits, term, alias, evaluate)
    return limits


def _terms(where: Node) -> Iterator[Node]:
    if where.get("type") == "CONJUNCTION_AND":
        for child in where["children"]:
            yield from _terms(child)
    else:
        yield where


def _narrowed(limits: Limits, term: Node, alias: str, evaluate: Evaluate) -> Limits:
    kind = str(term.get("type"))
    if kind == "COMPARE_BETWEEN" and (name := _name(term["input"], alias)):
        limits = _compared(limits, name, "COMPARE_GREATERTHANOREQUALTO", evaluate(term["lower"], name))
        return _compared(limits, name, "COMPARE_LESSTHANOREQUALTO", evaluate(term["upper"], name))
    if kind == "COMPARE_IN" and _name(term["children"][0], alias) == "partition":
        values = [evaluate(one, "partition") for one in term["children"][1:]]
        return limits if None in values else _only(limits, frozenset(value for value in values if value is not None))
    if kind in MIRRORED:
        if name := _name(term["left"], alias):
            return _compared(limits, name, kind, evaluate(term["right"], name))
        if name := _name(term["right"], alias):
            return _compared(limits, name, MIRRORED[kind], evaluate(term["left"], name))
    return limits


def _name(node: Node, alias: str) -> str | None:
    if node.get("class") != "COLUMN_REF":
        return None
    names = [str(part).lower() for part in node["column_names"]]
    if len(names) == 2 and names[0] == alias:
        names = names[1:]
    return names[0] if len(names) == 1 and names[0] in NARROWING else None


def _compared(limits: Limits, name: str, kind: str, value: int | None) -> Limits:
    """`value` is a whole number: an offset, a partition, or a time in milliseconds, rounded down."""
    if value is None:
        return limits
    above = {"COMPARE_EQUAL": value, "COMPARE_GREATERTHANOREQUALTO": value, "COMPARE_GREATERTHAN": value + 1}.get(kind)
    until = {"COMPARE_EQUAL": value + 1, "COMPARE_LESSTHANOREQUALTO": value + 1, "COMPARE_LESSTHAN": value}.get(kind)
    if name == "partition":
        return _only(limits, frozenset([value])) if kind == "COMPARE_EQUAL" else limits
    if name == "timestamp":
        # A time may have lost what is below a millisecond, and a later one is in the same.
        since = None if above is None else value
        return limits if since is None else replace(limits, since=max(since, limits.since or 0))
    first = limits.first if above is None else max(above, limits.first or 0)
    ends = [one for one in (limits.until, until) if one is not None]
    return replace(limits, first=first, until=min(ends) if ends else None)


def is_steady(expression: Node) -> bool:
    """Whether it may be evaluated ahead: constants, casts, and functions of these."""
    for node in nodes(expression):
        if node.get("class") == "FUNCTION" and str(node["function_name"]).lower() not in STEADY:
            return False
        if node.get("class") not in (None, "FUNCTION", "CONSTANT", "CAST", "TYPE"):
            return False
    return True


def _only(limits: Limits, partitions: frozenset[int]) -> Limits:
    return replace(limits, partitions=partitions if limits.partitions is None else partitions & limits.partitions)


# --- following -------------------------------------------------------------------------------------------------------


def why_not_followed(statement: Statement, aggregates: Callable[[set[str]], set[str]]) -> str | None:
    """None for a SELECT of rows one by one. `aggregates` says which of these functions need more than one row."""
    root = statement.root
    if root.get("type") != "SELECT_NODE" or (root.get("from_table") or {}).get("type") != "BASE_TABLE":
        return "it is not a plain SELECT over one topic"
    if statement.local:
        return "it has a WITH"
    kinds = {
        "ORDER_MODIFIER": "it has an ORDER BY, and the rows never end",
        "DISTINCT_MODIFIER": "it has a DISTINCT, and every row that was would have to be kept",
        "LIMIT_MODIFIER": "it has a LIMIT; leave it out, and stop when you have seen enough",
        "LIMIT_PERCENT_MODIFIER": "it has a LIMIT; leave it out, and stop when you have seen enough",
    }
    for modifier in root.get("modifiers") or ():
        return kinds.get(str(modifier.get("type")), "it is more than a filter")
    if root.get("group_expressions") or root.get("having") or root.get("group_sets"):
        return "it has a GROUP BY, and a group has no end"
    if root.get("qualify") or root.get("sample") or root["from_table"].get("sample"):
        return "it has a QUALIFY or a SAMPLE, for which there would have to be an end"
    functions: set[str] = set()
    for node in nodes(root):
        if node.get("class") == "SUBQUERY":
            return "it has a question within it"
        if node.get("class") == "WINDOW":
            return "it has a window, for which there would have to be an end"
        if node.get("class") == "FUNCTION":
            functions.add(str(node["function_name"]).lower())
    found = sorted(aggregates(functions))
    if found:
        return f"{found[0].replace('count_star', 'count')} is of all rows, and the rows never end"
    if statement.tables[0].name.endswith(LATEST):
        return "the latest of a key is known only at an end"
    return None


def hint(error: str, query: str, mistaken: str | None = None) -> str:
    """DuckDB's error, with what it cannot know: `offset` is a word of SQL and the name of a column. `mistaken` is
    a word of SQL that would do as a name.
    """
    text = " ".join(error.split("\n\n")[0].split())
    if LOCKED in text:
        return f"{text}; {FILES}"
    if "syntax error" not in text:
        return text
    if mistaken is not None and mistaken.lower() not in NARROWING:
        name = mistaken.upper()
        return f'{text}; if {mistaken} is a column, it is written "{mistaken}", in quotes, as {name} is a word of SQL'
    if re.search(r'(?<![\w".])offset(?!["\w])', query, re.IGNORECASE):
        return f'{text}; the column is written "offset", in quotes, as OFFSET is a word of SQL'
    if re.search(r'near "[-.]"', text):
        return f'{text}; a name with dots or dashes is written in quotes: from "shop-orders"'
    return text
