"""Schemas from a registry, over HTTP, for drivers and executors: any that has Confluent's API, ours included.

An id is asked for once in a process: what it means never changes. A registry that cannot be reached
(`control/registry.py`) fails the task, which Spark tries again: that is not a fault of a record's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from tidelog.control.registry import RegistryAddress, ask
from tidelog.errors import InvalidSchema, UsageError
from tidelog.schema import formats
from tidelog.schema.bounds import REFERENCES_MAX
from tidelog.schema.schema import Schema

NO_SCHEMA = "has no schema"  # in the reason of a value whose schema may yet be registered


class Text(NamedTuple):
    """A schema as a registry hands it out, with the texts of what it refers to."""

    format: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


_known: dict[tuple[RegistryAddress, int], Schema] = {}


def schema_of_id(registry: RegistryAddress, number: int) -> Schema | str:
    """Or why there is none."""
    found = _known.get((registry, number))
    if found is None:
        answer = ask(registry, f"/schemas/ids/{number}")
        if answer is None:
            return f"the registry at {registry.url} {NO_SCHEMA} {number}"
        text = _text(registry, answer)
        try:
            found = _known[registry, number] = formats.parse(text.format, text.text, dict(text.references))
        except InvalidSchema as error:
            return f"schema {number} cannot be read: {error}"
    return found


def text_of_id(registry: RegistryAddress, number: int) -> Text:
    answer = ask(registry, f"/schemas/ids/{number}")
    if answer is None:
        raise UsageError(f"the registry at {registry.url} has no schema {number}; is it the right one?")
    return _text(registry, answer)


def text_of_subject(registry: RegistryAddress, subject: str, version: int | str) -> Text:
    answer = ask(registry, f"/subjects/{quote(subject, safe='')}/versions/{version}")
    if answer is None:
        raise UsageError(
            f"the registry at {registry.url} has no version {version} of subject {subject!r}; register it first"
        )
    return _text(registry, answer)


def _text(registry: RegistryAddress, answer: Mapping[str, Any]) -> Text:
    found: dict[str, str] = {}
    _gather(registry, answer, found, ())
    return Text(answer.get("schemaType", "AVRO"), answer["schema"], tuple(found.items()))


def _gather(
    registry: RegistryAddress, answer: Mapping[str, Any], found: dict[str, str], above: tuple[str, ...]
) -> None:
    """Each after those that it refers to itself."""
    for reference in answer.get("references") or ():
        name, subject, version = reference["name"], reference["subject"], reference["version"]
        if name in found:
            continue
        if name in above or len(found) > REFERENCES_MAX:
            raise InvalidSchema(f"the references of a schema go in a circle by way of {name!r}, or are too many")
        inner = ask(registry, f"/subjects/{quote(subject, safe='')}/versions/{version}")
        if inner is None:
            raise InvalidSchema(f"the registry has no version {version} of {subject!r}, which a schema refers to")
        _gather(registry, inner, found, (*above, name))
        found.setdefault(name, inner["schema"])
