"""Compiles a decoder for one message class and version: straight-line Python source, no table looked at while it runs.

What keeps it fast: neighbouring fields of fixed size are read by one `struct` call, and the length of what follows (a
string, an array, the tagged fields) is the last member of that call; a varint's first byte is read so, and only a
longer varint takes a slow path. What keeps it safe:

- The position never decreases, and every read beyond the end of the buffer raises (`struct.error`, `IndexError`),
  or, for slices, moves the position beyond the end, where the next read or the check at the very end raises.
- An array is begun only when as many bytes as elements remain, so nothing is allocated that no bytes came for.
- A few bytes of an element, or of a tagged field, become hundreds in memory. So a request has `MAX_ELEMENTS` of both
  together, and a struct `MAX_TAGS` fields. Replies are decoded by clients, who chose whom to ask: those have no limit.
- Nesting is the schema's: there is no recursion over the bytes.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import calcsize, unpack_from
from struct import error as LayoutError
from typing import Any

from tidelog.errors import MalformedMessage
from tidelog.wire.field import FIXED, Field, span
from tidelog.wire.message import StructType, struct_named

MAX_STRING = 0x7FFF
"""Kafka's limit for a string's bytes, in every version."""

MAX_ELEMENTS = 100_000
"""Elements of all arrays of one request, and its tagged fields; a broker has far fewer partitions."""

MAX_TAGS = 1000
"""Tagged fields of one struct; Kafka's own have a handful."""

VARINT_BITS = 35
"""An unsigned varint has five bytes at most."""


def compile_decoder(cls: StructType, version: int) -> Any:
    """A function (view, position) -> (message, end) that raises nothing but MalformedMessage."""
    source = _Source(cls, version)
    source.struct("m0", cls)
    source.flush()
    source.line("if p > end: past_end(p, end)")
    source.line("return m0, p")
    left = f" left = {MAX_ELEMENTS}\n" if source.counted else ""
    head = f"def decode(b, p):\n end = len(b)\n{left} try:\n"
    tail = f"\n except BROKEN as error: broken({cls.__name__!r}, {version}, error)"
    exec(head + "\n".join(source.lines) + tail, source.names)
    return source.names["decode"]


