"""The page: served, by itself, and with nothing of anybody else's."""

from __future__ import annotations

import re

import pytest

from gateway.serving import Client, served
from proving import proves
from tidelog.demo import page
from tidelog.demo.checking import QUERIES
from tidelog.gateway.routes import ROUTES

OWN = ("http://www.w3.org/2000/svg",)  # the name of SVG, which nobody fetches
ELSEWHERE = re.compile(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`)]*")
INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=|javascript:", re.IGNORECASE)
LINES_MAX = 200


@pytest.fixture(scope="module")
def client() -> object:
    with served((*ROUTES, *page.ROUTES)) as found:
        yield found


@proves("demo", "http")
@pytest.mark.parametrize("path", page.FILES)
def test_every_file_of_the_page_is_served_and_may_load_nothing_of_others(client: Client, path: str) -> None:
    got = client("GET", path)
    assert (got.status, got.headers["content-type"]) == (200, f"{page.FILES[path][1]}; charset=utf-8")
    policy = dict(one.strip().split(" ", 1) for one in got.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert {value for name, value in policy.items() if name.endswith("-src") and name != "default-src"} == {"'self'"}
    assert got.headers["x-content-type-options"] == "nosniff"
    assert [found for found in ELSEWHERE.findall(got.body.decode()) if found not in OWN] == []


@proves("demo")
def test_the_page_needs_nothing_that_its_policy_forbids_and_no_file_that_is_not_there(client: Client) -> None:
    document = client("GET", page.PATH).body.decode()
    assert INLINE.findall(document) == []
    linked = re.findall(r'(?:src|href)="(/[^"]*)"', document)
    routes = {route.path for route in (*ROUTES, *page.ROUTES)}
    views = {f"/views/{view}" for view in QUERIES}
    assert [path for path in linked if path not in routes | views] == []


@proves("demo")
def test_the_page_says_its_language_its_headings_and_its_state_to_those_who_hear_it(client: Client) -> None:
    document = client("GET", page.PATH).body.decode()
    assert '<html lang="en">' in document and document.count("<h1>") == 1 and 'role="status"' in document
    labels = re.findall(r'aria-labelledby="([^"]+)"', document)
    assert labels and all(f'id="{name}"' in document for name in labels)


@proves("demo")
def test_the_script_follows_every_view_and_finds_every_element_that_it_fills() -> None:
    script = (page.FOLDER / "page.js").read_text()
    document = (page.FOLDER / "page.html").read_text()
    assert len(script.splitlines()) < LINES_MAX
    assert set(re.findall(r'new View\("(\w+)"', script)) == set(QUERIES)
    assert all(f'id="{name}"' in document for name in re.findall(r'\bat\("(\w+)"\)', script))
    assert "innerHTML" not in script, "rows are text, whatever is in them"
