"""From a writer's schema and a reader's to the program that fills the reader's columns: Avro's schema resolution.

Fields are paired by name and by the reader's aliases; those that only the writer has are skipped, those that only the
reader has get their default. A part of the writer's schema that the reader cannot read is not an error by itself: rows
that have it are. Times are counted in the writer's unit where it says one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import InvalidSchema
from tidelog.schema.avro.compatibility import PROMOTED, compatible
from tidelog.schema.avro.model import (
    MISSING,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Model,
    Primitive,
    RecordType,
    Type,
    Union,
    kind_of,
)
from tidelog.schema.decoding.avro_columns import branches, decimal_of, logical
from tidelog.schema.decoding.avro_defaults import encode
from tidelog.schema.decoding.column import Column, Tree

if TYPE_CHECKING:
    from tidelog.schema.decoding._decode import Action

# In the order of the enum in avro.h.
OPS = (
    *("null", "boolean", "int", "long", "times", "divide", "to_float", "to_double", "float", "float_to_double"),
    *("double", "bytes", "string", "fixed", "uuid", "bytes_decimal", "fixed_decimal", "enum", "array", "map", "union"),
    *("record", "default", "member", "refused"),
)
NUMBER = {name: number for number, name in enumerate(OPS)}

# Nanoseconds in one of it. A column of times counts microseconds.
UNITS = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}
TIMES = ("timestamp", "timestamp_ntz")

# (of the writer, of the column): what to do
PLAIN = {
    ("boolean", "boolean"): "boolean",
    ("int", "int"): "int",
    ("int", "date"): "int",
    ("int", "long"): "long",
    ("long", "long"): "long",
    ("int", "float"): "to_float",
    ("long", "float"): "to_float",
    ("float", "float"): "float",
    ("int", "double"): "to_double",
    ("long", "double"): "to_double",
    ("float", "double"): "float_to_double",
    ("double", "double"): "double",
    ("string", "string"): "string",
    ("bytes", "string"): "string",
    ("string", "binary"): "bytes",
    ("bytes", "binary"): "bytes",
    ("string", "decimal"): "bytes_decimal",
    ("bytes", "decimal"): "bytes_decimal",
}
SKIPPED = {"null": "null", "boolean": "boolean", "int": "int", "long": "long", "float": "float", "double": "double"}
SKIPPED |= {"string": "bytes", "bytes": "bytes"}


class Made(NamedTuple):
    actions: list[Action]
    reasons: list[str]


def avro_actions(reader: Model, writer: Model, tree: Tree) -> Made:
    """InvalidSchema when a default is not one of its type."""
    resolver = _Resolver(tree)
    resolver.value(reader.root, tree.root, writer.root)
    made = [one for one in resolver.actions if one is not None]
    assert len(made) == len(resolver.actions)
    return Made(made, resolver.reasons)


class _Resolver:
    def __init__(self, tree: Tree) -> None:
        self.actions: list[Action | None] = []
        self.reasons: list[str] = []
        self._tree = tree
        self._skipped: dict[int, int] = {}

    def _place(self) -> int:
        """A parent comes before its children: the first action is the root's."""
        self.actions.append(None)
        return len(self.actions) - 1

    def _put(
        self,
        at: int,
        op: str,
        column: Column | None,
        children: tuple[int, ...] = (),
        *,
        a: int = 0,
        b: int = 0,
        texts: tuple[bytes, ...] = (),
    ) -> int:
        self.actions[at] = (NUMBER[op], 0, a, b, self._tree.number(column), children, texts)
        return at

    def _refuse(self, at: int, column: Column, reason: str) -> int:
        if reason not in self.reasons:
            self.reasons.append(reason)
        return self._put(at, "refused", column, a=self.reasons.index(reason))

    def value(self, reader: Type, column: Column, writer: Type) -> int:
        at = self._place()
        if isinstance(writer, Union):
            children = tuple(self.value(reader, column, branch) for branch in writer.branches)
            return self._put(at, "union", column, children)
        if isinstance(reader, Union):
            return self._branch(at, reader, column, writer)
        if isinstance(reader, RecordType) and isinstance(writer, RecordType) and _same_name(reader, writer):
            return self._record(at, reader, column, writer)
        if isinstance(reader, Array) and isinstance(writer, Array):
            return self._put(at, "array", column, (self.value(reader.items, column.children[0], writer.items),))
        if isinstance(reader, Map) and isinstance(writer, Map):
            value = column.children[0].children[1]
            return self._put(at, "map", column, (self.value(reader.values, value, writer.values),))
        if isinstance(reader, Enum) and isinstance(writer, Enum) and _same_name(reader, writer):
            return self._enum(at, reader, column, writer)
        if isinstance(reader, Fixed) and isinstance(writer, Fixed) and _same_name(reader, writer):
            return self._fixed(at, reader, column, writer)
        return self._primitive(at, reader, column, writer)

    def _branch(self, at: int, reader: Union, column: Column, writer: Type) -> int:
        if kind_of(writer) == "null" and any(kind_of(branch) == "null" for branch in reader.branches):
            return self._put(at, "null", column)
        others = branches(reader)
        fitting = [branch for branch in others if not compatible(_model(branch), _model(writer))]
        if not fitting:
            return self._refuse(at, column, f"the reader's union has no branch that reads {_shown(writer)}")
        chosen = next((branch for branch in fitting if _shown(branch) == _shown(writer)), fitting[0])
        if len(others) == 1 or column.kind != "struct":
            return self._same(at, self.value(chosen, column, writer))
        index = others.index(chosen)
        inner = self.value(chosen, column.children[index], writer)
        return self._put(at, "member", column, (inner,), a=index)

    def _same(self, at: int, inner: int) -> int:
        """What was to stand here is what stands there."""
        self.actions[at] = self.actions[inner]
        return at

    def _record(self, at: int, reader: RecordType, column: Column, writer: RecordType) -> int:
        columns = dict(zip((field.name for field in reader.fields), column.children, strict=True))
        sources = _sources(reader, writer)
        children = []
        for field in writer.fields:
            wanted = sources.get(field.name)
            if wanted is None:
                children.append(self._skip(field.type))
            else:
                children.append(self.value(wanted.type, columns[wanted.name], field.type))
        given = {wanted.name for wanted in sources.values()}
        for wanted in reader.fields:
            if wanted.name not in given:
                if wanted.default is MISSING:
                    reason = f"the field {wanted.name!r} has no default, and the writer has no such field"
                    return self._refuse(at, column, reason)
                children.append(self._default(wanted, columns[wanted.name]))
        return self._put(at, "record", column, tuple(children))

    def _default(self, field: Field, column: Column) -> int:
        at = self._place()
        inner = self.value(field.type, column, field.type)
        try:
            encoded = encode(field.type, field.default)
        except ValueError as error:
            raise InvalidSchema(f"the default of {field.name!r} is not of its type: {error}") from None
        return self._put(at, "default", column, (inner,), texts=(encoded,))

    def _enum(self, at: int, reader: Enum, column: Column, writer: Enum) -> int:
        """A symbol that the reader lacks, and has no default for, is left empty: rows with it fail."""
        known = set(reader.symbols)
        texts = tuple((one if one in known else reader.default or "").encode() for one in writer.symbols)
        return self._put(at, "enum", column, texts=texts)

    def _fixed(self, at: int, reader: Fixed, column: Column, writer: Fixed) -> int:
        if reader.size != writer.size:
            return self._refuse(at, column, f"the reader has {reader.size} bytes, the writer {writer.size}")
        if column.kind == "decimal":
            return self._decimal(at, "fixed_decimal", column, writer)
        return self._put(at, "uuid" if column.kind == "string" else "fixed", column, a=reader.size)

    def _decimal(self, at: int, op: str, column: Column, writer: Type) -> int:
        written = decimal_of(writer) if isinstance(writer, Primitive | Fixed) else None
        if written is not None and written[1] != column.scale:
            return self._refuse(at, column, f"the writer's decimal has scale {written[1]}, not {column.scale}")
        size = writer.size if isinstance(writer, Fixed) else 0
        return self._put(at, op, column, a=size, b=column.precision)

    def _primitive(self, at: int, reader: Type, column: Column, writer: Type) -> int:
        to, given = kind_of(reader), kind_of(writer)
        if given != to and given not in PROMOTED.get(to, ()):
            return self._refuse(at, column, f"a reader of {_shown(reader)} cannot read {_shown(writer)}")
        if to in ("record", "enum", "fixed"):
            return self._refuse(at, column, f"a reader of {_shown(reader)} cannot read {_shown(writer)}")
        if column.kind in TIMES or (to == "long" and column.kind == "long" and _unit(reader)):
            return self._time(at, reader, column, writer)
        op = PLAIN[given, column.kind]
        return self._decimal(at, op, column, writer) if op == "bytes_decimal" else self._put(at, op, column)

    def _time(self, at: int, reader: Type, column: Column, writer: Type) -> int:
        own = _unit(reader) or 1
        kept = UNITS["micros"] if column.kind in TIMES else own
        written = _unit(writer) or own
        if written == kept:
            return self._put(at, "long", column)
        if written > kept:
            return self._put(at, "times", column, a=written // kept)
        return self._put(at, "divide", column, a=kept // written)

    def _skip(self, writer: Type) -> int:
        """A record that contains itself is skipped by one action, which refers to itself."""
        if id(writer) in self._skipped:
            return self._skipped[id(writer)]
        at = self._skipped[id(writer)] = self._place()
        if isinstance(writer, Union):
            return self._put(at, "union", None, tuple(self._skip(branch) for branch in writer.branches))
        if isinstance(writer, RecordType):
            return self._put(at, "record", None, tuple(self._skip(field.type) for field in writer.fields))
        if isinstance(writer, Array):
            return self._put(at, "array", None, (self._skip(writer.items),))
        if isinstance(writer, Map):
            return self._put(at, "map", None, (self._skip(writer.values),))
        if isinstance(writer, Enum):
            return self._put(at, "enum", None, texts=tuple(symbol.encode() for symbol in writer.symbols))
        if isinstance(writer, Fixed):
            return self._put(at, "fixed", None, a=writer.size)
        return self._put(at, SKIPPED[kind_of(writer)], None)


def _model(one: Type) -> Model:
    return Model(one, frozenset())


def _same_name(reader: RecordType | Enum | Fixed, writer: RecordType | Enum | Fixed) -> bool:
    return reader.name.simple == writer.name.simple or writer.name in reader.aliases


def _sources(reader: RecordType, writer: RecordType) -> dict[str, Field]:
    """By the writer's name the reader's field that it goes to."""
    names = {field.name for field in writer.fields}
    found: dict[str, Field] = {}
    for field in reader.fields:
        source = next((name for name in (field.name, *field.aliases) if name in names), None)
        if source is not None and source not in found:
            found[source] = field
    return found


def _shown(one: Type) -> str:
    return one.name.full if isinstance(one, RecordType | Enum | Fixed) else kind_of(one)


def _unit(one: Type) -> int | None:
    """Of a time, in nanoseconds."""
    said = logical(one) if kind_of(one) == "long" else None
    if said is None or not said.removeprefix("local-").startswith("timestamp-"):
        return None
    return UNITS.get(said.rpartition("-")[2])
