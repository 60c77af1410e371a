"""A Protobuf message's columns, and the program that fills them from the wire.

    uint32, fixed32        long; uint64, fixed64: decimal(20, 0)
    enum                   string: the name, or the number where it has none
    message                struct; a group is refused
    repeated, map          list, map; never null
    Timestamp, Duration    timestamp, interval (google.protobuf)
    Int64Value and so on   what they wrap

A field that was not set is null where Protobuf can tell (optional, oneof, messages, proto2), else what its type begins
with. Fields are known by number: data of an older or newer message is read as Protobuf has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import InvalidSchema
from tidelog.schema.decoding.column import Column, Tree, map_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from tidelog.schema.decoding._decode import Action
    from tidelog.schema.protobuf.parse import Model

# In the order of the enum in protobuf.h, each with its column.
OPS = {
    "int32": "int",
    "int64": "long",
    "uint32": "long",
    "uint64": "decimal",
    "sint32": "int",
    "sint64": "long",
    "fixed32": "long",
    "fixed64": "decimal",
    "sfixed32": "int",
    "sfixed64": "long",
    "bool": "boolean",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
    "enum": "string",
    "message": "struct",
    "timestamp": "timestamp",
    "duration": "interval",
    "wrapper": "",
}
NUMBER = {name: number for number, name in enumerate(OPS)}
UINT64_DIGITS = 20
REPEATED, PRESENCE, MAP = 1, 2, 4
NO_ONEOF = -1

TIMES = {"google.protobuf.Timestamp": "timestamp", "google.protobuf.Duration": "duration"}
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class Step(NamedTuple):
    """One action before columns have numbers."""

    op: str
    flags: int
    number: int
    oneof: int
    column: Column
    fields: tuple[Step, ...] = ()
    texts: tuple[bytes, ...] = ()


def find_message(model: Model, name: str | None) -> Descriptor:
    """By its name, with the package in front or not; the first of the file where none is named."""
    pool = _pool(model)
    package = f"{model.file.package}." if model.file.package else ""
    if name is None:
        if not model.file.message_type:
            raise InvalidSchema("the Protobuf schema has no message; a value is one")
        name = model.file.message_type[0].name
    for full in (name, f"{package}{name}"):
        try:
            return pool.FindMessageTypeByName(full)  # type: ignore[no-any-return]
        except KeyError:
            continue
    known = ", ".join(message.name for message in model.file.message_type)
    raise InvalidSchema(f"message {name!r} does not exist in the Protobuf schema; it has {known[:200]}")


def name_at(model: Model, place: bytes) -> str | None:
    """The full name of the message at a place that a frame gives, or None."""
    numbers = _numbers(place)
    messages: Any = model.file.message_type
    names = [model.file.package] if model.file.package else []
    for number in numbers[1:] or [0]:
        if number >= len(messages):
            return None
        names.append(messages[number].name)
        messages = messages[number].nested_type
    return ".".join(names)


def _numbers(place: bytes) -> list[int]:
    made, value, shift = [], 0, 0
    for byte in place:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            made.append(value >> 1)
            value, shift = 0, 0
    return made


def protobuf_steps(message: Descriptor, name: str) -> Step:
    return _message(message, name, 0, 0, NO_ONEOF, ())


def protobuf_actions(root: Step, tree: Tree) -> list[Action]:
    actions: list[Any] = []

    def add(step: Step) -> int:
        at = len(actions)
        actions.append(None)
        children = tuple(map(add, step.fields))
        actions[at] = (
            *(NUMBER[step.op], step.flags, step.number, step.oneof, tree.number(step.column)),
            children,
            step.texts,
        )
        return at

    add(root)
    return actions


def _pool(model: Model) -> Any:
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    added = set()
    for file in (*model.imports, model.file):
        if file.name not in added:
            added.add(file.name)
            pool.Add(file)
    return pool


def _message(
    message: Descriptor, name: str, flags: int, number: int, oneof: int, inside: tuple[str, ...], list_name: str = ""
) -> Step:
    if message.full_name in inside:
        raise InvalidSchema(f"the message {message.full_name!r} contains itself at {name!r}; a column cannot")
    if not message.fields:
        raise InvalidSchema(f"the message {message.full_name!r} at {name!r} has no fields; a column needs some")
    fields = tuple(_field(field, (*inside, message.full_name)) for field in message.fields)
    column = Column(name, "struct", tuple(step.column for step in fields))
    if list_name:
        column = Column(list_name, "list", (column,))
    return Step("message", flags, number, oneof, column, fields)


def _field(field: FieldDescriptor, inside: tuple[str, ...]) -> Step:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map(field, inside)
    flags = REPEATED if field.is_repeated else PRESENCE if field.has_presence else 0
    oneof = NO_ONEOF if field.containing_oneof is None else field.containing_oneof.index
    return _value(field, flags, oneof, inside)


def _map(field: FieldDescriptor, inside: tuple[str, ...]) -> Step:
    entry = _message_of(field)
    key, value = (_value(entry.fields_by_number[number], 0, NO_ONEOF, inside) for number in (1, 2))
    column = map_of(field.name, key.column, value.column)
    return Step("message", REPEATED | MAP, field.number, NO_ONEOF, column, (key, value))


def _value(field: FieldDescriptor, flags: int, oneof: int, inside: tuple[str, ...]) -> Step:
    op = _op(field)
    listed = field.name if flags & REPEATED else ""
    name = "element" if listed else field.name
    if op == "message":
        return _message(_message_of(field), name, flags, field.number, oneof, inside, listed)
    fields: tuple[Step, ...] = ()
    if op == "wrapper":
        fields = (_value(_message_of(field).fields_by_number[1], 0, NO_ONEOF, inside),)
        column = Column(name, fields[0].column.kind, (), fields[0].column.precision)
        fields = (fields[0]._replace(column=column),)
    else:
        column = Column(name, OPS[op], (), UINT64_DIGITS if OPS[op] == "decimal" else 0)
    texts: tuple[bytes, ...] = ()
    if field.enum_type is not None:
        texts = tuple(
            value.number.to_bytes(4, "little", signed=True) + value.name.encode() for value in field.enum_type.values
        )
    if listed:
        column = Column(listed, "list", (column,))
        fields = tuple(step._replace(column=column.children[0]) for step in fields)
    return Step(op, flags, field.number, oneof, column, fields, texts)


def _message_of(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None
    return field.message_type


def _op(field: FieldDescriptor) -> str:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    op = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()  # type: ignore[arg-type]
    if op == "group":
        raise InvalidSchema(f"the field {field.full_name!r} is a group, which is not read; make it a message")
    if op != "message":
        return op
    name = _message_of(field).full_name
    return "wrapper" if name in WRAPPERS else TIMES.get(name, "message")
