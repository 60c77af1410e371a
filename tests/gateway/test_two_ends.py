"""Requests that two servers could read in two ways, and links of other sites that do more than read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.serving import Client, served
from proving import proves
from tidelog.gateway.route import Answer, Call, Route, as_json

HOST = b"Host: localhost\r\n"


def echo(_call: Call) -> Answer:
    return as_json("done")


TABLE = (
    Route("GET", "/thing", echo, "Read"),
    Route("POST", "/thing", echo, "Write", body={"type": "object"}),
    Route("DELETE", "/thing", echo, "Delete"),
)


@pytest.fixture(scope="module")
def own() -> Iterator[Client]:
    with served(TABLE) as client:
        yield client


@proves("http", "hostile")
def test_a_body_with_two_ends_is_refused_and_nothing_behind_it_is_answered(own: Client) -> None:
    second = b"DELETE /thing HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    head = b"POST /thing HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\nContent-Length: 5\r\n"
    answered = own.raw(head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second)
    assert answered.startswith(b"HTTP/1.1 400 ") and answered.count(b"HTTP/1.1 ") == 1
    assert b"done" not in answered


@proves("http", "hostile")
@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("POST", 403), ("DELETE", 403)])
def test_a_link_of_another_site_reads_at_most(own: Client, method: str, status: int) -> None:
    body = {} if method == "POST" else None
    got = own(method, "/thing", body, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert got.status == status
