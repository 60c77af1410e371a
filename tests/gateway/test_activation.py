"""`tidelog up` and HTTP: it costs nothing until somebody asks, ends with the broker, and comes back after a crash."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError

import pytest

import tidelog
from crash.port import free_port
from gateway.running import PATIENCE_S, gone, up, wait_for
from gateway.serving import Client
from proving import proves
from tidelog.broker.activation import PAUSE_MAX_S, pause_s
from tidelog.errors import UsageError


@proves("http", "start_up")
def test_nothing_runs_until_somebody_asks_and_all_ends_with_the_broker(tmp_path: Path) -> None:
    port = free_port()
    with up(tmp_path, f"tidelog.http.listener=127.0.0.1:{port}") as running:
        assert running.children() == []
        assert Client(port)("GET", "/readyz").json == {"status": "ready"}
        [child] = running.children()
        assert running.end(signal.SIGTERM) == 0
        assert gone(child)
        assert "http ended" not in running.said()


@proves("http")
def test_it_is_killed_with_the_broker(tmp_path: Path) -> None:
    port = free_port()
    with up(tmp_path, f"tidelog.http.listener=127.0.0.1:{port}") as running:
        assert Client(port)("GET", "/healthz").status == 200
        [child] = running.children()
        running.end(signal.SIGKILL)
        wait_for(lambda: gone(child))


@proves("http")
def test_after_a_crash_it_comes_back_and_the_broker_notices_nothing(tmp_path: Path) -> None:
    port = free_port()
    with up(tmp_path, f"tidelog.http.listener=127.0.0.1:{port}") as running:
        client = Client(port)
        assert client("GET", "/healthz").status == 200
        [child] = running.children()
        child.kill()
        wait_for(lambda: "http ended code=-9" in running.said())
        seen = set()

        def back() -> bool:
            got = client("GET", "/healthz")
            seen.add(got.status)
            return got.status == 200

        wait_for(back)
        assert seen <= {200, 503}
        assert running.children() and running.children() != [child]
        assert running.end(signal.SIGTERM) == 0


@proves("http")
def test_pauses_between_starts_grow_and_are_bounded() -> None:
    pauses = [pause_s(failures) for failures in range(100)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 1 and pauses[-1] == PAUSE_MAX_S


@proves("http")
def test_a_default_port_that_is_taken_is_a_warning_and_one_that_was_set_an_error(tmp_path: Path) -> None:
    (tmp_path / "default").mkdir()
    (tmp_path / "set").mkdir()
    with socket.socket() as taken, socket.create_server(("127.0.0.1", 0)) as also:
        with suppress(OSError):  # somebody else's is as good, but not what is left of a connection that has ended
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", 8642))
            taken.listen()
        with up(tmp_path / "default") as running:
            assert "WARNING no http" in running.said() and "tidelog.http.listener" in running.said()
            assert running.end(signal.SIGTERM) == 0
        with up(tmp_path / "set", f"tidelog.http.listener=127.0.0.1:{also.getsockname()[1]}") as running:
            assert running.process.wait(PATIENCE_S) == 1
            assert "address already in use; set tidelog.http.listener" in running.said()


@proves("http")
def test_where_it_is_not_installed_the_answer_says_what_to_install(tmp_path: Path) -> None:
    port = free_port()
    missing = "sys.modules['uvicorn'] = None; "
    with up(tmp_path, f"tidelog.http.listener=127.0.0.1:{port}", before=missing) as running:
        for _ in range(3):
            got = Client(port)("GET", "/healthz")
            assert got.status == 503
            assert "pip install 'tidelog[http]'" in got.message
        assert running.said().count("http is not installed") == 1
        assert running.children() == []


@proves("http")
@pytest.mark.parametrize("in_process", [True, False])
def test_a_broker_in_a_program_has_http_when_asked(in_process: bool) -> None:
    settings = {"tidelog.http.listener": "127.0.0.1:0"}
    with tidelog.Broker(settings=settings, in_process=in_process) as broker:
        with urllib.request.urlopen(f"{broker.http}/readyz", timeout=PATIENCE_S) as answer:
            assert json.load(answer) == {"status": "ready"}
        with pytest.raises(HTTPError, match="404"):
            urllib.request.urlopen(f"{broker.http}/nothing", timeout=PATIENCE_S)


@proves("http")
def test_a_broker_in_a_program_has_no_http_unless_asked() -> None:
    with tidelog.Broker() as broker, pytest.raises(UsageError, match=r"tidelog\.http\.listener"):
        _ = broker.http
