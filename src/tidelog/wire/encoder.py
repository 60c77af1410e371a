"""Compiles an encoder for one message class and version: the mirror of `decoder`, straight-line Python source.

Neighbouring fields of fixed size are written by one `struct` call, whose last member is the length of what follows. The
pieces gather in `parts`; where records are left as a chunk of their own, what was gathered so far is joined and
both go to `chunks`. A field which the version lacks is refused unless it has its default or is ignorable, as in
Kafka.

A long reply can be encoded in steps: the elements of one of its lists by an encoder of their own
(`compile_element_encoder`), then the rest around them, where that list is a `Gathered` (`compile_encoder` with its
name).
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import pack
from typing import Any

from tidelog.errors import UsageError
from tidelog.wire.decoder import MAX_STRING
from tidelog.wire.field import FIXED, Field, span
from tidelog.wire.message import StructType, struct_named

OWN_CHUNK = 8192
"""Records in memory of at least this many bytes are not copied into the rest of the message."""


IN_MEMORY = (bytes, memoryview, bytearray)


class Gathered:
    """The elements of a list that are encoded already, some in each chunk."""

    __slots__ = ("chunks", "count", "size")

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.count = 0
        self.size = 0

    def __len__(self) -> int:
        return self.count

    def add(self, count: int, chunk: bytes) -> None:
        self.chunks.append(chunk)
        self.count += count
        self.size += len(chunk)


def compile_encoder(cls: StructType, version: int, gathered: str = "") -> Any:
    """A function (message, parts, chunks) -> None. `gathered` is the field whose list is a `Gathered`."""
    source = _Source(version, version in cls.SCHEMA.flexible, gathered)
    source.struct("m0", cls)
    return source.compiled()


def compile_element_encoder(cls: StructType, version: int, field: str) -> Any:
    """The same for one element of a list of structs that a message of this class has."""
    element = next(one.element for one in cls.SCHEMA.fields if one.name == field)
    source = _Source(version, version in cls.SCHEMA.flexible)
    source.struct("m0", struct_named(cls, element))
    return source.compiled()


class _Source:
    """Source text under construction. `run` holds format and expression of fixed-size writes not yet written out."""

    def __init__(self, version: int, flexible: bool, gathered: str = "") -> None:
        self.version = version
        self.flexible = flexible
        self.gathered = f"m0.{gathered}"
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "rest": rest_of_varint,
            "rest_of_string": rest_of_string,
            "size_of": size_of,
            "put_records": put_records,
            "put_gathered": put_gathered,
            "tag_bytes": tag_bytes,
            "unsupported": refuse_field,
            "fixed": fixed_array,
            "merge": merge_tags,
        }
        self.indent = 1
        self.run: list[tuple[str, str]] = []
        self.count = 0
        self.add = "add"

    def compiled(self) -> Any:
        self.flush()
        exec("def encode(m0, parts, chunks):\n add = parts.append\n" + "\n".join(self.lines), self.names)
        return self.names["encode"]

    def line(self, text: str) -> None:
        self.lines.append(" " * self.indent + text)

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def flush(self) -> None:
        """Writes out the pending fields as one call."""
        if not self.run:
            return
        layout = Layout(">" + "".join(code for code, _ in self.run))
        name = f"pack_{layout.format[1:].replace('?', 'o')}"
        self.names[name] = layout.pack
        self.line(f"{self.add}({name}({', '.join(value for _, value in self.run)}))")
        self.run.clear()

    def struct(self, source: str, cls: StructType) -> None:
        tagged = []
        for field in cls.SCHEMA.fields:
            attribute = f"{source}.{field.name}"
            if self.version not in span(field.versions):
                if not field.ignorable:
                    where = f"{cls.__name__}.{field.name}"
                    self.line(f"if {self.differs(attribute, field, cls)}: unsupported({where!r}, {self.version})")
            elif field.tag >= 0:
                tagged.append(field)
            else:
                self.value(attribute, field.kind, field, cls)
        if self.flexible:
            self.tags(source, cls, tagged)

    def differs(self, attribute: str, field: Field, cls: StructType) -> str:
        if field.default is None:
            if field.tag >= 0 and field.kind == "struct":
                return f"{attribute} is not None and {attribute} != {self.default_struct(field, cls)}"
            return f"{attribute} is not None"
        if field.default == ():
            return f"{attribute} != {'[]' if field.kind == 'array' else self.default_struct(field, cls)}"
        return f"{attribute} != {field.default!r}"

    def default_struct(self, field: Field, cls: StructType) -> str:
        name = f"default_{field.element}"
        self.names[name] = struct_named(cls, field.element)()
        return name

    def value(self, source: str, kind: str, field: Field, cls: StructType) -> None:
        nullable = kind == field.kind and self.version in span(field.nullable)
        if kind in FIXED:
            self.run.append((FIXED[kind], source))
        elif kind == "string":
            self.string(source, nullable)
        elif kind == "bytes":
            self.bytes(source, nullable)
        elif kind == "records":
            self.records(source, nullable)
        elif kind == "array":
            self.array(source, nullable, field, cls)
        else:
            self.inner(source, nullable, field, cls)

    def length(self, n: str, code: str, rest: str = "rest") -> None:
        """Writes the length in variable `n`, which is one more than it in flexible versions (0 is null there)."""
        if not self.flexible:
            self.run.append((code, n))
            self.flush()
            return
        self.run.append(("B", f"{n} if {n} < 128 else {n} & 127 | 128"))
        self.flush()
        self.line(f"if {n} > 127: {self.add}({rest}({n}))")

    def measured(self, nullable: bool, x: str, n: str, size: str) -> None:
        """Sets `n` to the length as it is written for `x`, which may be None where nullable."""
        value = f"{size} + 1" if self.flexible else size
        null = "0" if self.flexible else "-1"
        self.line(f"{n} = {null} if {x} is None else {value}" if nullable else f"{n} = {value}")

    def string(self, source: str, nullable: bool) -> None:
        x, n = self.fresh("x"), self.fresh("n")
        if nullable:
            self.line(f"{x} = {source}")
            self.line(f"if {x} is not None: {x} = {x}.encode()")
        else:
            self.line(f"{x} = {source}.encode()")
        self.measured(nullable, x, n, f"len({x})")
        self.length(n, "h", "rest_of_string")
        self.line(f"if {x}: {self.add}({x})")

    def bytes(self, source: str, nullable: bool) -> None:
        x, n = self.fresh("x"), self.fresh("n")
        self.line(f"{x} = {source}")
        self.measured(nullable, x, n, f"len({x})")
        self.length(n, "i")
        self.line(f"if {x}: {self.add}({x})")

    def records(self, source: str, nullable: bool) -> None:
        x, n = self.fresh("x"), self.fresh("n")
        self.line(f"{x} = {source}")
        self.measured(nullable, x, n, f"size_of({x})")
        self.length(n, "i")
        self.line(f"if {x} is not None: put_records({x}, parts, chunks)")

    def array(self, source: str, nullable: bool, field: Field, cls: StructType) -> None:
        x, n, item = self.fresh("x"), self.fresh("n"), self.fresh("m")
        self.line(f"{x} = {source}")
        self.measured(nullable, x, n, f"len({x})")
        self.length(n, "i")
        if source == self.gathered:
            self.line(f"put_gathered({x}, parts, chunks)")
            return
        if field.element in FIXED:
            self.line(f"if {x}: {self.add}(fixed({x}, {FIXED[field.element]!r}))")
            return
        self.line(f"for {item} in {x} or ():" if nullable else f"for {item} in {x}:")
        self.indent += 1
        before = len(self.lines)
        if field.element in ("string", "bytes"):
            self.value(item, field.element, field, cls)
        else:
            self.struct(item, struct_named(cls, field.element))
        self.flush()
        if len(self.lines) == before:
            self.line("pass")
        self.indent -= 1

    def inner(self, source: str, nullable: bool, field: Field, cls: StructType) -> None:
        x = self.fresh("m")
        self.line(f"{x} = {source}")
        if nullable:
            self.run.append(("b", f"-1 if {x} is None else 1"))
            self.flush()
            self.line(f"if {x} is not None:")
            self.indent += 1
        self.struct(x, struct_named(cls, field.element))
        if nullable:
            self.flush()
            self.indent -= 1

    def tags(self, source: str, cls: StructType, tagged: list[Field]) -> None:
        t, n = self.fresh("t"), self.fresh("n")
        if tagged:
            self.flush()
            self.line(f"{t} = None")
            for field in tagged:
                self.tag(source, t, field, cls)
            self.line(f"if {source}.unknown_tags: {t} = merge({t}, {source}.unknown_tags)")
        else:
            self.line(f"{t} = {source}.unknown_tags")
        self.line(f"{n} = len({t}) if {t} else 0")
        self.run.append(("B", f"{n} if {n} < 128 else {n} & 127 | 128"))
        self.flush()
        self.line(f"if {t}: {self.add}(tag_bytes({t}))")

    def tag(self, source: str, t: str, field: Field, cls: StructType) -> None:
        """Writes one tagged field to pieces of its own, and those to the dict `t`, if it differs from its default."""
        outer, pieces = self.add, self.fresh("w")
        self.line(f"if {self.differs(f'{source}.{field.name}', field, cls)}:")
        self.indent += 1
        self.line(f"if {t} is None: {t} = {{}}")
        self.line(f"{pieces} = []; add_{pieces} = {pieces}.append")
        self.add = f"add_{pieces}"
        self.value(f"{source}.{field.name}", field.kind, field, cls)
        self.flush()
        self.line(f"{t}[{field.tag}] = b''.join({pieces})")
        self.add = outer
        self.indent -= 1


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def rest_of_varint(value: int) -> bytes:
    """All but the first byte."""
    return varint(value >> 7)


def rest_of_string(value: int) -> bytes:
    if value > MAX_STRING + 1:
        raise UsageError(f"a string has {value - 1} bytes; the limit is {MAX_STRING}")
    return varint(value >> 7)


def size_of(records: Any) -> int:
    if isinstance(records, IN_MEMORY):
        return len(records)
    size: int = records.size
    return size


def put_records(records: Any, parts: list[Any], chunks: list[Any]) -> None:
    if isinstance(records, IN_MEMORY) and len(records) < OWN_CHUNK:
        parts.append(records)
        return
    chunks.append(b"".join(parts))
    parts.clear()
    chunks.append(records)


def put_gathered(gathered: Gathered, parts: list[Any], chunks: list[Any]) -> None:
    chunks.append(b"".join(parts))
    parts.clear()
    chunks.extend(gathered.chunks)


def fixed_array(values: list[Any], code: str) -> bytes:
    layout = code * len(values) if code == "16s" else f"{len(values)}{code}"
    return pack(">" + layout, *values)


def merge_tags(known: dict[int, bytes] | None, unknown: dict[int, bytes]) -> dict[int, bytes]:
    both = dict(unknown)
    both.update(known or {})
    return both


def tag_bytes(tags: dict[int, bytes]) -> bytes:
    """The tagged fields in order; the first byte of their count was written before."""
    out = [varint(len(tags) >> 7)] if len(tags) > 127 else []
    for tag in sorted(tags):
        out += (varint(tag), varint(len(tags[tag])), tags[tag])
    return b"".join(out)


def refuse_field(name: str, version: int) -> None:
    raise UsageError(f"{name} does not exist in version {version}; leave it at its default or use another version")
