"""Whoever sends nonsense, too much, too slowly or in another's name gets a short answer and holds nobody up."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import psutil
import pytest

from against.patience import eventually
from gateway.serving import SECONDS, Client, GatewayProcess, read_all, served
from proving import proves
from tidelog.gateway import app, protocol
from tidelog.gateway.limits import (
    CALLS_MAX,
    CALLS_PER_USER,
    CONNECTIONS_MAX,
    HEAD_MAX_BYTES,
    HEADERS_MAX,
    TARGET_MAX_BYTES,
)
from tidelog.gateway.route import Answer, Call, Route, Stream, as_json

MEMORY_BYTES = 64 << 20
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
SOON_S = 0.4
LOST = b"HTTP/1.1 0 nothing came"  # a connection that was ended while its client still sent


def echo(call: Call) -> Answer:
    return as_json({"path": dict(call.path), "query": dict(call.query), "bytes": len(call.body)})


def fail(_call: Call) -> Answer:
    raise RuntimeError("a secret of the inside")


def large(_call: Call) -> Answer:
    return Answer(bytes(64 << 20), "application/octet-stream")


def alive(_call: Call) -> Answer:
    return as_json("alive")


TABLE = (
    Route("GET", "/healthz", alive, "Alive", open=True, inline=True),
    Route("GET", "/echo/{name}", echo, "Echo"),
    Route("POST", "/echo/{name}", echo, "Echo", body={"type": "object"}),
    Route("GET", "/fail", fail, "Fail"),
    Route("GET", "/large", large, "Much"),
)


@pytest.fixture(scope="module")
def own() -> Iterator[Client]:
    with served(TABLE) as client:
        yield client


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A gateway that gives senders and readers less than half a second."""
    monkeypatch.setattr(protocol, "HEAD_WITHIN_S", SOON_S)
    monkeypatch.setattr(protocol, "SENT_WITHIN_S", SOON_S)
    monkeypatch.setattr(app, "BODY_WITHIN_S", SOON_S)
    with served(TABLE) as client:
        yield client


def status_of(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer.split(b" ", 2)[1])


# Too much ------------------------------------------------------------------------------------------------------------


@proves("http")
@pytest.mark.parametrize("size", [HEAD_MAX_BYTES + 1, 200_000, 5_000_000])
def test_headers_that_are_too_large_are_refused(client: Client, size: int) -> None:
    answer = client.raw(HEALTH + b"Connection: close\r\nX-Bomb: " + b"x" * size + b"\r\n\r\n")
    assert not answer or status_of(answer) == 431  # nothing: the end came while the client still sent


@proves("http")
def test_headers_that_never_end_are_refused_and_cost_no_memory(gateway: GatewayProcess) -> None:
    process = psutil.Process(gateway.process.pid)
    before = process.memory_info().rss
    for _ in range(20):
        with gateway.client.connect() as connected:
            connected.sendall(HEALTH)
            try:
                for number in range(2000):
                    connected.sendall(b"X-%d: %s\r\n" % (number, b"x" * 1000))
            except OSError:
                pass
    assert gateway.client("GET", "/healthz").status == 200
    assert process.memory_info().rss - before < MEMORY_BYTES


@proves("http")
def test_too_many_headers_and_too_long_a_path_are_refused(client: Client) -> None:
    many = b"".join(b"X-%d: 1\r\n" % number for number in range(HEADERS_MAX))
    assert status_of(client.raw(HEALTH + many + b"Connection: close\r\n\r\n")) == 431
    assert client("GET", "/" + "x" * TARGET_MAX_BYTES).status == 414
    assert client("GET", "/healthz?" + "x" * TARGET_MAX_BYTES).status == 414


@proves("http")
def test_a_body_that_is_too_large_is_refused_before_it_is_sent(own: Client) -> None:
    head = b"POST /echo/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for size in (b"1048577", b"10000000000"):
        answer = own.raw(head + b"Content-Length: " + size + b"\r\nExpect: 100-continue\r\n\r\n")
        assert status_of(answer) == 413, answer
        assert b"100 Continue" not in answer


