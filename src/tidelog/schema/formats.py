"""The formats of schemas, by the names that registries have for them: one table, each loaded on first use."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from tidelog.errors import InvalidSchema, UsageError
from tidelog.schema.bounds import REFERENCES_MAX, TEXT_MAX, bounded
from tidelog.schema.schema import Reason, Schema

MODULES = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}
FORMATS = tuple(MODULES)


def parse(format: str, text: str, references: Mapping[str, str], *, normalize: bool = False) -> Schema:
    """`references` by the name they go by, each after those that it refers to itself.

    InvalidSchema when the text is not one. What comes back is the same for the same text, whatever was parsed before.
    """
    if format not in MODULES:
        raise InvalidSchema(f"{format[:100]!r} is not a format; use {', '.join(FORMATS)}")
    if not text.strip():
        raise InvalidSchema("the schema is empty; write one")
    _check_letters(text)
    if len(references) > REFERENCES_MAX or len(text) + sum(map(len, references.values())) > TEXT_MAX:
        raise InvalidSchema(f"the schema and what it refers to have more than {TEXT_MAX} characters; split it up")
    with bounded():
        schema = _module(format, "parse").parse(text, references, normalize=normalize)
        assert isinstance(schema, Schema)
        _check_letters(schema.text)
        return schema


def compatible(reader: Schema, writer: Schema) -> list[Reason]:
    """Why `reader` cannot read what `writer` wrote; empty when it can."""
    if reader.format != writer.format:
        sentence = f"a reader of {reader.format} cannot read {writer.format}"
        return [Reason("FORMAT_CHANGED", "/", sentence)]
    if reader.whole == writer.whole:
        return []
    with bounded():
        reasons = _module(reader.format, "compatibility").compatible(reader.model, writer.model)
        assert isinstance(reasons, list)
        return reasons


def _check_letters(text: str) -> None:
    """Halves of letters, which JSON can escape, are not text that could be kept."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidSchema(f"the schema has {text[error.start]!r}, which is not a character; leave it out") from None


def _module(format: str, part: str):  # type: ignore[no-untyped-def]
    try:
        return import_module(f"tidelog.schema.{MODULES[format]}.{part}")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("tidelog"):
            raise
        raise UsageError(f"{format} schemas need {error.name}; pip install 'tidelog[schemas]'") from error
