"""The canonical text of a .proto file: two spaces, no comments, everything in the order of the descriptor.

Some things are not written: groups, options of which only the number is known. The caller reads the text back, so that
what is left out here does not get lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor import FieldDescriptor

from tidelog.schema.protobuf.literals import write_string

Field = pb.FieldDescriptorProto
NUMBER_MAX = (1 << 29) - 1
EDITION = {pb.EDITION_2023: "2023", pb.EDITION_2024: "2024"}


def write(file: pb.FileDescriptorProto, *, short: bool) -> str:
    """`short` leaves the package and the dot in front out of names: right, unless something nearer has that name."""
    return "\n".join(_Writer(file, short).lines()) + "\n"


class _Writer:
    def __init__(self, file: pb.FileDescriptorProto, short: bool) -> None:
        self._file = file
        self._prefix = f".{file.package}." if file.package else "."
        self._short = short
        self._proto2 = file.syntax in ("", "proto2")

    def lines(self) -> Iterator[str]:
        file = self._file
        if file.syntax == "editions":
            yield f'edition = "{EDITION.get(file.edition, "")}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        if file.dependency:
            yield ""
        for index, name in enumerate(file.dependency):
            how = "public " if index in file.public_dependency else "weak " if index in file.weak_dependency else ""
            yield f"import {how}{write_string(name.encode())};"
        options = list(_options(file.options))
        if options:
            yield ""
        yield from (f"option {option};" for option in options)
        yield from self._types(file.message_type, file.enum_type, file.extension, "", self._prefix)
        for service in file.service:
            yield ""
            yield from self._service(service)

    def _types(self, messages: Any, enums: Any, extensions: Any, indent: str, scope: str) -> Iterator[str]:
        blank = None if indent else ""
        for message in messages:
            if not message.options.map_entry:
                yield from () if blank is None else (blank,)
                yield from self._message(message, indent, scope)
        for enum in enums:
            yield from () if blank is None else (blank,)
            yield from self._enum(enum, indent)
        by_extendee: dict[str, list[Field]] = {}
        for field in extensions:
            by_extendee.setdefault(field.extendee, []).append(field)
        for extendee, fields in by_extendee.items():
            yield from () if blank is None else (blank,)
            yield f"{indent}extend {self._name(extendee)} {{"
            yield from (f"{indent}  {self._field(field, {}, in_oneof=False)}" for field in fields)
            yield f"{indent}}}"

    def _message(self, message: pb.DescriptorProto, indent: str, scope: str) -> Iterator[str]:
        """`scope` is the name of what it stands in, with a dot at both ends."""
        yield f"{indent}message {message.name} {{"
        inner, inside = indent + "  ", f"{scope}{message.name}."
        yield from (f"{inner}option {option};" for option in _options(message.options))
        yield from _reserved(message, inner)
        maps = {f"{inside}{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
        in_oneofs: dict[int, list[Field]] = {}
        for field in message.field:
            if field.HasField("oneof_index") and not field.proto3_optional:
                in_oneofs.setdefault(field.oneof_index, []).append(field)
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield inner + self._field(field, maps, in_oneof=False)
            elif in_oneofs[field.oneof_index][0] is field:
                yield from self._oneof(message.oneof_decl[field.oneof_index], in_oneofs[field.oneof_index], inner)
        yield from self._types(message.nested_type, message.enum_type, message.extension, inner, inside)
        yield f"{indent}}}"

    def _oneof(self, oneof: pb.OneofDescriptorProto, fields: list[Field], indent: str) -> Iterator[str]:
        yield f"{indent}oneof {oneof.name} {{"
        yield from (f"{indent}  option {option};" for option in _options(oneof.options))
        yield from (f"{indent}  {self._field(field, {}, in_oneof=True)}" for field in fields)
        yield f"{indent}}}"

    def _field(self, field: Field, maps: dict[str, pb.DescriptorProto], *, in_oneof: bool) -> str:
        entry = maps.get(field.type_name)
        if entry is not None:
            kind = f"map<{self._type(entry.field[0])}, {self._type(entry.field[1])}>"
        else:
            kind = self._label(field, in_oneof) + self._type(field)
        options = list(_options(field.options))
        if field.HasField("default_value"):
            options.insert(0, f"default = {_default(field)}")
        if field.HasField("json_name") and not field.extendee:
            options.append(f"json_name = {write_string(field.json_name.encode())}")
        listed = f" [{', '.join(options)}]" if options else ""
        return f"{kind} {field.name} = {field.number}{listed};"

    def _label(self, field: Field, in_oneof: bool) -> str:
        if in_oneof:
            return ""
        if field.label == Field.LABEL_REPEATED:
            return "repeated "
        if field.label == Field.LABEL_REQUIRED:
            return "required "
        return "optional " if self._proto2 or field.proto3_optional else ""

    def _type(self, field: Field) -> str:
        if field.type_name:
            return self._name(field.type_name)
        return Field.Type.Name(field.type).removeprefix("TYPE_").lower()

    def _name(self, full: str) -> str:
        if not self._short:
            return full
        return full.removeprefix(self._prefix if full.startswith(self._prefix) else ".")

    def _enum(self, enum: pb.EnumDescriptorProto, indent: str) -> Iterator[str]:
        yield f"{indent}enum {enum.name} {{"
        yield from (f"{indent}  option {option};" for option in _options(enum.options))
        yield from _reserved(enum, indent + "  ")
        for value in enum.value:
            options = ", ".join(_options(value.options))
            yield f"{indent}  {value.name} = {value.number}{f' [{options}]' if options else ''};"
        yield f"{indent}}}"

    def _service(self, service: pb.ServiceDescriptorProto) -> Iterator[str]:
        yield f"service {service.name} {{"
        yield from (f"  option {option};" for option in _options(service.options))
        for method in service.method:
            given = f"{'stream ' if method.client_streaming else ''}{self._name(method.input_type)}"
            back = f"{'stream ' if method.server_streaming else ''}{self._name(method.output_type)}"
            options = list(_options(method.options))
            yield f"  rpc {method.name} ({given}) returns ({back}){' {' if options else ';'}"
            yield from (f"    option {option};" for option in options)
            yield from ("  }",) if options else ()
        yield "}"


def _reserved(owner: Any, indent: str) -> Iterator[str]:
    of_enum = isinstance(owner, pb.EnumDescriptorProto)
    for one in owner.reserved_range:
        yield f"{indent}reserved {_range(one, of_enum)};"
    for name in owner.reserved_name:
        yield f"{indent}reserved {write_string(name.encode())};"
    for one in () if of_enum else owner.extension_range:
        yield f"{indent}extensions {_range(one, of_enum)};"


def _range(one: Any, of_enum: bool) -> str:
    last = one.end if of_enum else one.end - 1
    if last >= ((1 << 31) - 1 if of_enum else NUMBER_MAX):
        return f"{one.start} to max"
    return str(one.start) if last == one.start else f"{one.start} to {last}"


def _options(options: Any, before: str = "") -> Iterator[str]:
    for field, value in options.ListFields():
        if field.name == "map_entry":
            continue
        if field.name == "uninterpreted_option":
            yield from map(_uninterpreted, value)
        elif field.message_type is not None and not field.is_repeated:
            yield from _options(value, f"{before}{field.name}.")
        elif not field.is_repeated:
            yield f"{before}{field.name} = {_value(field, value)}"


def _value(field: FieldDescriptor, value: Any) -> str:
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return write_string(value.encode())
    return str(value)


def _uninterpreted(option: pb.UninterpretedOption) -> str:
    name = ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)
    if option.HasField("aggregate_value"):
        value = f"{{ {option.aggregate_value} }}" if option.aggregate_value else "{}"
    elif option.HasField("string_value"):
        value = write_string(option.string_value)
    elif option.HasField("identifier_value"):
        value = option.identifier_value
    elif option.HasField("positive_int_value"):
        value = str(option.positive_int_value)
    elif option.HasField("negative_int_value"):
        value = str(option.negative_int_value)
    else:
        value = repr(option.double_value)
    return f"{name} = {value}"


def _default(field: Field) -> str:
    if field.type == Field.TYPE_STRING:
        return write_string(field.default_value.encode())
    return f'"{field.default_value}"' if field.type == Field.TYPE_BYTES else field.default_value
