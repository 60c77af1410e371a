"""The kinds of fields that a message has, and in which versions it has them.

`acks: int = field.int16("0+")` in a message class says: a 16-bit integer, in every version from 0 on. The rules:

- Versions are written as Kafka writes them: `"3+"`, `"0-12"`, `"4"`, `"none"`.
- `nullable` says in which versions null may stand on the wire; a null elsewhere is malformed.
- A field with a `tag` travels among the tagged fields of its struct, and only when it differs from its default.
- A field which a version lacks decodes to its default. Encoding another value than the default into such a version is
  refused, unless the field is `ignorable`: then it is left out.
- A tagged struct is None when absent; every other struct field defaults to a fresh struct with its own defaults.

The functions return `Any` because a type checker reads them as the default value of the annotated attribute.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

ZERO_UUID = bytes(16)
FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Kinds of one size, by `struct` format."""


class Field:
    """One row of a message's table; `element` is an array's or a struct field's kind or struct name."""

    __slots__ = ("default", "element", "ignorable", "kind", "name", "nullable", "tag", "versions")

    def __init__(
        self, kind: str, versions: str, default: Any, nullable: str, tag: int, ignorable: bool, element: str = ""
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = versions
        self.default = default
        self.nullable = nullable
        self.tag = tag
        self.ignorable = ignorable
        self.element = element


@lru_cache(maxsize=512)
def span(versions: str) -> range:
    """`"3+"` as a range of versions; open ends reach to Kafka's largest version number."""
    if versions == "none":
        return range(0)
    first, dash, last = versions.partition("-")
    if dash:
        return range(int(first), int(last) + 1)
    return range(int(first[:-1]), 1 << 15) if first[-1] == "+" else range(int(first), int(first) + 1)


def bool_(versions: str, *, default: bool = False, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("bool", versions, default, "none", tag, ignorable)


def int8(versions: str, *, default: int = 0, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("int8", versions, default, "none", tag, ignorable)


def int16(versions: str, *, default: int = 0, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("int16", versions, default, "none", tag, ignorable)


def uint16(versions: str, *, default: int = 0, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("uint16", versions, default, "none", tag, ignorable)


def int32(versions: str, *, default: int = 0, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("int32", versions, default, "none", tag, ignorable)


def uint32(versions: str, *, default: int = 0, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("uint32", versions, default, "none", tag, ignorable)


def int64(versions: str, *, default: int = 0, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("int64", versions, default, "none", tag, ignorable)


def float64(versions: str, *, default: float = 0.0, tag: int = -1, ignorable: bool = False) -> Any:
    return Field("float64", versions, default, "none", tag, ignorable)


def uuid(versions: str, *, tag: int = -1, ignorable: bool = False) -> Any:
    """16 raw bytes; all zero means none."""
    return Field("uuid", versions, ZERO_UUID, "none", tag, ignorable)


def string(
    versions: str, *, nullable: str = "none", default: str | None = "", tag: int = -1, ignorable: bool = False
) -> Any:
    return Field("string", versions, default, nullable, tag, ignorable)


def bytes_(
    versions: str, *, nullable: str = "none", default: bytes | None = b"", tag: int = -1, ignorable: bool = False
) -> Any:
    return Field("bytes", versions, default, nullable, tag, ignorable)


def records(versions: str, *, nullable: str = "none", ignorable: bool = False) -> Any:
    """Record batches: decoded as a view of the buffer, encoded as a chunk of their own (see `codec`)."""
    return Field("records", versions, None, nullable, -1, ignorable)


def array(
    element: str,
    versions: str,
    *,
    nullable: str = "none",
    default: tuple[()] | None = (),
    tag: int = -1,
    ignorable: bool = False,
) -> Any:
    """A list of `element`: a kind, or the name of a struct of the same module. The default is a fresh empty list
    or None."""
    return Field("array", versions, default, nullable, tag, ignorable, element)


def struct(
    element: str,
    versions: str,
    *,
    nullable: str = "none",
    default: tuple[()] | None = (),
    tag: int = -1,
    ignorable: bool = False,
) -> Any:
    """One struct of the same module. The default is a fresh struct, or None where it is tagged or says so."""
    return Field("struct", versions, None if tag >= 0 else default, nullable, tag, ignorable, element)
