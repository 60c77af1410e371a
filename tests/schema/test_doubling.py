"""What is wrong once and named twice on each of many levels is told a hundred times at most, and costs no memory."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proving import proves
from tidelog.schema.bounds import REASONS_MAX
from tidelog.schema.formats import compatible, parse

LEVELS = 40
MORE_MEMORY_BYTES = 1 << 30


@pytest.fixture
def little_memory() -> Iterator[None]:
    """So that a test that fails takes the machine's memory from nobody."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_MEMORY_BYTES, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


def avro(last: str) -> str:
    made: dict[str, Any] = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": last}]}
    for level in range(1, LEVELS):
        fields = [{"name": "x", "type": made}, {"name": "y", "type": f"R{level - 1}"}]
        made = {"type": "record", "name": f"R{level}", "fields": fields}
    return json.dumps(made)


def json_schema(last: str, place: str) -> str:
    defined: dict[str, Any] = {"a0": {"type": last}}
    for level in range(1, LEVELS):
        inner = {"$ref": f"#/definitions/a{level - 1}"}
        defined[f"a{level}"] = (
            {"type": "object", "properties": {"x": inner, "y": inner}}
            if place == "properties"
            else {"type": "array", "items": [inner, inner], "additionalItems": inner}
        )
    return json.dumps({"definitions": defined, "$ref": f"#/definitions/a{LEVELS - 1}"})


def protobuf(last: str) -> str:
    messages = [f"message M0 {{ {last} x = 1; }}"]
    messages += [f"message M{level} {{ M{level - 1} x = 1; M{level - 1} y = 2; }}" for level in range(1, LEVELS)]
    return 'syntax = "proto3";' + "\n".join(messages)


@proves("schemas", "hostile")
@pytest.mark.parametrize(
    ("format", "old", "new"),
    [
        ("AVRO", avro("string"), avro("int")),
        ("JSON", json_schema("string", "properties"), json_schema("integer", "properties")),
        ("JSON", json_schema("string", "items"), json_schema("integer", "items")),
        ("PROTOBUF", protobuf("string"), protobuf("int32")),
    ],
    ids=["avro", "properties", "items", "protobuf"],
)
def test_what_is_wrong_is_not_told_a_million_million_times(
    little_memory: None, format: str, old: str, new: str
) -> None:
    found = compatible(parse(format, new, {}), parse(format, old, {}))
    assert 0 < len(found) <= 2 * REASONS_MAX
