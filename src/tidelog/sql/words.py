"""A column whose name is a word of SQL, such as `at` or `end`: the syntax error is at the word or right behind it.

Pure. Whether a word was meant as a name is not guessed: it is put in quotes, and DuckDB gets further with the question
than it did before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\w+|[^\w\s]", re.DOTALL)
SKELETON = frozenset(("select", "from", "where", "and", "or", "not", "as", "by", "on"))  # missing columns are not names

Fails = Callable[[str], int | None]  # at which byte of it a question cannot be read; None where it can


class Word(NamedTuple):
    text: str
    begin: int
    end: int


def mistaken_word(query: str, at_byte: int, reserved: Iterable[str], fails: Fails) -> str | None:
    """The word that is to be in quotes; None where none is, as far as can be told."""
    known = frozenset(reserved) - SKELETON
    for word in _around(query, len(query.encode()[:at_byte].decode(errors="ignore"))):
        if word.text.lower() in known:
            further = fails(f'{query[: word.begin]}"{word.text}"{query[word.end :]}')
            if further is None or further > at_byte + 2:  # by more than the quotes
                return word.text
    return None


def _around(query: str, at: int) -> list[Word]:
    """The word before the place, and the one that stands there."""
    words = [Word(found.group(), *found.span()) for found in TOKEN.finditer(query)]
    words = [word for word in words if not word.text.startswith(("--", "/*"))]
    return [word for word in words if word.end <= at][-1:] + [word for word in words if word.begin == at]
