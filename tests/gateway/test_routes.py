"""The table of routes, row by row: what each answers, what it refuses, and that it is described."""

from __future__ import annotations

import re

import pytest

from gateway.serving import Client
from proving import proves
from tidelog.gateway.openapi import document, parameters_of
from tidelog.gateway.route import Route
from tidelog.gateway.routes import ROUTES

FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain", "")
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


def filled(route: Route) -> str:
    """The path with something in place of its parameters."""
    path = route.path
    for name in parameters_of(path):
        path = path.replace("{" + name + "}", "1")
    return path


every_route = pytest.mark.parametrize("route", ROUTES, ids=name_of)


@proves("http")
@every_route
def test_a_row_is_whole(route: Route) -> None:
    assert route.method in METHODS
    assert route.path.startswith("/") and not route.path.endswith("/")
    assert route.summary
    assert not set(route.takes) & set(FORM_TYPES), "a form of any page could be sent to it"
    assert (route.body is None) or route.writes
    assert not (route.open and route.writes), "who may write says the broker"


@proves("http")
def test_no_route_is_there_twice() -> None:
    names = [name_of(route) for route in ROUTES]
    assert sorted(set(names)) == sorted(names)


@proves("http")
def test_every_route_is_described(client: Client) -> None:
    described = client("GET", "/openapi.json").json
    assert described["openapi"].startswith("3.1")
    there = {f"{method.upper()} {path}" for path, methods in described["paths"].items() for method in methods}
    assert there == set(map(name_of, ROUTES))


@proves("http")
@every_route
def test_a_route_is_described_with_all_that_it_takes_and_gives(route: Route) -> None:
    """Against the table, and against what OpenAPI asks for: each place of a path is a parameter that must be given."""
    told = document([route], "1")["paths"][route.path][route.method.lower()]
    found = {(one["name"], one["in"]): one.get("required", False) for one in told["parameters"]}
    in_path = {(name, "path"): True for name in re.findall(r"{(\w+)}", route.path)}
    assert found == in_path | {(one.name, "query"): False for one in route.query}
    assert set(told.get("requestBody", {}).get("content", ())) == (set() if route.body is None else set(route.takes))
    assert set(told["responses"]["200"]["content"]) == set(route.gives)
    assert set(told["responses"]) == {"200", "default", *map(str, route.refusals)}
    assert ({} in told["security"]) is (not route.open)


@proves("http")
@every_route
def test_a_page_of_another_site_gets_nothing(client: Client, route: Route) -> None:
    for header in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}):
        assert client(route.method, filled(route), **header).status == 403


@proves("http")
@every_route
def test_a_name_that_is_not_ours_gets_nothing(client: Client, route: Route) -> None:
    got = client(route.method, filled(route), Host="evil.example")
    assert got.status == 421
    assert "tidelog.http.hosts" in got.message


@proves("http")
@pytest.mark.parametrize("route", [route for route in ROUTES if route.writes], ids=name_of)
def test_a_form_cannot_be_sent(client: Client, route: Route) -> None:
    for content_type in FORM_TYPES:
        got = client(route.method, filled(route), b"a=1", Content_Type=content_type)
        assert got.status == 415, got
        assert route.takes[0] in got.message


@proves("http")
@every_route
def test_a_method_that_a_path_has_not_is_refused_with_those_it_has(client: Client, route: Route) -> None:
    there = {other.method for other in ROUTES if filled(other) == filled(route)}
    for method in {*METHODS, "OPTIONS", "BREW"} - there:
        got = client(method, filled(route))
        assert got.status == 405, (method, got)
        assert {one.strip() for one in got.headers["allow"].split(",")} <= there


@proves("http")
@every_route
def test_no_answer_lets_other_sites_read_it(client: Client, route: Route) -> None:
    got = client(route.method, filled(route))
    assert not [name for name in got.headers if name.startswith("access-control")]
    assert got.headers["x-content-type-options"] == "nosniff"
