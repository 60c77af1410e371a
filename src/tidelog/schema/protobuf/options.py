"""Options in .proto files: those of `descriptor.proto` are set, all others are kept as they were written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor import FieldDescriptor

from tidelog.errors import InvalidSchema
from tidelog.schema.protobuf import tokens
from tidelog.schema.protobuf.literals import read_integer, write_string

if TYPE_CHECKING:
    from tidelog.schema.protobuf.grammar import _Grammar

UINT64_MAX = (1 << 64) - 1
INT64_MIN = -(1 << 63)


def read_option(at: _Grammar, owner: Any) -> None:
    """One `name = value`. `owner` is the options to put it in, or the field whose it is."""
    parts = _name(at)
    at.need("=")
    field = owner if isinstance(owner, pb.FieldDescriptorProto) else None
    if field is not None and parts == [("default", False)]:
        field.default_value = _default(at, field)
        return
    if field is not None and parts == [("json_name", False)]:
        field.json_name = at.words()
        return
    options = owner if field is None else field.options
    if not _set_known(at, options, parts):
        _keep(at, options, parts)


def _name(at: _Grammar) -> list[tuple[str, bool]]:
    parts = []
    while True:
        if at.take("("):
            parts.append((at.full_name(), True))
            at.need(")")
        else:
            parts.append((at.name(), False))
        if not at.take("."):
            return parts


def _set_known(at: _Grammar, options: Any, parts: list[tuple[str, bool]]) -> bool:
    if any(extension for _, extension in parts):
        return False
    for name, _ in parts[:-1]:
        field = options.DESCRIPTOR.fields_by_name.get(name)
        if field is None or field.message_type is None or field.is_repeated:
            return False
        options = getattr(options, name)
    field = options.DESCRIPTOR.fields_by_name.get(parts[-1][0])
    if field is None or field.message_type is not None or field.is_repeated:
        return False
    setattr(options, field.name, _value(at, field))
    return True


def _value(at: _Grammar, field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        name = at.name()
        if name not in field.enum_type.values_by_name:
            raise InvalidSchema(f"{name[:50]!r} is not a value of the option {field.name}; see descriptor.proto")
        return field.enum_type.values_by_name[name].number
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if not at.is_next("true") and not at.is_next("false"):
            at.fail("true or false")
        return at.next().text == "true"
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return at.words()
    return at.integer(0, (1 << 31) - 1)


def _keep(at: _Grammar, options: Any, parts: list[tuple[str, bool]]) -> None:
    kept = options.uninterpreted_option.add()
    for name, extension in parts:
        kept.name.add(name_part=name, is_extension=extension)
    minus = at.take("-")
    token = at.here
    if token.text == "{" and token.kind == tokens.SIGN and not minus:
        kept.aggregate_value = _aggregate(at)
    elif token.kind == tokens.STRING and not minus:
        kept.string_value = at.string()
    elif token.kind == tokens.NAME:
        at.next()
        if minus:
            kept.double_value = float(f"-{token.text}") if token.text in ("inf", "nan") else at.fail("a number")
        else:
            kept.identifier_value = token.text
    elif token.kind == tokens.NUMBER:
        at.next()
        _keep_number(kept, token.text, minus)
    else:
        at.fail("a value")


def _keep_number(kept: pb.UninterpretedOption, text: str, minus: bool) -> None:
    whole = read_integer(text)
    if whole is not None and not minus and whole <= UINT64_MAX:
        kept.positive_int_value = whole
    elif whole is not None and minus and -whole >= INT64_MIN:
        kept.negative_int_value = -whole
    else:
        try:
            kept.double_value = float(text.rstrip("fF")) * (-1 if minus else 1)
        except ValueError:
            raise InvalidSchema(f"the number {text[:50]} is too large; write a smaller one") from None


def _aggregate(at: _Grammar) -> str:
    """Everything between the braces, one space between its words."""
    words: list[str] = []
    depth = 0
    while True:
        token = at.next()
        depth += (token.text in "{<[") - (token.text in "}>]") if token.kind == tokens.SIGN else 0
        if not depth:
            return " ".join(words[1:])
        words.append(token.text)


def _default(at: _Grammar, field: pb.FieldDescriptorProto) -> str:
    if at.here.kind == tokens.STRING:
        value = at.string()
        if field.type == pb.FieldDescriptorProto.TYPE_BYTES:
            return write_string(value)[1:-1]
        return value.decode(errors="replace")
    minus = "-" if at.take("-") else ""
    token = at.next()
    if token.kind not in (tokens.NAME, tokens.NUMBER):
        at.fail("a value")
    whole = read_integer(token.text)
    return minus + (str(whole) if whole is not None else token.text)
