"""A plain Python part under supervision: told of each second, paused and resumed, retried after a fault, and ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import pytest

from contract import TIMEOUT_S
from parts.plain import Counting
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control.status import read_status, send_command
from tidelog.errors import TidelogError, UsageError
from tidelog.parts.blocking import ENDED, ThreadPart
from tidelog.parts.running import run_part
from tidelog.testing.broker import TestBroker


class Running:
    """`run_part` in a thread, as a command would have it in its main one."""

    def __init__(self, bootstrap: str, part: Counting) -> None:
        self.stopping = Event()
        self.said: list[str] = []
        self.code: int | None = None
        self._thread = Thread(target=self._run, args=(bootstrap, part), daemon=True)
        self._thread.start()

    def _run(self, bootstrap: str, part: Counting) -> None:
        with Cluster(bootstrap) as cluster:
            self.code = run_part(part, cluster, say=self._say, stopping=self.stopping)

    def _say(self, event: str, **_: object) -> None:
        self.said.append(event)

    def ended(self) -> int | None:
        self._thread.join(TIMEOUT_S)
        return self.code


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def told(cluster: Cluster) -> dict[str, Any]:
    return next((one.figures for one in read_status(cluster) if one.kind == "capture"), {})


@proves("P3", "F1")
def test_a_plain_part_is_retried_paused_resumed_and_stopped_and_tells_its_numbers(
    tidelog_broker: TestBroker, ours: Cluster
) -> None:
    part = Counting("shop", ConnectionError("the database is away"))
    running = Running(tidelog_broker.bootstrap, part)
    until(lambda: told(ours).get("restarts") == 1 and told(ours)["state"] == "running")
    figures = told(ours)
    assert (figures["rows_out"], figures["lag"], figures["state_bytes"]) == (2, {"records": 3}, 70)
    assert figures["error"]["message"] == "ConnectionError: the database is away" and figures["database"] == "shop"
    assert abs(figures["last_error_ms"] - time.time() * 1000) < 600_000
    send_command(ours, "capture", "shop", "pause")
    until(lambda: told(ours)["state"] == "paused")
    assert not part.works.is_set()
    send_command(ours, "capture", "shop", "resume")
    until(part.works.is_set)
    send_command(ours, "capture", "shop", "stop")
    assert (running.ended(), told(ours)["state"]) == (0, "stopped")
    assert running.said == ["started", "failed", "started", "pause", "resume", "started", "stop", "stopped"]
    assert {one.kind for one in read_status(ours)} <= {"broker", "capture"}, "it is of no app"


@proves("P3")
def test_a_plain_part_with_a_users_error_has_failed_for_good_and_ends_with_1(
    tidelog_broker: TestBroker, ours: Cluster
) -> None:
    part = Counting("shop", UsageError("no table orders"))
    assert Running(tidelog_broker.bootstrap, part).ended() == 1
    assert (part.runs, told(ours)["state"], told(ours)["error"]["message"]) == (
        1,
        "failed",
        "UsageError: no table orders",
    )


@proves("P3")
def test_a_plain_part_ends_with_its_process(tidelog_broker: TestBroker, ours: Cluster) -> None:
    part = Counting("shop")
    running = Running(tidelog_broker.bootstrap, part)
    until(part.works.is_set)
    running.stopping.set()
    assert (running.ended(), told(ours)["state"], part.works.is_set()) == (0, "stopped", False)


class Deaf(Counting):
    """It goes on, whatever it is told, until the test ends it."""

    end = Event()

    def run(self, stopping: Event) -> None:
        self.works.set()
        self.end.wait()


@proves("P3")
def test_a_loop_that_does_not_end_is_not_started_a_second_time_beside_itself() -> None:
    deaf = Deaf("shop")
    part = ThreadPart(deaf, end_s=0.01)
    part.start()
    until(deaf.works.is_set)
    with pytest.raises(TidelogError, match=r"told to end, and has not for 0\.01 s"):
        part.stop()
    with pytest.raises(TidelogError, match="has not ended yet"):
        part.start()
    deaf.end.set()
    until(lambda: part.look() is not None)
    assert part.look() == ENDED, "that nobody had told it to"