@proves("http")
def test_a_body_without_end_is_refused_and_costs_no_memory(gateway: GatewayProcess) -> None:
    process = psutil.Process(gateway.process.pid)
    before = process.memory_info().rss
    with gateway.client.connect() as connected:
        connected.sendall(HEALTH.replace(b"GET", b"POST") + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(300):
                connected.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        except OSError:
            pass
    assert gateway.client("GET", "/healthz").status == 200
    assert process.memory_info().rss - before < MEMORY_BYTES


@proves("http")
def test_a_body_that_is_refused_halfway_is_answered_all_the_same(own: Client) -> None:
    got = own("POST", "/echo/a", b"x" * 3_000_000, Content_Type="application/json")
    assert got.status == 413
    assert "1048576 bytes at most" in got.message


@proves("http")
@pytest.mark.slow
def test_a_thousand_connections_are_served_and_more_are_told(own: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_WITHIN_S", SECONDS)  # it may take long until all of them are there
    monkeypatch.setattr(protocol, "EVICTED_AFTER_S", SECONDS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    connected = [own.connect() for _ in range(CONNECTIONS_MAX + 50)]
    try:
        for one in connected:
            one.sendall(HEALTH + b"\r\n")
        statuses = [status_of(one.recv(4096)) for one in connected]
        assert statuses.count(200) >= CONNECTIONS_MAX - 10
        assert statuses.count(503) >= 40
        assert set(statuses) == {200, 503}
    finally:
        for one in connected:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    deadline = time.monotonic() + SECONDS
    while own("GET", "/healthz").status != 200:
        assert time.monotonic() < deadline


# Too slowly ----------------------------------------------------------------------------------------------------------


@proves("http")
def test_slow_headers_end_their_connection_and_hold_up_nobody(hasty: Client) -> None:
    slow = []
    for number in range(50):
        slow.append(hasty.connect())
        if number % 2:
            with suppress(ConnectionError):  # its end has come before
                slow[-1].sendall(HEALTH)  # the others say nothing at all
    eventually(lambda: status_of(hasty.raw(HEALTH + b"Connection: close\r\n\r\n") or LOST) == 200)
    answers = [read_all(one) for one in slow]
    for one in slow:
        one.close()
    assert {status_of(answer) for answer in answers if answer} == {408}


@proves("http")
def test_a_second_request_may_not_be_slow_either(hasty: Client) -> None:
    def answers() -> list[int]:
        """To the first and to the second, if this machine was quick enough for them to be told."""
        with suppress(ConnectionError), hasty.connect() as connected:
            connected.sendall(HEALTH + b"\r\n")
            first = connected.recv(4096)
            while first and b"alive" not in first and (more := connected.recv(4096)):
                first += more
            connected.sendall(b"GET /heal")
            return [status_of(first or LOST), status_of(read_all(connected) or LOST)]
        return []

    eventually(answers, lambda seen: seen == [200, 408])


@proves("http")
def test_a_slow_body_ends_its_request(hasty: Client) -> None:
    head = b"POST /echo/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    assert eventually(lambda: status_of(hasty.raw(head + b"{") or LOST), lambda status: status > 0) == 408


@proves("http")
def test_an_answer_that_is_not_taken_ends_its_connection(hasty: Client) -> None:
    def begun() -> socket.socket | None:
        """None: the machine was so slow that the request came too late."""
        connected = hasty.connect()
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with suppress(ConnectionError):
            connected.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if status_of(connected.recv(1024) or LOST) == 200:
                return connected
        connected.close()
        return None

    connected = eventually(begun)
    assert connected is not None
    with connected:
        eventually(lambda: own_connections(hasty.port), lambda left: not left)


def own_connections(port: int) -> list[object]:
    """The gateway's side of connections that are open; it runs in this process."""
    found = psutil.Process().net_connections("tcp")
    return [one for one in found if one.laddr.port == port and one.status == psutil.CONN_ESTABLISHED]


@proves("http")
def test_slow_handlers_hold_up_neither_health_nor_other_users() -> None:
    """All requests of one user are there; as one ends, the next begins, and never more than are for one."""
    gate, began, lock = threading.Semaphore(0), threading.Semaphore(0), threading.Lock()
    at_once = [0, 0]  # now, and at most

    def block(_call: Call) -> Answer:
        with lock:
            at_once[0] += 1
            at_once[1] = max(at_once)
        began.release()
        assert gate.acquire(timeout=SECONDS)
        with lock:
            at_once[0] -= 1
        return as_json("late")

    table = (*TABLE, Route("GET", "/block", block, "Block"))
    with served(table) as client:
        got: list[int] = []
        slow = [threading.Thread(target=lambda: got.append(client("GET", "/block").status)) for _ in range(CALLS_MAX)]
        for one in slow:
            one.start()
        for _ in range(CALLS_PER_USER):
            assert began.acquire(timeout=SECONDS)
        eventually(lambda: len(own_connections(client.port)), lambda count: count == CALLS_MAX)
        assert client("GET", "/healthz").status == 200
        assert client("GET", "/echo/a", Authorization="Basic YTpi").status == 200
        for _ in range(CALLS_MAX - CALLS_PER_USER):
            gate.release()
            assert began.acquire(timeout=SECONDS)
        for _ in range(CALLS_PER_USER):
            gate.release()
        for one in slow:
            one.join()
        assert got == [200] * CALLS_MAX
        assert at_once == [0, CALLS_PER_USER], "one user has more threads than are for one"


@proves("http")
def test_a_handler_that_takes_too_long_is_answered_for() -> None:
    wait = threading.Event()

    def block(_call: Call) -> Answer:
        wait.wait(SECONDS)
        return as_json("late")

    with served((Route("GET", "/block", block, "Block", within_s=SOON_S),)) as client:
        got = client("GET", "/block")
        wait.set()
    assert got.status == 504
    assert "try again" in got.message


# In another's name, and by other ways --------------------------------------------------------------------------------


@proves("http")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[::2]",
        "localhost@evil",
        "",
        "0.0.0.0",
        "[::1",
    ],
)
def test_only_names_of_ours_are_answered(client: Client, host: str) -> None:
    answer = client.raw(b"GET /healthz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host.encode())
    assert status_of(answer) in (400, 421)


@proves("http")
@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8642", "127.0.0.1", "127.0.0.1:1", "[::1]:8642", "localhost."]
)
def test_names_of_this_machine_are_answered(client: Client, host: str) -> None:
    assert client("GET", "/healthz", Host=host).status == 200


@proves("http")
def test_a_name_that_was_set_is_answered() -> None:
    with served(TABLE, hosts=("gateway.example",)) as client:
        assert client("GET", "/healthz", Host="Gateway.Example:8642").status == 200
        assert client("GET", "/healthz", Host="other.example").status == 421


@proves("http")
def test_a_page_of_our_own_may_ask(client: Client) -> None:
    ours = f"http://127.0.0.1:{client.port}"
    assert client("GET", "/healthz", Origin=ours, Sec_Fetch_Site="same-origin").status == 200
    assert client("GET", "/healthz", Origin=f"http://127.0.0.1:{client.port + 1}").status == 403
    assert client("GET", "/healthz", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200
    assert client("GET", "/healthz", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="no-cors").status == 403


@proves("http")
@pytest.mark.parametrize(
    "target",
    b"/../healthz /./healthz //healthz /%2e%2e/healthz /healthz/ /healthz/.. /healthz%00 /%ff%fe * /healthz#x"
    b" http://evil.example/healthz /%0d%0aX:1 /\\healthz /healthz;x".split(),
)
def test_no_trick_with_a_path_leads_anywhere(client: Client, target: bytes) -> None:
    answer = client.raw(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % target)
    assert status_of(answer) in (400, 404)


@proves("http")
def test_an_encoded_slash_is_part_of_a_name(own: Client) -> None:
    assert own("GET", "/echo/a%2Fb%20%C3%A9").json["path"] == {"name": "a/b é"}
    assert own("GET", "/echo/a/b").status == 404
    assert own("GET", "/echo/%252e%252e").json["path"] == {"name": "%2e%2e"}
    assert own("GET", "/echo/{name}").json["path"] == {"name": "{name}"}


@proves("http")
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"\x00\x00\x00\x12\x00\x12\x00\x03" + bytes(14),
        b"GET\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nbad name: 1\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"GET / HTTP/1.1\nHost: localhost\n\n\x00",
    ],
)
def test_what_is_no_request_is_refused_and_ends_the_connection(client: Client, request_bytes: bytes) -> None:
    assert status_of(client.raw(request_bytes)) in (400, 404, 421, 501, 505)
    assert client("GET", "/healthz").status == 200


@proves("http")
def test_a_second_request_cannot_hide_in_the_first_ones_body(own: Client) -> None:
    hidden = b"GET /fail HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"POST /echo/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n" % len(hidden)
    answer = own.raw(head + both + hidden)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"secret" not in answer


@proves("http")
def test_requests_in_one_packet_are_answered_in_their_order(own: Client) -> None:
    second = b"GET /echo/b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = own.raw(second.replace(b"/b", b"/a").replace(b"Connection: close\r\n", b"") + second)
    assert answer.index(b'"name":"a"') < answer.index(b'"name":"b"')


@proves("http")
def test_a_fault_of_ours_tells_nothing_of_the_inside(own: Client) -> None:
    got = own("GET", "/fail")
    assert got.status == 500
    assert b"secret" not in got.body and b"RuntimeError" not in got.body and "log" in got.message


@proves("http")
@pytest.mark.parametrize(
    "header", ["Basic", "Basic !!!", "Basic bm9jb2xvbg==", "Digest x", "Bearer", "Basic OnNlY3JldA=="]
)
def test_credentials_that_are_none_are_refused(own: Client, header: str) -> None:
    got = own("GET", "/echo/a", Authorization=header)
    assert got.status == 401
    assert got.headers["www-authenticate"].startswith("Basic")


@proves("http")
def test_the_log_has_no_secrets(gateway: GatewayProcess) -> None:
    deadline = time.monotonic() + SECONDS
    while "path=/nothing status=404" not in gateway.said():  # lines of a kind are so many a second and no more
        assert time.monotonic() < deadline
        gateway.client("GET", "/nothing?token=QUERYSECRET", Authorization="Bearer TOKENSECRET", Cookie="COOKIESECRET")
        gateway.client("GET", "/nothing", Authorization="Basic dXNlcjpQQVNTU0VDUkVU")
        time.sleep(0.2)
    said = gateway.said()
    assert "SECRET" not in said and "dXNlcjpQQVNTU0VDUkVU" not in said


# Going on for long ---------------------------------------------------------------------------------------------------


@proves("http")
def test_a_stream_goes_on_until_its_client_goes() -> None:
    ended = threading.Event()

    async def ticks() -> AsyncIterator[bytes]:
        import asyncio

        try:
            while True:
                yield b"data: tick\n\n"
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    def said(client: Client) -> bytes:
        """Nothing: the machine was so slow that it did not begin in time."""
        with client.connect() as connected:
            connected.sendall(b"GET /ticks HTTP/1.1\r\nHost: localhost\r\n\r\n")
            told = b""
            until = time.monotonic() + 2 * SOON_S
            while time.monotonic() < until or told.count(b"data: tick") < 3:
                told += (more := connected.recv(4096))
                if status_of(told) == 504:
                    return b""
                assert more, told
            return told

    with served((Route("GET", "/ticks", lambda _call: Stream(ticks()), "Ticks", within_s=SOON_S),)) as client:
        assert b"text/event-stream" in eventually(lambda: said(client))
        assert ended.wait(SECONDS)
