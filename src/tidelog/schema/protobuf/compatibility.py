"""Whether data written with one .proto file can be read with another, as registries answer it.

Fields are paired by number, messages by name within their package. Kinds of scalars that share an encoding may change
into one another. Enums may change as they like: readers keep numbers that they do not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf import descriptor_pb2 as pb

from tidelog.schema.bounds import Budget
from tidelog.schema.protobuf.parse import ROOT, Model
from tidelog.schema.schema import Reason

Field = pb.FieldDescriptorProto

# Scalars by encoding: within one group data is read either way.
VARINT = "whole number"
GROUPS = {
    **dict.fromkeys(
        (Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_UINT32, Field.TYPE_UINT64, Field.TYPE_BOOL), VARINT
    ),
    Field.TYPE_ENUM: VARINT,
    **dict.fromkeys((Field.TYPE_SINT32, Field.TYPE_SINT64), "zigzag number"),
    **dict.fromkeys((Field.TYPE_STRING, Field.TYPE_BYTES), "string or bytes"),
    **dict.fromkeys((Field.TYPE_FIXED32, Field.TYPE_SFIXED32), "fixed 32 bits"),
    **dict.fromkeys((Field.TYPE_FIXED64, Field.TYPE_SFIXED64), "fixed 64 bits"),
    Field.TYPE_FLOAT: "float",
    Field.TYPE_DOUBLE: "double",
}
STRINGS = GROUPS[Field.TYPE_STRING]


class Defined(NamedTuple):
    message: pb.DescriptorProto
    file: str
    package: str


class Side:
    """One of the two schemas: its messages by full name, with a dot in front."""

    def __init__(self, model: Model) -> None:
        self.file = model.file
        self.messages: dict[str, Defined] = {}
        for file in (*model.imports, model.file):
            prefix = f".{file.package}" if file.package else ""
            self._collect(file, file.message_type, prefix)

    def _collect(self, file: pb.FileDescriptorProto, messages: object, prefix: str) -> None:
        for message in messages:  # type: ignore[attr-defined]
            name = f"{prefix}.{message.name}"
            self.messages[name] = Defined(message, file.name, file.package)
            self._collect(file, message.nested_type, name)

    def entry(self, field: Field) -> pb.DescriptorProto | None:
        """The key and value of a map, if the field is one."""
        found = self.messages.get(field.type_name)
        return found.message if found is not None and found.message.options.map_entry else None


def compatible(reader: Model, writer: Model) -> list[Reason]:
    return list(_Walk(Side(writer), Side(reader)).files())


class _Walk:
    def __init__(self, old: Side, new: Side) -> None:
        self._old = old
        self._new = new
        self._budget = Budget()
        self._seen: set[tuple[int, int]] = set()

    def files(self) -> Iterator[Reason]:
        old, new = self._old.file, self._new.file
        if old.package != new.package:
            yield Reason("PACKAGE_CHANGED", "#/", f"the package was {old.package!r} and is {new.package!r}")
        yield from self._messages(list(old.message_type), list(new.message_type), "#")

    def _messages(self, old: list[pb.DescriptorProto], new: list[pb.DescriptorProto], path: str) -> Iterator[Reason]:
        after = {message.name: message for message in new}
        for message in old:
            at = f"{path}/{message.name}"
            if message.name in after:
                yield from self._message(message, after[message.name], at)
            elif not message.options.map_entry:
                yield Reason("MESSAGE_REMOVED", at, f"the message {message.name!r} is gone")

    def _message(self, old: pb.DescriptorProto, new: pb.DescriptorProto, path: str) -> Iterator[Reason]:
        self._budget.spend()
        if (id(old), id(new)) in self._seen:
            return
        self._seen.add((id(old), id(new)))
        self._budget.spend(len(old.field) + len(new.field))
        before = {field.number: field for field in old.field}
        after = {field.number: field for field in new.field}
        yield from _oneofs(old, new, path)
        deleted = _deleted_oneofs(old, new)
        for number in sorted({*before, *after}):
            if number not in after:
                yield from _removed(old, before[number], deleted, path)
            elif number not in before:
                if after[number].label == Field.LABEL_REQUIRED:
                    sentence = f"the required field {after[number].name!r} has come"
                    yield Reason("REQUIRED_FIELD_ADDED", f"{path}/{number}", sentence)
            else:
                oneof = _oneof_of(new, after[number])
                at = f"{path}/{oneof}/{number}" if oneof else f"{path}/{number}"
                yield from self._field(before[number], after[number], at)
        yield from self._messages(list(old.nested_type), list(new.nested_type), path)

    def _field(self, old: Field, new: Field, path: str, *, labelled: bool = True) -> Iterator[Reason]:
        before, after = self._old.entry(old), self._new.entry(new)
        was, now = _kind(old, before), _kind(new, after)
        if was != now:
            yield Reason("FIELD_KIND_CHANGED", path, f"{new.name!r} was a {was} and is a {now}")
        elif before is not None and after is not None:
            for one, other in zip(before.field, after.field, strict=True):
                yield from self._field(one, other, path, labelled=False)
        elif was == "message":
            yield from self._named(old, new, path)
        elif GROUPS[old.type] != GROUPS[new.type]:
            sentence = f"{new.name!r} was a {GROUPS[old.type]} and is a {GROUPS[new.type]}"
            yield Reason("FIELD_SCALAR_KIND_CHANGED", path, sentence)
        elif labelled and GROUPS[old.type] != STRINGS:
            label, other_label = _label(old, self._old), _label(new, self._new)
            if label and other_label and label != other_label:
                sentence = f"{new.name!r} was {label} and is {other_label}"
                yield Reason("FIELD_NUMERIC_LABEL_CHANGED", path, sentence)

    def _named(self, old: Field, new: Field, path: str) -> Iterator[Reason]:
        before, after = self._old.messages[old.type_name], self._new.messages[new.type_name]
        one, other = _local(old.type_name, before.package), _local(new.type_name, after.package)
        if one != other:
            yield Reason("FIELD_NAMED_TYPE_CHANGED", path, f"{new.name!r} was a {one} and is a {other}")
        elif before.file != ROOT or after.file != ROOT:
            # Two of the same file are compared where they stand.
            reasons = list(self._message(before.message, after.message, f"#/{one.replace('.', '/')}"))
            yield from reasons
            if reasons:
                yield Reason("FIELD_NAMED_TYPE_CHANGED", path, f"the {one} of {new.name!r} has changed")


def _kind(field: Field, entry: pb.DescriptorProto | None) -> str:
    if entry is not None:
        return "map"
    return "message" if field.type in (Field.TYPE_MESSAGE, Field.TYPE_GROUP) else "scalar"


def _label(field: Field, side: Side) -> str | None:
    """None where none is written: a field of proto3 that is not said to be optional, a member of a oneof."""
    if field.label == Field.LABEL_REPEATED:
        return "repeated"
    if field.label == Field.LABEL_REQUIRED:
        return "required"
    in_oneof = field.HasField("oneof_index") and not field.proto3_optional
    implicit = side.file.syntax in ("proto3", "editions") and not field.proto3_optional
    return None if in_oneof or implicit else "optional"


def _local(full: str, package: str) -> str:
    return full.removeprefix(f".{package}." if package else ".")


def _oneof_of(message: pb.DescriptorProto, field: Field) -> str | None:
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return message.oneof_decl[field.oneof_index].name


def _removed(message: pb.DescriptorProto, field: Field, deleted: set[str], path: str) -> Iterator[Reason]:
    oneof = _oneof_of(message, field)
    if oneof is not None and oneof not in deleted:
        sentence = f"{field.name!r} is gone from the oneof {oneof!r}"
        yield Reason("ONEOF_FIELD_REMOVED", f"{path}/{oneof}/{field.number}", sentence)
    elif field.label == Field.LABEL_REQUIRED:
        yield Reason("REQUIRED_FIELD_REMOVED", f"{path}/{field.number}", f"the required field {field.name!r} is gone")


def _deleted_oneofs(old: pb.DescriptorProto, new: pb.DescriptorProto) -> set[str]:
    """Those that are gone together with all their members, which is not a loss that old readers would not expect."""
    numbers, kept = {field.number for field in new.field}, {oneof.name for oneof in new.oneof_decl}
    surviving = {_oneof_of(old, field) for field in old.field if field.number in numbers}
    return {oneof.name for oneof in old.oneof_decl} - kept - surviving


def _oneofs(old: pb.DescriptorProto, new: pb.DescriptorProto, path: str) -> Iterator[Reason]:
    """Fields that could be set together, and now cannot."""
    before = {field.number: _oneof_of(old, field) for field in old.field}
    members: dict[str, list[int]] = {}
    for field in new.field:
        oneof = _oneof_of(new, field)
        if oneof is not None and field.number in before:
            members.setdefault(oneof, []).append(field.number)
    for oneof, known in members.items():
        free = [number for number in known if before[number] is None]
        together = len({before[number] for number in known} - {None}) + len(free)
        if together > 1:
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(free) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            yield Reason(kind, f"{path}/{oneof}", f"fields that could be set together are in {oneof!r}")
