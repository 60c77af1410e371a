"""Many who want the same few places: whoever only holds one makes room, and guessing keeps no user waiting."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tidelog
from gateway.serving import SECONDS, Client, read_all, served
from proving import proves
from tidelog.client.admin import access
from tidelog.client.cluster import Cluster
from tidelog.client.security import SASL_PLAINTEXT, Security
from tidelog.gateway import protocol
from tidelog.gateway.limits import CALLS_PER_USER
from tidelog.gateway.route import Answer, Call, Route, as_json

PLACES = 8
GUESSES = 5 * CALLS_PER_USER
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{"


def alive(_call: Call) -> Answer:
    return as_json("alive")


class Blocked:
    """A route that answers when it is let to."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.free = threading.Event()

    def __call__(self, _call: Call) -> Answer:
        self.began.release()
        assert self.free.wait(SECONDS)
        return as_json("late")


@pytest.fixture
def blocked() -> Blocked:
    return Blocked()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, blocked: Blocked) -> Iterator[Client]:
    """A gateway with few places, where a connection may have to go at once."""
    monkeypatch.setattr(protocol, "CONNECTIONS_MAX", PLACES)
    monkeypatch.setattr(protocol, "EVICTED_AFTER_S", 0.0)
    table = (
        Route("GET", "/healthz", alive, "Alive", open=True, inline=True),
        Route("POST", "/echo", alive, "Echo", body={"type": "object"}),
        Route("GET", "/block", blocked, "Block"),
    )
    with served(table) as client:
        yield client


@proves("http", "hostile")
@pytest.mark.parametrize(
    "said", [b"", HEALTH, HEALTH + b"\r\n", POST], ids=["nothing", "a head", "a request", "a body"]
)
def test_connections_that_say_nothing_more_keep_nobody_out(small: Client, said: bytes) -> None:
    holding = [small.connect() for _ in range(PLACES)]
    try:
        for one in holding:
            one.sendall(said)
            if said.endswith(b"\r\n\r\n"):
                assert one.recv(4096)
        for _ in range(3):
            assert small("GET", "/healthz").status == 200
    finally:
        for one in holding:
            one.close()


@proves("http", "hostile")
def test_who_is_being_answered_keeps_its_place_and_the_newcomer_is_told(small: Client, blocked: Blocked) -> None:
    busy: list[socket.socket] = []
    try:
        for _ in range(PLACES):
            busy.append(small.connect())
            busy[-1].sendall(b"GET /block HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert blocked.began.acquire(timeout=SECONDS)
        assert small.raw(HEALTH + b"\r\n").startswith(b"HTTP/1.1 503 ")
        blocked.free.set()
        assert all(read_all(one).startswith(b"HTTP/1.1 200 ") for one in busy)
    finally:
        blocked.free.set()
        for one in busy:
            one.close()


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


@proves("http", "hostile")
def test_who_guesses_passwords_keeps_no_user_waiting(tmp_path: Path) -> None:
    """Under the user's own name too. Answers to wrong ones are held back for long, so that they hold their threads."""
    with tidelog.Broker(tmp_path / "data") as offline, Cluster(offline.bootstrap) as cluster:
        access.set_password(cluster, "alice", "right password", ("SCRAM-SHA-256",))
    began = threading.Semaphore(0)

    def who(call: Call) -> Answer:
        began.release()
        with call.cluster() as mine:
            mine.ask_metadata([])
        return as_json("in")

    settings = {"connection.failed.authentication.delay.ms": 500}
    guarded = tidelog.Broker(tmp_path / "data", listen="SASL_PLAINTEXT://127.0.0.1:0", settings=settings)
    with guarded as broker, ThreadPoolExecutor(GUESSES) as pool:
        security = Security(SASL_PLAINTEXT, user="-", password="-")
        with served((Route("GET", "/who", who, "Who"),), broker.bootstrap, security) as client:
            right = basic("alice", "right password")
            assert client("GET", "/who", Authorization=right).status == 200

            def guess(number: int) -> int:
                return client("GET", "/who", Authorization=basic("alice", f"wrong password {number}")).status

            wrong = [pool.submit(guess, number) for number in range(GUESSES)]
            for _ in range(CALLS_PER_USER + 2):  # the first of them have ended, so all others have come
                assert began.acquire(timeout=SECONDS)
            assert client("GET", "/who", Authorization=right).status == 200
            left = sum(not one.done() for one in wrong)
            assert {one.result(SECONDS) for one in wrong} == {401}
    assert left > CALLS_PER_USER, "it waited for all of them"