class _Source:
    """Source text under construction. `run` holds the targets of fixed-size reads that are not yet written out."""

    def __init__(self, cls: StructType, version: int) -> None:
        self.version = version
        self.flexible = version in cls.SCHEMA.flexible
        self.counted = cls.__name__.endswith("Request")
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "new": object.__new__,
            "more": more_varint,
            "null": refuse_null,
            "too_long": refuse_length,
            "too_many": refuse_count,
            "too_many_tags": refuse_tags,
            "tag_head": read_tag_head,
            "misfit": refuse_tag_size,
            "unknown_tags": read_unknown_tags,
            "fixed": read_fixed_array,
            "past_end": refuse_end,
            "broken": refuse,
            "BROKEN": (LayoutError, IndexError, UnicodeDecodeError),
        }
        self.indent = 2
        self.run: list[tuple[str, str]] = []
        self.count = 0

    def line(self, text: str) -> None:
        self.lines.append(" " * self.indent + text)

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def flush(self) -> None:
        """Writes out the pending reads as one call."""
        if not self.run:
            return
        layout = Layout(">" + "".join(code for _, code in self.run))
        targets = ", ".join(target for target, _ in self.run)
        if layout.format == ">B":
            self.line(f"{targets} = b[p]; p += 1")
        else:
            name = f"read_{layout.format[1:].replace('?', 'o')}"
            self.names[name] = layout.unpack_from
            self.line(f"{targets}{',' if len(self.run) == 1 else ''} = {name}(b, p); p += {layout.size}")
        self.run.clear()

    def struct(self, target: str, cls: StructType) -> None:
        self.names[cls.__name__] = cls
        self.line(f"{target} = new({cls.__name__})")
        tagged = []
        for field in cls.SCHEMA.fields:
            attribute = f"{target}.{field.name}"
            if self.version not in span(field.versions):
                self.line(f"{attribute} = {self.default(cls, field)}")
            elif field.tag >= 0:
                tagged.append(field)
                self.line(f"{attribute} = {self.default(cls, field)}")
            else:
                self.value(attribute, field.kind, field, cls)
        self.line(f"{target}.unknown_tags = None")
        if self.flexible:
            self.tags(target, cls, tagged)

    def default(self, cls: StructType, field: Field) -> str:
        if field.default != ():
            return repr(field.default)
        if field.kind == "array":
            return "[]"
        self.names[field.element] = struct_named(cls, field.element)
        return f"{field.element}()"

    def value(self, target: str, kind: str, field: Field, cls: StructType) -> None:
        nullable = kind == field.kind and self.version in span(field.nullable)
        if kind in FIXED:
            self.run.append((target, FIXED[kind]))
        elif kind == "string":
            self.string(target, nullable, field.name)
        elif kind in ("bytes", "records"):
            self.bytes(target, nullable, field.name, "" if kind == "records" else ".tobytes()")
        elif kind == "array":
            self.array(target, nullable, field, cls)
        else:
            self.inner(target, nullable, field, cls)

    def length(self, code: str, limit: str = "") -> str:
        """Reads a length: what `code` says, or one more than it as a varint. Returns the variable's name."""
        n = self.fresh("n")
        self.run.append((n, "B" if self.flexible else code))
        self.flush()
        if self.flexible:
            self.line(f"if {n} > 127: {n}, p = more(b, p, {n}{limit})")
        return n

    def absent(self, n: str) -> str:
        return f"{n} == 0" if self.flexible else f"{n} < 0"

    def string(self, target: str, nullable: bool, name: str) -> None:
        n = self.length("h", f", {MAX_STRING + 1}")
        self.slice(target, n, nullable, name, ".tobytes().decode()")

    def bytes(self, target: str, nullable: bool, name: str, convert: str) -> None:
        self.slice(target, self.length("i"), nullable, name, convert)

    def slice(self, target: str, n: str, nullable: bool, name: str, convert: str) -> None:
        end = f"p + {n} - 1" if self.flexible else f"p + {n}"
        if nullable:
            self.line(f"if {self.absent(n)}: {target} = None")
            self.line(f"else: e = {end}; {target} = b[p:e]{convert}; p = e")
        else:
            self.line(f"if {self.absent(n)}: null({name!r})")
            self.line(f"e = {end}; {target} = b[p:e]{convert}; p = e")

    def array(self, target: str, nullable: bool, field: Field, cls: StructType) -> None:
        n = self.length("i")
        if nullable:
            self.line(f"if {self.absent(n)}: {target} = None")
            self.line("else:")
            self.indent += 1
        else:
            self.line(f"if {self.absent(n)}: null({field.name!r})")
        if self.flexible:
            self.line(f"{n} -= 1")
        self.line(f"if {n} > end - p: too_long({field.name!r}, {n}, end - p)")
        if field.element in FIXED:
            code = FIXED[field.element]
            self.charge(n, field.name)
            self.line(f"{target} = fixed(b, p, {n}, {code!r}); p += {n} * {calcsize('>' + code)}")
        else:
            self.elements(target, n, field, cls)
        if nullable:
            self.indent -= 1

    def elements(self, target: str, n: str, field: Field, cls: StructType) -> None:
        items, item = self.fresh("items"), self.fresh("m")
        self.charge(n, field.name)
        self.line(f"{target} = {items} = []")
        self.line(f"for _ in range({n}):")
        self.indent += 1
        if field.element in ("string", "bytes"):
            self.value(item, field.element, field, cls)
        else:
            self.struct(item, struct_named(cls, field.element))
        self.flush()
        self.line(f"{items}.append({item})")
        self.indent -= 1

    def charge(self, n: str, name: str) -> None:
        if self.counted:
            self.line(f"left -= {n}")
            self.line(f"if left < 0: too_many({name!r})")

    def inner(self, target: str, nullable: bool, field: Field, cls: StructType) -> None:
        item = self.fresh("m")
        if nullable:
            n = self.fresh("n")
            self.run.append((n, "b"))
            self.flush()
            self.line(f"if {n} < 0: {target} = None")
            self.line("else:")
            self.indent += 1
        self.struct(item, struct_named(cls, field.element))
        if nullable:
            self.flush()
        self.line(f"{target} = {item}")
        if nullable:
            self.indent -= 1

    def tags(self, target: str, cls: StructType, tagged: list[Field]) -> None:
        t = self.fresh("t")
        self.run.append((t, "B"))
        self.flush()
        self.line(f"if {t}:")
        self.indent += 1
        self.line(f"if {t} > 127: {t}, p = more(b, p, {t})")
        self.charge(t, "tagged fields")
        if not tagged:
            self.line(f"{target}.unknown_tags, p = unknown_tags(b, p, {t}, end)")
            self.indent -= 1
            return
        self.line(f"if {t} > {MAX_TAGS}: too_many_tags({t})")
        self.line(f"for _ in range({t}):")
        self.indent += 1
        z = self.fresh("z")
        self.line(f"k, {z}, p = tag_head(b, p, end)")
        for position, field in enumerate(tagged):
            self.line(f"{'elif' if position else 'if'} k == {field.tag}:")
            self.indent += 1
            self.value(f"{target}.{field.name}", field.kind, field, cls)
            self.flush()
            self.indent -= 1
        self.line("else:")
        self.line(f" if {target}.unknown_tags is None: {target}.unknown_tags = {{}}")
        self.line(f" {target}.unknown_tags[k] = b[p:{z}].tobytes(); p = {z}")
        self.line(f"if p != {z}: misfit(k, p, {z})")
        self.indent -= 2


