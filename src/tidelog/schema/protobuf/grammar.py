"""From the text of a .proto file to its FileDescriptorProto: what `protoc` does before it links.

Names of types are left as they are written; `parse.py` has them resolved. Options of `descriptor.proto`'s own are set,
others are kept uninterpreted. Groups, which proto3 has done away with, are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from google.protobuf import descriptor_pb2 as pb

from tidelog.errors import InvalidSchema
from tidelog.schema.bounds import DEPTH_MAX
from tidelog.schema.protobuf import tokens
from tidelog.schema.protobuf.literals import read_integer, read_string
from tidelog.schema.protobuf.options import read_option
from tidelog.schema.protobuf.tokens import Token, line_of, tokens_of

Field = pb.FieldDescriptorProto
SCALARS = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in Field.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
LABELS = {"optional": Field.LABEL_OPTIONAL, "required": Field.LABEL_REQUIRED, "repeated": Field.LABEL_REPEATED}
EDITIONS = {"2023": pb.EDITION_2023, "2024": pb.EDITION_2024}
FIELD_MAX = (1 << 29) - 1
ENUM_MIN, ENUM_MAX = -(1 << 31), (1 << 31) - 1


def read(text: str) -> pb.FileDescriptorProto:
    return _Grammar(text).file()


class _Grammar:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._at = 0
        self._depth = 0
        self._syntax = "proto2"

    # Words

    @property
    def here(self) -> Token:
        return self._tokens[self._at]

    def next(self) -> Token:
        token = self._tokens[self._at]
        if token.kind == tokens.END:
            self.fail("something more")
        self._at += 1
        return token

    def is_next(self, text: str) -> bool:
        token = self._tokens[self._at]
        return token.text == text and token.kind != tokens.STRING

    def take(self, text: str) -> bool:
        if self.is_next(text):
            self._at += 1
            return True
        return False

    def need(self, text: str) -> None:
        if not self.take(text):
            self.fail(repr(text))

    def fail(self, wanted: str) -> NoReturn:
        token = self._tokens[self._at]
        line = line_of(self._text, token.position)
        raise InvalidSchema(f"line {line} of the Protobuf schema has {token.text[:50]!r} where {wanted} belongs")

    def name(self) -> str:
        if self.here.kind != tokens.NAME:
            self.fail("a name")
        return self.next().text

    def full_name(self) -> str:
        """With dots, and perhaps one in front."""
        parts = ["", self.name()] if self.take(".") else [self.name()]
        while self.take("."):
            parts.append(self.name())
        return ".".join(parts)

    def string(self) -> bytes:
        """One after the other are one."""
        if self.here.kind != tokens.STRING:
            self.fail("a string")
        made = b""
        while self.here.kind == tokens.STRING:
            made += read_string(self.next().text)
        return made

    def words(self) -> str:
        try:
            return self.string().decode()
        except UnicodeDecodeError:
            self.fail("UTF-8")

    def integer(self, low: int, high: int) -> int:
        minus = self.take("-")
        number = read_integer(self.here.text) if self.here.kind == tokens.NUMBER else None
        if number is None or not low <= (-number if minus else number) <= high:
            self.fail(f"a number from {low} to {high}")
        self.next()
        return -number if minus else number

    def block(self, statement: Callable[[], None]) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidSchema(f"the schema is nested more than {DEPTH_MAX} deep; split it up")
        self.need("{")
        while not self.take("}"):
            if not self.take(";"):
                statement()
        self._depth -= 1

    def options(self, into: Any) -> None:
        """`[a = 1, (b) = 2]`, where there are any."""
        if self.take("["):
            while True:
                read_option(self, into)
                if self.take("]"):
                    return
                self.need(",")

    def option(self, into: Any) -> None:
        read_option(self, into)
        self.need(";")

    # The file

    def file(self) -> pb.FileDescriptorProto:
        made = pb.FileDescriptorProto()
        if self.is_next("syntax") or self.is_next("edition"):
            self._language(made)
        while self.here.kind != tokens.END:
            if self.take(";"):
                continue
            self._top(made)
        return made

    def _language(self, made: pb.FileDescriptorProto) -> None:
        by_edition = self.next().text == "edition"
        self.need("=")
        written = self.words()
        self.need(";")
        if by_edition and written in EDITIONS:
            made.syntax, made.edition = "editions", EDITIONS[written]
        elif not by_edition and written in ("proto2", "proto3"):
            if written == "proto3":  # of proto2 a descriptor says nothing
                made.syntax = written
        else:
            known = ", ".join(EDITIONS) if by_edition else "proto2, proto3"
            raise InvalidSchema(f"{written[:50]!r} is not a known version of Protobuf; use {known}")
        self._syntax = made.syntax or "proto2"

    def _top(self, made: pb.FileDescriptorProto) -> None:
        word = self.name()
        if word == "import":
            self._import(made)
        elif word == "package":
            made.package = self.full_name()
            self.need(";")
        elif word == "option":
            self.option(made.options)
        elif word == "message":
            self._message(made.message_type.add())
        elif word == "enum":
            self._enum(made.enum_type.add())
        elif word == "extend":
            self._extend(made)
        elif word == "service":
            self._service(made.service.add())
        else:
            self._at -= 1
            self.fail("import, package, option, message, enum, extend or service")

    def _import(self, made: pb.FileDescriptorProto) -> None:
        if self.take("public"):
            made.public_dependency.append(len(made.dependency))
        elif self.take("weak"):
            made.weak_dependency.append(len(made.dependency))
        made.dependency.append(self.words())
        self.need(";")

    # Messages

    def _message(self, into: pb.DescriptorProto) -> None:
        into.name = self.name()
        self.block(lambda: self._member(into))
        for field in into.field:  # as protoc has it: behind the real ones
            if field.proto3_optional:
                field.oneof_index = len(into.oneof_decl)
                into.oneof_decl.add(name=f"_{field.name}")

    def _member(self, into: pb.DescriptorProto) -> None:
        word, behind = self.here.text, self._tokens[self._at + 1]
        # A type may have a name like these words; then no name or brace can follow where one must here.
        if word in ("message", "enum", "oneof") and behind.kind == tokens.NAME:
            self.next()
            if word == "message":
                self._message(into.nested_type.add())
            elif word == "enum":
                self._enum(into.enum_type.add())
            else:
                self._oneof(into)
        elif word == "extend" and behind.text != "=":
            self.next()
            self._extend(into)
        elif word == "option" and behind.text != "=":
            self.next()
            self.option(into.options)
        elif word in ("reserved", "extensions") and behind.kind in (tokens.NUMBER, tokens.STRING):
            self.next()
            self._ranges(into, word)
        elif word == "map" and behind.text == "<":
            self.next()
            self._map(into)
        else:
            self._field(into.field.add())

    def _field(self, into: Field) -> None:
        label = None
        behind = self._tokens[self._at + 1]
        if self.here.text in LABELS and (behind.kind == tokens.NAME or behind.text == "."):
            label = self.next().text
        into.label = LABELS[label] if label else Field.LABEL_OPTIONAL
        if self._syntax == "proto3":
            into.proto3_optional = label == "optional"
            if label == "required":
                raise InvalidSchema("proto3 has no required fields; leave the word out")
        elif self._syntax == "proto2" and label is None:
            self.fail("optional, required or repeated")
        if not into.proto3_optional:
            into.ClearField("proto3_optional")
        self._type_name_number(into)

    def _type_name_number(self, into: Field) -> None:
        written = self.full_name()
        if written == "group":
            raise InvalidSchema("groups are not taken; write a message and a field of it")
        if written in SCALARS:
            into.type = SCALARS[written]
        else:
            into.type_name = written
        into.name = self.name()
        self.need("=")
        into.number = self.integer(1, FIELD_MAX)
        self.options(into)
        self.need(";")

    def _map(self, into: pb.DescriptorProto) -> None:
        self.need("<")
        key = self.full_name()
        self.need(",")
        value = self.full_name()
        self.need(">")
        if key not in SCALARS or key in ("float", "double", "bytes"):
            raise InvalidSchema(f"{key[:100]!r} cannot be the key of a map; use a whole number, bool or string")
        field = into.field.add(label=Field.LABEL_REPEATED, name=self.name())
        words = [part[:1].upper() + part[1:] for part in field.name.split("_")]
        entry = into.nested_type.add(name="".join(words) + "Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=Field.LABEL_OPTIONAL, type=SCALARS[key])
        of_value = entry.field.add(name="value", number=2, label=Field.LABEL_OPTIONAL)
        if value in SCALARS:
            of_value.type = SCALARS[value]
        else:
            of_value.type_name = value
        field.type_name = entry.name
        self.need("=")
        field.number = self.integer(1, FIELD_MAX)
        self.options(field)
        self.need(";")

    def _oneof(self, into: pb.DescriptorProto) -> None:
        index = len(into.oneof_decl)
        made = into.oneof_decl.add(name=self.name())

        def member() -> None:
            if self.is_next("option") and self._tokens[self._at + 1].text != "=":
                self.next()
                self.option(made.options)
            else:
                field = into.field.add(label=Field.LABEL_OPTIONAL, oneof_index=index)
                self._type_name_number(field)

        self.block(member)

    def _ranges(self, into: Any, word: str) -> None:
        """Of fields up to and without their end, of enums with it."""
        of_enum = isinstance(into, pb.EnumDescriptorProto)
        low, high = (ENUM_MIN, ENUM_MAX) if of_enum else (1, FIELD_MAX)
        while True:
            if self.here.kind == tokens.STRING:
                into.reserved_name.append(self.words())
            elif self.here.kind == tokens.NAME:
                into.reserved_name.append(self.name())
            else:
                start = end = self.integer(low, high)
                if self.take("to"):
                    end = high if self.take("max") else self.integer(start, high)
                ranges = into.extension_range if word == "extensions" else into.reserved_range
                made = ranges.add(start=start, end=end if of_enum else end + 1)
                if word == "extensions" and self.is_next("["):
                    self.options(made.options)
            if self.take(";"):
                return
            self.need(",")

    def _extend(self, into: Any) -> None:
        extendee = self.full_name()

        def member() -> None:
            field = into.extension.add()
            self._field(field)
            field.extendee = extendee
            field.ClearField("proto3_optional")

        self.block(member)

    # Enums and services

    def _enum(self, into: pb.EnumDescriptorProto) -> None:
        into.name = self.name()

        def member() -> None:
            behind = self._tokens[self._at + 1]
            if self.is_next("option") and behind.text != "=":
                self.next()
                self.option(into.options)
            elif self.is_next("reserved") and behind.text != "=":
                self.next()
                self._ranges(into, "reserved")
            else:
                value = into.value.add(name=self.name())
                self.need("=")
                value.number = self.integer(ENUM_MIN, ENUM_MAX)
                self.options(value.options)
                self.need(";")

        self.block(member)

    def _service(self, into: pb.ServiceDescriptorProto) -> None:
        into.name = self.name()

        def member() -> None:
            if self.take("option"):
                self.option(into.options)
                return
            self.need("rpc")
            method = into.method.add(name=self.name())
            method.client_streaming, method.input_type = self._message_type()
            self.need("returns")
            method.server_streaming, method.output_type = self._message_type()
            for flag in ("client_streaming", "server_streaming"):
                if not getattr(method, flag):
                    method.ClearField(flag)
            if self.is_next("{"):
                self.block(lambda: self._method_option(method))
            else:
                self.need(";")

        self.block(member)

    def _method_option(self, method: pb.MethodDescriptorProto) -> None:
        self.need("option")
        self.option(method.options)

    def _message_type(self) -> tuple[bool, str]:
        self.need("(")
        streaming = self.is_next("stream") and self._tokens[self._at + 1].text != ")" and self.take("stream")
        name = self.full_name()
        self.need(")")
        return bool(streaming), name
