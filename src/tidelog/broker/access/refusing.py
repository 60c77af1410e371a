"""Replies that refuse: made from the request, because Kafka's replies mirror their requests.

A reply has one error code for all of it, or a list beside a list of the request: a result for each topic asked for, in
it a result for each partition. `mirrored` walks both tables of fields (`wire.message`) at once: the error code goes
where there is one first, names and numbers are taken over from what was asked, and the lists below an error stay empty.
"""

from __future__ import annotations

from typing import Any

from tidelog.wire.api import response_class
from tidelog.wire.field import span
from tidelog.wire.message import struct_named

ERRORS = ("error_code", "partition_error_code")
INDEXES = ("partition_index", "index", "partition")

# What is said where nothing is known, in place of zero and null.
UNKNOWN: dict[str, Any] = {
    "records": b"",
    "high_watermark": -1,
    "base_offset": -1,
    "committed_offset": -1,
    "low_watermark": -1,
    "node_id": -1,
    "port": -1,
}


def refused(api_key: int, version: int, request: Any, code: int, message: str | None = None) -> Any:
    """The whole request is refused."""
    return mirrored(response_class(api_key), request, code, version, message)


def mirrored(made: Any, asked: Any, code: int, version: int, message: str | None = None) -> Any:
    """An instance of the struct class `made` that says what became of `asked`."""
    fields = [field for field in made.SCHEMA.fields if version in span(field.versions)]
    names = [field.name for field in fields]
    result = _blank(made, names)
    for field in fields:  # a list of the reply is a list, also where the request's may be null
        if field.kind != "array" and hasattr(asked, field.name) and not isinstance(getattr(asked, field.name), list):
            setattr(result, field.name, getattr(asked, field.name))
    at = next((name for name in ERRORS if name in names), None)
    if at is not None:
        setattr(result, at, code)
        if "error_message" in names:
            result.error_message = message
        _number(result, names, asked)
        return result
    for theirs, ours in zip(_lists(asked), (field for field in fields if field.kind == "array"), strict=False):
        element = struct_named(made, ours.element)
        setattr(result, ours.name, [mirrored(element, one, code, version, message) for one in theirs])
    return result


def named(made: Any, attribute: str, name: str, code: int) -> Any:
    """For a request whose list is of bare names."""
    result = _blank(made, [field.name for field in made.SCHEMA.fields])
    setattr(result, attribute, name)
    result.error_code = code
    return result


def _blank(made: Any, names: list[str]) -> Any:
    result = made()
    for name in names:
        if name in UNKNOWN:
            setattr(result, name, UNKNOWN[name])
    return result


def _lists(asked: Any) -> list[list[Any]]:
    """What was asked for in lists; those that another version would have are empty."""
    found = [getattr(asked, field.name) for field in type(asked).SCHEMA.fields if field.kind == "array"]
    return [one for one in found if one]


def _number(result: Any, names: list[str], asked: Any) -> None:
    """The number of a partition, which each message calls by another name."""
    ours = next((name for name in INDEXES if name in names), None)
    if ours is None:
        return
    if isinstance(asked, int):
        setattr(result, ours, asked)
        return
    theirs = next((name for name in INDEXES if hasattr(asked, name)), None)
    if theirs is not None:
        setattr(result, ours, getattr(asked, theirs))
