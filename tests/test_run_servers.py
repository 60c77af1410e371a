"""A server of a run is one, whoever asks, and is gone when the last process of the run is, however that ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import gettempdir
from uuid import uuid4

import pytest

from against.apache_kafka import die_with_parent
from broker.test_embedded import is_running
from proving import proves
from run_servers import RUN, Facts

SECONDS = 120
ASKS = """
import sys
from run_servers import join, share
from broker.test_embedded import is_running
join()
for line in sys.stdin:
    facts = share("sleeper", line.strip(), lambda facts: is_running(facts["pid"]))
    print(facts["pid"], facts["keeper"], flush=True)
"""


class Sleeper:
    """A server that only lives."""

    def __init__(self, folder: Path) -> None:
        (folder / "data").touch()
        self._process = subprocess.Popen(["sleep", "600"], preexec_fn=die_with_parent)

    def facts(self) -> Facts:
        return {"pid": self._process.pid, "keeper": os.getpid()}

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def refuse(folder: Path) -> Sleeper:
    raise OSError("no room for a server")


class Process:
    """One of a run: it asks for the server by a line."""

    def __init__(self, run: str) -> None:
        environment = {**os.environ, RUN: run, "PYTHONPATH": str(Path(__file__).parent)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", ASKS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, start: str = "Sleeper") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{Path(__file__).stem}:{start}\n")
        self.process.stdin.flush()

    def answer(self) -> list[int]:
        assert self.process.stdout is not None
        return [int(word) for word in self.process.stdout.readline().split()]


@pytest.fixture
def run() -> str:
    return f"test-{uuid4().hex}"


def folder_of(run: str) -> Path:
    return Path(gettempdir()) / f"tidelog-run-{run}"


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@proves("run_servers")
def test_a_server_is_one_for_all_and_ends_with_the_last_of_them(run: str) -> None:
    with ExitStack() as stack:
        first, second = (Process(run) for _ in range(2))
        for one in (first, second):
            stack.enter_context(one.process)
            one.ask()
        server, keeper = first.answer()
        assert second.answer() == [server, keeper]
        first.process.kill()  # it may be the one that started it
        first.process.wait()
        second.ask()
        assert second.answer() == [server, keeper] and is_running(server)
        os.kill(keeper, signal.SIGKILL)
        until(lambda: not is_running(server))
        second.ask()
        another, keeper = second.answer()
        assert another != server and is_running(another)
        second.process.kill()
    until(lambda: not is_running(another) and not is_running(keeper))
    until(lambda: not folder_of(run).exists())


@proves("run_servers")
def test_a_server_that_does_not_start_says_why_and_leaves_nothing(run: str) -> None:
    one = Process(run)
    one.ask("refuse")
    _, said = one.process.communicate(timeout=SECONDS)
    assert one.process.returncode == 1
    assert "sleeper did not start" in said and "no room for a server" in said
    assert not folder_of(run).exists()
