"""The words of a .proto file. One pattern, in which no two ways fit the same text: it runs in linear time."""

from __future__ import annotations

import re
from typing import NamedTuple

from tidelog.errors import InvalidSchema
from tidelog.schema.bounds import NODES_MAX, check_size

NAME, NUMBER, STRING, SIGN, END = "name", "number", "string", "sign", "end"

TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>0[xX][0-9a-fA-F]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?f?)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<sign>[{}()\[\]<>;=,.:+/-])
    """,
    re.VERBOSE | re.ASCII,
)


class Token(NamedTuple):
    kind: str
    text: str
    position: int


def tokens_of(text: str) -> list[Token]:
    check_size(text)
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise InvalidSchema(f"line {line_of(text, position)}: {text[position : position + 20]!r} is not Protobuf")
        if match.lastgroup != "space":
            assert match.lastgroup is not None
            found.append(Token(match.lastgroup, match[0], position))
            if len(found) > NODES_MAX:
                raise InvalidSchema(f"the schema has more than {NODES_MAX} words; split it up")
        position = match.end()
    # Two: whoever looks at a word may look at the one behind it.
    return found + [Token(END, "the end", position)] * 2


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
