r"""Arrays and hstore as PostgreSQL writes them.

    {1,NULL,"a,\"b\""}   {{1,2},{3,4}}   [0:1]={1,2}      an array: its bounds are left out
    "a"=>"1", "b c"=>NULL                                 an hstore: a JSON object, as a text

An array has as many dimensions as its column declares (PostgreSQL does not hold values to that). A value that has more
or fewer is told as one list of all its elements, inside of as many lists as the schema asks for: nothing is lost that
the schema could have told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from json.encoder import encode_basestring as quote
from typing import Any

from tidelog.capture.sources.postgres.values import Reader

_BOUNDS = re.compile(r"(?:\[[+-]?\d+:[+-]?\d+\])+=")
_HSTORE = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:NULL|"((?:[^"\\]|\\.)*)")(?:, |$)', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_TOKENS: dict[str, re.Pattern[str]] = {}

Nested = list[Any]  # of texts, None and lists


def json_array(element: Reader, dimensions: int = 1, delimiter: str = ",") -> Reader:
    def read(data: bytes) -> str:
        text = data.decode()
        if text.startswith("["):
            text = _BOUNDS.sub("", text, count=1)
        value = parse(text, delimiter)
        if _depth(value) != dimensions and value:
            value = _flat(value)
            for _ in range(dimensions - 1):
                value = [value]
        return _joined(value, element)

    return read


def parse(text: str, delimiter: str = ",") -> Nested:
    """Nested lists of texts, and None for NULL."""
    token = _TOKENS.setdefault(
        delimiter, re.compile(rf'([{{}}{delimiter}])|"((?:[^"\\]|\\.)*)"|((?:[^{{}}{delimiter}"\\]|\\.)+)', re.DOTALL)
    )
    outer: Nested = []
    open_lists = [outer]
    end = 0
    for found in token.finditer(text):
        if found.start() != end:
            raise ValueError(f"an array is malformed at character {end}")
        end = found.end()
        mark, quoted, plain = found.groups()
        if mark == "{":
            inner: Nested = []
            open_lists[-1].append(inner)
            open_lists.append(inner)
        elif mark == "}":
            open_lists.pop()
            if not open_lists:
                raise ValueError("an array ends twice")
        elif quoted is not None:
            open_lists[-1].append(_ESCAPE.sub(r"\1", quoted))
        elif plain is not None:
            open_lists[-1].append(None if plain == "NULL" else _ESCAPE.sub(r"\1", plain))
    if end != len(text) or len(open_lists) != 1 or len(outer) != 1 or not isinstance(outer[0], list):
        raise ValueError("an array does not end where its text does")
    return outer[0]


def json_hstore(data: bytes) -> str:
    text = data.decode()
    pairs = []
    end = 0
    while end < len(text):
        found = _HSTORE.match(text, end)
        if found is None:
            raise ValueError(f"an hstore is malformed at character {end}")
        end = found.end()
        key, value = found.groups()
        shown = "null" if value is None else quote(_ESCAPE.sub(r"\1", value))
        pairs.append(f"{quote(_ESCAPE.sub(chr(92) + '1', key))}:{shown}")
    return quote("{" + ",".join(pairs) + "}")


def _depth(value: Nested) -> int:
    return 1 + (_depth(value[0]) if value and isinstance(value[0], list) else 0)


def _flat(value: Nested) -> Nested:
    if not (value and isinstance(value[0], list)):
        return value
    return [element for inner in value for element in _flat(inner)]


def _joined(value: Nested, element: Callable[[bytes], str]) -> str:
    return "[" + ",".join(_element(each, element) for each in value) + "]"


def _element(value: Any, element: Callable[[bytes], str]) -> str:
    if value is None:
        return "null"
    return _joined(value, element) if isinstance(value, list) else element(value.encode())
