"""The OpenAPI 3.1 description, made from the table of routes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from tidelog.gateway.route import JSON, Route

ERROR = {
    "type": "object",
    "required": ["error_code", "message"],
    "properties": {
        "error_code": {"type": "integer", "description": "The status, or the number that the route's protocol has."},
        "message": {"type": "string", "description": "A fact, then after a semicolon what to do about it."},
    },
}
LOGIN = {
    "basic": {"type": "http", "scheme": "basic", "description": "A user of the broker's, by SASL."},
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token that the broker takes."},
}


def document(routes: Iterable[Route], version: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidelog", "version": version, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}, "securitySchemes": LOGIN},
    }


def parameters_of(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _operation(route: Route) -> dict[str, Any]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in parameters_of(route.path)
    ]
    in_query = [
        {"name": given.name, "in": "query", "description": given.what, "schema": given.schema} for given in route.query
    ]
    operation: dict[str, Any] = {
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": in_path + in_query,
        "responses": _responses(route),
        "security": [] if route.open else [{}, {"basic": []}, {"bearer": []}],
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {kind: {"schema": route.body} for kind in route.takes},
        }
    return operation


def _responses(route: Route) -> dict[str, Any]:
    schema = {} if route.answer is None else {"schema": route.answer}
    answers: dict[str, Any] = {"200": {"description": "Done", "content": dict.fromkeys(route.gives, schema)}}
    kinds = route.gives if route.errors_as_given else (JSON,)
    refused = {"content": {kind: {"schema": {"$ref": "#/components/schemas/Error"}} for kind in kinds}}
    for status, what in sorted(route.refusals.items()):
        answers[str(status)] = {"description": what or HTTPStatus(status).phrase, **refused}
    answers["default"] = {"description": "Refused", **refused}
    return answers