def more_varint(view: memoryview, position: int, first: int, limit: int = 0xFFFFFFFF) -> tuple[int, int]:
    """The rest of a varint whose first byte was read and says that there is more."""
    value = first & 127
    for shift in range(7, VARINT_BITS, 7):
        byte = view[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > limit:
                raise MalformedMessage(f"a length of {value - 1} is beyond the limit of {limit - 1}")
            return value, position
    raise MalformedMessage("a varint has more than 5 bytes")


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    first = view[position]
    return (first, position + 1) if first < 128 else more_varint(view, position + 1, first)


def read_tag_head(view: memoryview, position: int, end: int) -> tuple[int, int, int]:
    """A tagged field's number, where it ends, and where its value begins."""
    tag, position = read_varint(view, position)
    size, position = read_varint(view, position)
    if size > end - position:
        raise MalformedMessage(f"tagged field {tag} has {size} bytes, but {end - position} remain")
    return tag, position + size, position


def read_unknown_tags(view: memoryview, position: int, count: int, end: int) -> tuple[dict[int, bytes] | None, int]:
    """Tagged fields that we do not know; None for none."""
    if count > MAX_TAGS:
        refuse_tags(count)
    tags = {}
    for _ in range(count):
        tag, after, position = read_tag_head(view, position, end)
        tags[tag] = view[position:after].tobytes()
        position = after
    return tags or None, position


def read_fixed_array(view: memoryview, position: int, count: int, code: str) -> list[Any]:
    layout = code * count if code == "16s" else f"{count}{code}"
    return list(unpack_from(">" + layout, view, position))


def refuse(name: str, version: int, error: Exception) -> None:
    raise MalformedMessage(f"{name} version {version}: {error}") from error


def refuse_null(name: str) -> None:
    raise MalformedMessage(f"{name} is null, which it cannot be")


def refuse_length(name: str, count: int, remaining: int) -> None:
    raise MalformedMessage(f"{name} has {count} elements, but {remaining} bytes remain")


def refuse_count(name: str) -> None:
    raise MalformedMessage(f"{name} and the arrays before it have more than {MAX_ELEMENTS} elements")


def refuse_tags(count: int) -> None:
    raise MalformedMessage(f"a struct has {count} tagged fields, more than {MAX_TAGS}")


def refuse_tag_size(tag: int, position: int, after: int) -> None:
    raise MalformedMessage(f"tagged field {tag} should end at {after}, but ends at {position}")


def refuse_end(position: int, end: int) -> None:
    raise MalformedMessage(f"the message ends at {position}, but its bytes end at {end}")
