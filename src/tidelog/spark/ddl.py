"""Columns as Spark writes them ("id long, at timestamp"), read without Spark: names and types. Pure, but `struct_of`.

    columns   column ("," column)*           column   name [":"] type ["not" "null"] ["default" ..] ["comment" text]
    type      a word of TYPES ["(" number ("," number)* ")"] ["collate" name]     string   decimal(10, 2)
              | "array" "<" type ">" | "map" "<" type "," type ">" | "struct" "<" columns ">"
              | "interval" unit ["to" unit]

Rules:
- A type that Spark does not have, and a column without one, are refused. What is written in a way that this does not
  know is left to Spark, which has the last word on all of it: None.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from tidelog.config import nearest
from tidelog.errors import UsageError
from tidelog.schema.column_types import KINDS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NESTED = ("array", "map", "struct", "interval")
ONLY_SPARKS = {"time": ("time",), "void": ("void", "null")} | {
    kind: (kind,) for kind in ("variant", "geometry", "geography")
}
WORDS = {one.spark: one.words for one in KINDS.values() if one.words and one.words[0] not in NESTED} | ONLY_SPARKS
ELSEWHERE = {  # as Python, pandas and other databases call them
    "string": ("str", "text", "uuid"),
    "boolean": ("bool",),
    "binary": ("bytes", "blob"),
    "long": ("int64",),
    "int": ("int32",),
    "short": ("int16",),
    "double": ("float64", "number"),
    "float": ("float32",),
    "timestamp": ("datetime", "timestamptz"),
    "array": ("list",),
    "map": ("dict",),
    "struct": ("object",),
}
SIMPLE = {word: kind for kind, words in WORDS.items() for word in words}
MEANT = {word: kind for kind, words in ELSEWHERE.items() for word in words}
TYPES = (*SIMPLE, *NESTED)
TOKEN = re.compile(r"\s*(?:(\w+)|`((?:[^`]|``)*)`|('(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")|(\S))")
DEPTH_MAX = 100
NO_SESSION = "SESSION_OR_CONTEXT_NOT_EXISTS"  # Spark's name of that error

WORD, NAME, TEXT, MARK, END = "word", "name", "text", "mark", "end"


class Column(NamedTuple):
    name: str
    type: str  # Spark's own name of it, without what is in brackets


class _Unread(Exception):
    """Written in a way that is left to Spark."""


class _Token(NamedTuple):
    kind: str
    text: str


def is_ddl(text: str) -> bool:
    """Schemas are JSON, or a .proto file, or its descriptor in one long word."""
    head = text.lstrip()
    return (
        head[:1] not in ("{", "[", '"')
        and not any(word in head for word in ("message ", "syntax", ";"))
        and (" " in head.strip() or ":" in head)
    )


def columns_of(text: str) -> list[Column] | None:
    """None where only Spark can tell."""
    reader = _Reader(text)
    try:
        found = reader.columns(0)
        return found if reader.token.kind == END else None
    except _Unread:
        return None


def struct_of(text: str) -> StructType:
    """As Spark itself reads it, which needs a session."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType as Struct

    columns_of(text)  # it says better what is wrong with a type
    try:
        return Struct.fromDDL(text)  # type: ignore[return-value]
    except PySparkException as error:
        if NO_SESSION in str(error):
            raise UsageError(
                f"{text!r} are columns, which Spark reads, and no session runs yet; name them within the function"
                " that declares the pipeline, or give a StructType"
            ) from error
        said = str(error).strip().split("\n")[0]
        raise UsageError(f"{text!r} is neither columns nor a schema: {type(error).__name__}: {said}") from error


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text.rstrip()
        self._position = 0
        self.token = self._next()

    def columns(self, depth: int) -> list[Column]:
        found = [self._column(depth)]
        while self._accept(","):
            found.append(self._column(depth))
        return found

    def _column(self, depth: int) -> Column:
        if self.token.kind not in (WORD, NAME):
            raise _Unread
        name = self._take().text
        self._accept(":")
        if self.token.kind == END or self.token.text in (",", ">"):
            raise UsageError(f"column {name!r} has no type; write it behind the name, as in {name} string")
        column = Column(name, self._type(name, depth))
        if self._accept("not") and not self._accept("null"):
            raise _Unread
        if self._accept("comment") and self._take().kind != TEXT:
            raise _Unread
        return column

    def _type(self, column: str, depth: int) -> str:
        if self.token.kind != WORD or depth > DEPTH_MAX:
            raise _Unread
        said = self._take().text
        kind = said.lower()
        if kind not in TYPES:
            _unknown(column, said)
        if kind in SIMPLE:
            self._brackets()
            if self._accept("collate"):
                self._take()
            return SIMPLE[kind]
        return self._nested(kind, column, depth)

    def _nested(self, kind: str, column: str, depth: int) -> str:
        if kind == "interval":
            while self.token.kind == WORD and self.token.text.lower() not in ("not", "comment", "default"):
                self._take()
            return kind
        self._expect("<")
        if kind == "struct":
            if self.token.text != ">":
                self.columns(depth + 1)
        else:
            self._type(column, depth + 1)
            if kind == "map":
                self._expect(",")
                self._type(column, depth + 1)
        self._expect(">")
        return kind

    def _brackets(self) -> None:
        if self._accept("("):
            while not self._accept(")"):
                if self._take().kind == END:
                    raise _Unread

    def _expect(self, mark: str) -> None:
        if not self._accept(mark):
            raise _Unread

    def _accept(self, text: str) -> bool:
        if self.token.kind in (WORD, MARK) and self.token.text.lower() == text:
            self._take()
            return True
        return False

    def _take(self) -> _Token:
        taken, self.token = self.token, self._next()
        return taken

    def _next(self) -> _Token:
        found = TOKEN.match(self._text, self._position)
        if found is None:
            return _Token(END, "")
        self._position = found.end()
        word, name, text, mark = found.groups()
        if word is not None:
            return _Token(WORD, word)
        if name is not None:
            return _Token(NAME, name.replace("``", "`"))
        return _Token(TEXT, text) if text is not None else _Token(MARK, mark)


def _unknown(column: str, said: str) -> NoReturn:
    meant = MEANT.get(said.lower())
    advice = f"did you mean {meant}?" if meant else nearest(said.lower(), TYPES, f"types are {', '.join(TYPES)}")
    raise UsageError(f"column {column!r} is of type {said!r}, which Spark does not have; {advice}")
