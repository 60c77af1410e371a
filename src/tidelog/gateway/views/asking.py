"""What a query asks for, read from its parameters. Pure.

key        of a view with one key column the value itself, `tea`; else, and always possible, `["tea",1]` in the key's
           order, or `{"product":"tea","day":"2026-01-31"}`
where      an expression (`schema/expression/parser.py`)
after_key  `["tea",1]`: rows after this key, in the key's order; `next` of an answer has it
after      TOPIC:PARTITION:OFFSET: not before the view has what was written there
generation rows of this generation or a later one: `switched` of a feed names it, and stores follow a little later
cursor     rows as they were there, or later: of another answer, which may have been another store's
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from tidelog.errors import UsageError
from tidelog.gateway.limits import AFTER_MAX_S, AFTER_S
from tidelog.schema.column_types import BOOLEAN, DOUBLE, LONG
from tidelog.schema.declaration import Declaration, Key, from_json, to_json
from tidelog.schema.expression.checking import check
from tidelog.schema.expression.parser import parse
from tidelog.schema.expression.tree import Expression
from tidelog.views.stores.store import PAGE_ROWS, PAGE_ROWS_MAX

DIGITS_MAX = 20


def key_of(declared: Declaration, text: str) -> Key:
    said = _json(text)
    if isinstance(said, dict) and set(said) == set(declared.key):
        return _key(declared, [said[name] for name in declared.key])
    if isinstance(said, list) and (len(declared.key) > 1 or len(said) == 1):
        return _key(declared, said)
    if len(declared.key) == 1:
        return _key(declared, [_plain(declared.columns[0].type, text)])
    raise UsageError(
        f"the key has {len(declared.key)} columns; write it as JSON, a list of {', '.join(declared.key)}, or an object"
    )


def after_key_of(declared: Declaration, text: str) -> Key:
    said = _json(text)
    if not isinstance(said, list):
        raise UsageError("after_key is not a list of a key's values; take it from `next` of an answer")
    return _key(declared, said)


def where_of(declared: Declaration, text: str) -> Expression:
    return check(parse(text), declared.columns)


def limit_of(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(PAGE_ROWS))
    if not _is_number(text) or not 1 <= int(text) <= PAGE_ROWS_MAX:
        raise UsageError(f"limit is {text[:20]!r}; write a number from 1 to {PAGE_ROWS_MAX}")
    return int(text)


def generation_of(query: Mapping[str, str]) -> int:
    """The least that will do; 0: any."""
    text = query.get("generation", "0")
    if not _is_number(text):
        raise UsageError(f"generation is {text[:20]!r}; write the number that `switched` has")
    return int(text)


def timeout_of(query: Mapping[str, str]) -> float:
    text = query.get("timeout", f"{AFTER_S:g}")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= AFTER_MAX_S:
        raise UsageError(f"timeout is {text[:20]!r}; write seconds, {AFTER_MAX_S:g} at most")
    return seconds


def next_link(
    name: str, query: Mapping[str, str], declared: Declaration, last: Key, *, cursor: str | None, several: bool
) -> str:
    """The same question from after the last row on. What was waited for has come. But where there are several stores
    another one may answer then, and be behind: it waits for the same, and gives no rows from before this page's cursor.
    """
    key = [to_json(kind, value) for (_, kind), value in zip(declared.columns, last, strict=False)]
    left_out = ("after_key", "cursor") if several else ("after_key", "cursor", "after", "timeout")
    kept = {given: text for given, text in query.items() if given not in left_out}
    if several and cursor is not None:
        kept["cursor"] = cursor
    return f"/views/{quote(name)}?{urlencode({**kept, 'after_key': json.dumps(key, separators=(',', ':'))})}"


def _json(text: str) -> Any:
    """None where it is not JSON: it may be a value that is written as it is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _key(declared: Declaration, said: list[Any]) -> Key:
    if len(said) != len(declared.key):
        raise UsageError(f"a key has {len(declared.key)} values ({', '.join(declared.key)}), and this has {len(said)}")
    if None in said:
        raise UsageError("a value of the key is null, which no key has")
    return tuple(from_json(kind, one) for (_, kind), one in zip(declared.columns, said, strict=False))


def _plain(kind: str, text: str) -> Any:
    """A value that is written as it is, as JSON has it."""
    if kind == LONG and _is_number(text.removeprefix("-")):
        return int(text)
    if kind in (BOOLEAN, DOUBLE):
        return _json(text)
    return text


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
