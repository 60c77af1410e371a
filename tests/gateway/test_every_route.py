"""Every row of the table of routes, asked by who should not: nobody, a wrong password, who was deleted, who may not."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.port import free_port
from gateway.running import PATIENCE_S, up
from gateway.serving import Client, Got
from proving import proves
from tidelog.client.admin import access
from tidelog.client.cluster import Cluster
from tidelog.client.security import Security
from tidelog.gateway.access import Credentials, token
from tidelog.gateway.route import Route
from tidelog.gateway.routes import ROUTES

ADMIN, NOBODY, LEAVING = "admin", "nobody", "leaving"
SECRET = "the same for all of them"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
GUARDED = [route for route in ROUTES if not route.open]
OPEN = {"/healthz", "/readyz", "/openapi.json"}
SHOWN_TO_EVERY_USER = {"/metrics"}  # with what the broker lets that user see


class Guarded:
    def __init__(self, client: Client, bootstrap: str) -> None:
        self.client = client
        self._bootstrap = bootstrap

    def cluster(self) -> Cluster:
        return Cluster(self._bootstrap, security=Security("SASL_PLAINTEXT", user=ADMIN, password=SECRET))

    def ask(self, route: Route, authorization: str | None) -> Got:
        path = re.sub(r"\{\w+\}", "1", route.path)
        body = {"schema": '"int"'} if route.body is not None else None
        headers = {"Authorization": authorization} if authorization is not None else {}
        return self.client(route.method, path, body, **headers)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    words = ["users", "add", ADMIN, "--data", str(folder / "data")]
    said = f"{SECRET}\n".encode()
    subprocess.run([sys.executable, "-m", "tidelog", *words], input=said, check=True, capture_output=True)
    port = free_port()
    settings = (
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        f"super.users=User:{ADMIN};User:{LEAVING}",
        f"tidelog.http.listener=127.0.0.1:{port}",
        "connection.failed.authentication.delay.ms=1",
    )
    with up(folder, *settings, listen="SASL_PLAINTEXT://127.0.0.1:0") as running:
        made = Guarded(Client(port), running.bootstrap)
        with made.cluster() as cluster:
            for user in (NOBODY, LEAVING):
                access.set_password(cluster, user, SECRET, SCRAM)
        first = made.client("POST", "/subjects/1/versions", {"schema": '"int"'}, Authorization=basic(ADMIN))
        assert first.status == 200, first
        yield made


def basic(user: str, secret: str = SECRET) -> str:
    return "Basic " + b64encode(f"{user}:{secret}".encode()).decode()


def names(route: Route) -> str:
    return f"{route.method} {route.path}"


@proves("http", "hostile")
def test_what_is_open_to_everybody_says_nothing() -> None:
    assert {route.path for route in ROUTES if route.open} == OPEN


@proves("http", "hostile")
@pytest.mark.parametrize("route", GUARDED, ids=names)
def test_no_route_answers_who_is_nobody_or_has_a_wrong_password(guarded: Guarded, route: Route) -> None:
    wrong = (
        None,
        basic(ADMIN, "wrong password"),
        basic("stranger"),
        basic(ADMIN, SECRET + " "),
        f"Bearer {token(Credentials(ADMIN, 'wrong password'))}",
        f"Bearer {token(Credentials('stranger', SECRET))}",
    )
    for authorization in wrong:
        got = guarded.ask(route, authorization)
        assert (got.status, got.headers["www-authenticate"][:5]) == (401, "Basic"), authorization


@proves("http", "hostile")
@pytest.mark.parametrize("route", GUARDED, ids=names)
def test_no_route_does_what_the_user_may_not(guarded: Guarded, route: Route) -> None:
    got = guarded.ask(route, basic(NOBODY))
    if route.path in SHOWN_TO_EVERY_USER:
        assert got.status == 200 and b'topic="' not in got.body
    else:
        assert got.status == 403, got


@proves("http", "hostile")
def test_a_token_is_over_on_every_route_when_its_user_is_deleted(guarded: Guarded) -> None:
    """It has been used, so that the gateway has connections open by it."""
    bearer = f"Bearer {token(Credentials(LEAVING, SECRET))}"
    assert guarded.client("GET", "/metrics", Authorization=bearer).status == 200
    assert guarded.client("GET", "/subjects", Authorization=bearer).json == ["1"]
    with guarded.cluster() as cluster:
        (user,) = access.users(cluster, [LEAVING])
        access.delete_user(cluster, user)
        deadline = time.monotonic() + PATIENCE_S
        while guarded.client("GET", "/metrics", Authorization=bearer).status != 401:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for route in GUARDED:
            assert guarded.ask(route, bearer).status == 401, names(route)
        # Whoever gets the name later is somebody else.
        access.set_password(cluster, LEAVING, "another secret", SCRAM)
        assert guarded.client("GET", "/subjects", Authorization=bearer).status == 401
