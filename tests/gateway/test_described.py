"""Every operation of /openapi.json, asked by what the description alone says: each answer is one that it describes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

import tidelog
from gateway.serving import Client, Got
from proving import proves
from sourcing.seats import Reserve, seats
from tidelog.sourcing import EventStore

ORDER = ("get", "post", "put", "delete")  # what a deletion takes away is not there for those behind it
METHODS = {"get", "post", "put", "delete", "patch", "head", "options", "trace"}
NAMED = "1"  # a subject, a version, an id
SCHEMA = '{"type":"record","name":"R","fields":[]}'


class Operation(NamedTuple):
    method: str
    path: str
    described: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


def operations(document: dict[str, Any]) -> Iterator[Operation]:
    for method in ORDER:
        for path, methods in document["paths"].items():
            if method in methods:
                yield Operation(method, path, methods[method])


def path_of(operation: Operation) -> str:
    path = operation.path
    for parameter in operation.described["parameters"]:
        if parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", NAMED)
    return path


def body_of(operation: Operation) -> dict[str, Any] | None:
    """One that the described schema takes: every property that it may have, of those that anything is known of."""
    if "requestBody" not in operation.described:
        return None
    assert operation.described["requestBody"]["required"]
    schema = next(iter(operation.described["requestBody"]["content"].values()))["schema"]
    known = {"schema": SCHEMA, "compatibility": "NONE", "mode": "READWRITE", "key": "tea"}
    body = {name: value for name, value in known.items() if name in schema["properties"]}
    Draft202012Validator(schema).validate(body)
    return body


def check(operation: Operation, got: Got, document: dict[str, Any]) -> None:
    responses = operation.described["responses"]
    assert got.status < 500 and got.status != 405, (operation.name, got)
    content = responses.get(str(got.status), responses["default"])["content"]
    described = {name.partition(";")[0]: form for name, form in content.items()}
    kind = got.headers["content-type"].partition(";")[0]
    assert kind in described, (operation.name, got.status, kind)
    form = described[kind]
    if kind.endswith("json") and "schema" in form:
        Draft202012Validator({**form["schema"], "components": document["components"]}).validate(got.json)


@proves("http", "schemas")
@pytest.mark.parametrize("registered", [False, True], ids=["nothing is there", "a schema and a store are there"])
def test_every_answer_is_one_that_the_description_has(client: Client, broker: tidelog.Broker, registered: bool) -> None:
    document = client("GET", "/openapi.json").json
    done = set()
    with ExitStack() as stack:
        if registered:
            made = client("POST", f"/subjects/{NAMED}/versions", {"schema": SCHEMA})
            assert made.status == 200, made
            store = stack.enter_context(EventStore(NAMED, seats(), bootstrap=broker.bootstrap, partitions=1))
            store.send(NAMED, Reserve("anna"), id=NAMED)
        for operation in operations(document):
            got = client(operation.method.upper(), path_of(operation), body_of(operation))
            check(operation, got, document)
            if got.status == 200:
                done.add(operation.name)
    every = {f"{method} {path}" for path, methods in document["paths"].items() for method in methods}
    assert every == {operation.name for operation in operations(document)}, "an operation was not asked for"
    assert done if not registered else len(done) > len(every) * 2 // 3, sorted(every - done)


@proves("http")
def test_the_description_has_what_openapi_asks_for(client: Client) -> None:
    document = client("GET", "/openapi.json").json
    assert {"openapi", "info", "paths"} <= set(document)
    assert {"title", "version"} <= set(document["info"])
    for path, methods in document["paths"].items():
        assert path.startswith("/") and set(methods) <= METHODS
        for operation in methods.values():
            assert operation["responses"]
            in_path = [one["name"] for one in operation["parameters"] if one["in"] == "path" and one["required"]]
            assert in_path == [part[1:-1] for part in path.split("/") if part.startswith("{")]
            logins = {name for row in operation["security"] for name in row}
            assert logins <= set(document["components"]["securitySchemes"])
            for one in operation["parameters"]:
                Draft202012Validator.check_schema(one["schema"])
