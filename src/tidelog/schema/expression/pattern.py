"""Patterns of `like`: `%` for any characters, `_` for one, a backslash before either for itself. In linear time.

A pattern is pieces between `%`. The first is at the start of a text and the last at its end; each other one is taken
where it comes first, which leaves the most for those after it. So nothing is ever tried again, whatever was found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

ANY, ONE, ESCAPE = "%", "_", "\\"

Piece = tuple[str | None, ...]
"""Characters; None is any one."""


class Parts(NamedTuple):
    """A pattern without `%` has a `first` alone: it is then the whole text."""

    first: Piece
    middle: tuple[Piece, ...]
    last: Piece | None


def split(pattern: str) -> Parts:
    pieces: list[list[str | None]] = [[]]
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == ESCAPE and pattern[position + 1 : position + 2] in (ANY, ONE, ESCAPE):
            position += 1
            pieces[-1].append(pattern[position])
        elif character == ANY:
            pieces.append([])
        else:
            pieces[-1].append(None if character == ONE else character)
        position += 1
    first, *rest = map(tuple, pieces)
    if not rest:
        return Parts(first, (), None)
    return Parts(first, tuple(piece for piece in rest[:-1] if piece), rest[-1])


def matcher(pattern: str) -> Callable[[str], bool]:
    first, middle, last = split(pattern)
    searches = [_search(piece) for piece in middle]
    if last is None:
        return lambda text: len(text) == len(first) and _stands(first, text, 0)
    tail = last

    def matches(text: str) -> bool:
        position, end = len(first), len(text) - len(tail)
        if position > end or not _stands(first, text, 0) or not _stands(tail, text, end):
            return False
        for search in searches:
            position = search(text, position, end)
            if position < 0:
                return False
        return True

    return matches


def _stands(piece: Piece, text: str, at: int) -> bool:
    return all(wanted is None or text[at + index] == wanted for index, wanted in enumerate(piece))


def _search(piece: Piece) -> Callable[[str, int, int], int]:
    """Where the piece ends that comes first in `text[start:end]`; -1 where there is none."""
    size = len(piece)
    if None not in piece:
        plain = "".join(one for one in piece if one is not None)

        def find(text: str, start: int, end: int) -> int:
            at = text.find(plain, start, end)
            return -1 if at < 0 else at + size

        return find
    return _search_with_gaps(piece)


def _search_with_gaps(piece: Piece) -> Callable[[str, int, int], int]:
    """Shift-And: bit i of `state` says that the first i + 1 characters of the piece have just been read."""
    gaps = sum(1 << index for index, wanted in enumerate(piece) if wanted is None)
    masks: dict[str, int] = {}
    for index, wanted in enumerate(piece):
        if wanted is not None:
            masks[wanted] = masks.get(wanted, gaps) | 1 << index
    found = 1 << len(piece) - 1

    def find(text: str, start: int, end: int) -> int:
        state = 0
        for position in range(start, end):
            state = (state << 1 | 1) & masks.get(text[position], gaps)
            if state & found:
                return position + 1
        return -1

    return find
