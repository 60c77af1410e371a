"""What every message and every struct inside one has in common: slots, a keyword constructor, equality and a repr.

A class body is a table of fields (see `field`); the metaclass turns it into a class with slots before it is made,
so that importing a message costs microseconds. The constructor is compiled when it is first called. The structs of
a message stand in its module and are found there by name. `unknown_tags` holds tagged fields that Kafka 4.3's
definitions do not know, by number, as raw bytes; they are written back as they came.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, dataclass_transform

from tidelog.wire.field import Field, span

REPR_LIMIT = 64
"""Longer byte strings are shown by their size."""

MISSING: Any = object()

if TYPE_CHECKING:

    class RecordsElsewhere(Protocol):
        """Records that lie in a file, say; whoever sends them does not have to read them."""

        @property
        def size(self) -> int: ...

    Records: TypeAlias = bytes | bytearray | memoryview | RecordsElsewhere


class Schema:
    """The table of one class, and its compiled codecs by version."""

    __slots__ = ("api_key", "decoders", "encoders", "fields", "flexible", "versions")

    def __init__(self, fields: list[Field], api_key: int, versions: str, flexible: str) -> None:
        self.fields = fields
        self.api_key = api_key
        self.versions = span(versions)
        self.flexible = span(flexible)
        self.decoders: dict[int, Any] = {}
        self.encoders: dict[Any, Any] = {}  # also those of parts, see `codec`


@dataclass_transform(kw_only_default=True)
class StructType(type):
    if TYPE_CHECKING:
        SCHEMA: Schema

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        body: dict[str, Any],
        *,
        api_key: int = -1,
        versions: str = "none",
        flexible: str = "none",
    ) -> StructType:
        fields = []
        for attribute, value in body.items():
            if type(value) is Field:
                value.name = attribute
                fields.append(value)
        for field in fields:
            del body[field.name]
        body.setdefault("__slots__", tuple(field.name for field in fields))
        cls = type.__new__(mcs, name, bases, body)
        cls.SCHEMA = Schema(fields, api_key, versions, flexible)
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **_: object) -> None:
        type.__init__(cls, name, bases, body)


class Struct(metaclass=StructType):
    if TYPE_CHECKING:
        unknown_tags: dict[int, bytes] | None = None
    else:
        __slots__ = ("unknown_tags",)

    def __init__(self, **values: Any) -> None:
        constructor = compile_constructor(type(self))
        type.__setattr__(type(self), "__init__", constructor)
        constructor(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tags == other.unknown_tags and all(
            getattr(self, field.name) == getattr(other, field.name) for field in type(self).SCHEMA.fields
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = [f"{field.name}={_show(getattr(self, field.name))}" for field in type(self).SCHEMA.fields]
        if self.unknown_tags:
            parts.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


def _show(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return repr(bytes(value)) if len(value) <= REPR_LIMIT else f"<{len(value)} bytes>"
    return repr(value)


def struct_named(cls: StructType, name: str) -> StructType:
    struct: StructType = getattr(sys.modules[cls.__module__], name)
    return struct


def compile_constructor(cls: StructType) -> Any:
    """`__init__` as straight-line source: a keyword for each field; lists and structs are made anew for each
    instance."""
    names: dict[str, Any] = {"MISSING": MISSING}
    parameters, lines = [], []
    for field in cls.SCHEMA.fields:
        name = field.name
        fresh = field.default == ()
        parameters.append(f"{name}=MISSING" if fresh else f"{name}={field.default!r}")
        if not fresh:
            lines.append(f" self.{name} = {name}")
        elif field.kind == "array":
            lines.append(f" self.{name} = [] if {name} is MISSING else {name}")
        else:
            names[field.element] = struct_named(cls, field.element)
            lines.append(f" self.{name} = {field.element}() if {name} is MISSING else {name}")
    parameters.append("unknown_tags=None")
    lines.append(" self.unknown_tags = unknown_tags")
    exec(f"def __init__(self, *, {', '.join(parameters)}):\n" + "\n".join(lines), names)
    return names["__init__"]
