"""From text to a linked file: read, put into a pool with what it imports, and taken out with every name resolved.

A text in base64 is a serialized FileDescriptorProto, as Confluent's serializer for Python sends it.

The canonical form is text where text says all of it (it is read back and compared), else the descriptor in base64: one
with custom options in it, say, whose names nobody here knows.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import NamedTuple

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError, Message

from tidelog.errors import InvalidSchema
from tidelog.schema.bounds import check_size
from tidelog.schema.protobuf.grammar import read
from tidelog.schema.protobuf.text import write
from tidelog.schema.protobuf.well_known import KNOWN, with_imports
from tidelog.schema.schema import Schema

FORMAT = "PROTOBUF"
ROOT = "default"  # the name of a file that has none; no import can be meant by it


class Model(NamedTuple):
    file: pb.FileDescriptorProto
    imports: tuple[pb.FileDescriptorProto, ...]  # directly or not, those that everybody knows included


def parse(text: str, references: Mapping[str, str], *, normalize: bool = False) -> Schema:
    linker = _Linker()
    for name, reference in references.items():
        linker.add(name, read_any(reference))
    file = linker.add(ROOT, read_any(text))
    if normalize:
        _sort(file)
    canonical = _canonical(file, linker)
    whole = b64encode(b"".join(bare(one).SerializeToString(deterministic=True) for one in (*linker.files, file)))
    return Schema(FORMAT, canonical, whole.decode(), Model(file, tuple(linker.files)))


def serialized(schema: Schema) -> str:
    """The file as clients that want descriptors get it."""
    return b64encode(bare(schema.model.file).SerializeToString(deterministic=True)).decode()


def read_any(text: str) -> pb.FileDescriptorProto:
    check_size(text)
    try:
        data = b64decode("".join(text.split()), validate=True)
    except ValueError:
        return read(text)
    try:
        file = pb.FileDescriptorProto.FromString(data)
    except DecodeError as error:
        raise InvalidSchema("the schema is neither the text of a .proto file nor a descriptor in base64") from error
    if not (file.message_type or file.enum_type or file.extension or file.service or file.dependency):
        raise InvalidSchema("the descriptor describes nothing; send that of a .proto file")
    _check_strings(file)
    return file


def _check_strings(message: Message) -> None:
    """Those of proto2 may hold any bytes, and then are some."""
    for field, value in message.ListFields():
        for one in value if field.is_repeated else (value,):
            if isinstance(one, Message):
                _check_strings(one)
            elif field.type == field.TYPE_STRING and not isinstance(one, str):
                raise InvalidSchema(f"{field.name} in the descriptor is not UTF-8; send it as protoc makes it")


def bare(file: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
    """What a file says, without where it lay and what follows from the rest."""
    made = pb.FileDescriptorProto()
    made.CopyFrom(file)
    made.ClearField("name")
    made.ClearField("source_code_info")
    waiting = list(made.message_type)
    fields = list(made.extension)
    while waiting:
        message = waiting.pop()
        waiting += message.nested_type
        fields += [*message.field, *message.extension]
    for field in fields:
        if field.HasField("json_name") and field.json_name == _json_name(field.name):
            field.ClearField("json_name")
    return made


class _Linker:
    def __init__(self) -> None:
        self.files: list[pb.FileDescriptorProto] = []
        self._pool = DescriptorPool()
        self._added: set[str] = set()

    def add(self, name: str, file: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
        file.name = name
        for dependency in file.dependency:
            if dependency not in self._added and dependency in KNOWN:
                self._add_known(dependency)
        linked = self._link(file)
        if name != ROOT:
            self.files.append(linked)
        return linked

    def _add_known(self, name: str) -> None:
        for file in with_imports(name):
            if file.name not in self._added:
                self.files.append(self._link(file))

    def _link(self, file: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
        self._added.add(file.name)
        linked = pb.FileDescriptorProto()
        try:
            self._pool.Add(file)
            self._pool.FindFileByName(file.name).CopyToProto(linked)
        except (TypeError, KeyError, ValueError, EncodeError) as error:
            said = str(error).removeprefix("Couldn't build proto file into descriptor pool: ")
            raise InvalidSchema(f"the Protobuf schema does not hold together: {said[:300]}") from error
        return linked


def _canonical(file: pb.FileDescriptorProto, linker: _Linker) -> str:
    wanted = bare(file)
    for short in (True, False):
        text = write(wanted, short=short)
        if _means(text, wanted, linker):
            return text
    return b64encode(wanted.SerializeToString(deterministic=True)).decode()


def _means(text: str, wanted: pb.FileDescriptorProto, linker: _Linker) -> bool:
    again = _Linker()
    try:
        for file in linker.files:
            if file.name not in again._added:
                copy = pb.FileDescriptorProto()
                copy.CopyFrom(file)
                again.add(file.name, copy)
        return bare(again.add(ROOT, read(text))) == wanted
    except InvalidSchema:
        return False


def _sort(file: pb.FileDescriptorProto) -> None:
    """What has no order in Protobuf, in one: fields by number. Messages keep theirs, which data refers to."""
    waiting = list(file.message_type)
    while waiting:
        message = waiting.pop()
        waiting += message.nested_type
        message.field.sort(key=lambda field: field.number)


def _json_name(name: str) -> str:
    made, upper = [], False
    for letter in name:
        if letter == "_":
            upper = True
        else:
            made.append(letter.upper() if upper else letter)
            upper = False
    return "".join(made)
