"""How a run ends: by itself where nothing is left to run, with 1 after a fault for good, or when it is told."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from contract import TIMEOUT_S
from proving import proves
from tidelog.cli.run import say_in
from tidelog.client.cluster import Cluster
from tidelog.control import status
from tidelog.control.status import Command, read_status, send_command
from tidelog.errors import Disconnected, UsageError
from tidelog.logger import Logger
from tidelog.pipelines.running import LAG_EVERY_S, Run
from tidelog.pipelines.supervision import RUNNING, Fault, Watch
from tidelog.testing.broker import TestBroker


class Doomed:
    """A part that cannot be started, or one that runs until it is stopped."""

    kind = "query"

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name = name
        self.error = error
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")
        if self.error is not None:
            raise self.error

    def look(self) -> Fault | None:
        return None

    def stop(self) -> None:
        self.calls.append("stop")

    def figures(self) -> dict[str, Any]:
        return {"rows_in": 0}


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


def states(cluster: Cluster) -> dict[str, str]:
    return {one.name: one.figures["state"] for one in read_status(cluster) if one.kind == "query"}


def quietly(*_: object, **__: object) -> None:
    pass


@proves("P3")
def test_a_run_whose_only_part_failed_for_good_ends_with_1(ours: Cluster) -> None:
    part = Doomed("shop.a", UsageError("shop.py:3: no such column"))
    assert Run("shop", [part], ours, quietly).loop() == 1
    assert part.calls == ["start"], "a user's error is not tried again"
    assert states(ours) == {"shop.a": "failed"}


@proves("P3")
def test_a_part_that_failed_is_an_error_in_the_log_or_a_warning_where_it_is_tried_again(ours: Cluster) -> None:
    lines = StringIO()
    log = say_in(Logger(lines))

    def say(event: str, **fields: object) -> None:
        log(event, **fields)
        if fields.get("name") == "shop.b":
            run.stopping.set()

    parts = [Doomed("shop.a", UsageError("no such column")), Doomed("shop.b", Disconnected("no answer"))]
    run = Run("shop", parts, ours, say)
    run.loop()
    failed, tried_again, stopped = (line.partition(" ")[2] for line in lines.getvalue().splitlines())
    assert failed == "ERROR failed kind=query name=shop.a error='UsageError: no such column' again_in_s=None"
    assert tried_again == "WARNING failed kind=query name=shop.b error='Disconnected: no answer' again_in_s=0.5"
    assert stopped == "INFO stopped name=shop"


@proves("P3")
def test_a_run_that_is_told_to_stop_before_it_begins_starts_nothing(ours: Cluster) -> None:
    part = Doomed("shop.a")
    run = Run("shop", [part], ours, quietly)
    run.stopping.set()
    assert (run.loop(), part.calls, states(ours)) == (0, [], {"shop.a": "stopped"})


@proves("P3", "F1")
def test_a_part_that_was_paused_before_stays_paused_and_a_stopped_run_ends(ours: Cluster) -> None:
    send_command(ours, "query", "shop.b", "pause")
    told: list[str] = []
    parts = [Doomed("shop.a"), Doomed("shop.b")]

    def say(event: str, **fields: object) -> None:
        told.append(f"{event} {fields.get('name')}")
        if event == "started":
            send_command(ours, "app", "shop", "stop")

    assert Run("shop", parts, ours, say).loop() == 0
    assert [part.calls for part in parts] == [["start", "stop"], []]
    assert "pause shop.b" in told and states(ours) == {"shop.a": "stopped", "shop.b": "stopped"}


@proves("P3")
def test_a_run_that_begins_while_the_broker_is_away_obeys_no_command_of_long_ago(ours: Cluster) -> None:
    send_command(ours, "query", "shop.a", "stop")  # to a run that has ended since
    send_command(ours, "query", "shop.b", "pause")
    run = Run("shop", [Doomed("shop.a"), Doomed("shop.b")], ours, quietly)
    run._away_until = time.monotonic() + TIMEOUT_S
    run._listen(1.0)
    run._away_until = None
    run._listen(9.0)
    assert [run.watches["query", name].state for name in ("shop.a", "shop.b")] == ["waiting", "paused"]
    send_command(ours, "query", "shop.a", "stop")
    run._listen(17.0)
    assert run.watches["query", "shop.a"].state == "stopped", "one that comes now is obeyed"


class Slow(Doomed):
    """Comes to its end only beside the others."""

    def __init__(self, name: str, together: Barrier) -> None:
        super().__init__(name)
        self.together = together

    def stop(self) -> None:
        super().stop()
        self.together.wait(TIMEOUT_S)


@proves("P3", "F1")
def test_queries_are_stopped_side_by_side(ours: Cluster) -> None:
    together = Barrier(4)
    parts = [Slow(f"shop.{number}", together) for number in range(4)]
    told: list[str] = []

    def say(event: str, **_: object) -> None:
        told.append(event)
        if told.count("started") == len(parts):
            run.stopping.set()

    run = Run("shop", parts, ours, say)
    assert run.loop() == 0 and "was gone" not in told
    assert [part.calls for part in parts] == [["start", "stop"]] * 4


class Watched(Doomed):
    """Its stop comes to an end once the supervisor was told what it waits for."""

    def __init__(self, name: str, supervisor: socket.socket) -> None:
        super().__init__(name)
        self.supervisor = supervisor
        self.awaited = b""

    def stop(self) -> None:
        super().stop()
        self.supervisor.settimeout(TIMEOUT_S)
        while self.supervisor.recv(1000) != self.awaited:
            pass


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield systemd


@proves("P3", "F1")
def test_a_supervisor_is_told_while_a_run_stops_that_it_is_alive_and_needs_more_time(
    ours: Cluster, supervisor: socket.socket
) -> None:
    part, told = Watched("shop.a", supervisor), list[str]()
    part.awaited = b"WATCHDOG=1\nEXTEND_TIMEOUT_USEC=10000000"

    def say(event: str, **_: object) -> None:
        told.append(event)
        if event == "started":
            run.stopping.set()

    run = Run("shop", [part], ours, say)
    assert run.loop() == 0 and part.calls == ["start", "stop"] and "was gone" not in told


@proves("P3", "F1")
def test_a_supervisor_is_told_while_one_part_is_paused_that_the_run_is_alive(
    ours: Cluster, supervisor: socket.socket
) -> None:
    part, told = Watched("shop.a", supervisor), list[str]()
    run = Run("shop", [part], ours, lambda event, **_: told.append(event))
    run.watches["query", "shop.a"] = Watch(RUNNING)
    part.awaited = b"WATCHDOG=1"
    run._command(("query", "shop.a"), Command("query", "shop.a", "pause", {}, 0))
    assert part.calls == ["stop"] and told == ["pause"] and run.watches["query", "shop.a"].state == "paused"


@proves("P3", "F1")
def test_a_broker_that_is_away_is_waited_for_once_and_reported_to_when_it_is_back(
    tidelog_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, asked = list[str](), list[str]()
    with Cluster(tidelog_broker.bootstrap, timeout_s=1) as cluster:
        run = Run("shop", [Doomed(f"shop.{n}") for n in range(5)], cluster, lambda event, **_: told.append(event))
        run._report(time.monotonic())
        tidelog_broker.kill()
        write = status._write

        def counted(*arguments: Any) -> None:
            asked.append("report")
            write(*arguments)

        def lags() -> dict[Any, Any]:
            asked.append("lag")
            raise Disconnected("the broker is away")

        monkeypatch.setattr(status, "_write", counted)
        monkeypatch.setattr(run, "_all_lags", lags)
        for _ in range(3):
            run._report(time.monotonic() + LAG_EVERY_S, at_once=True)
            run._listen(time.monotonic() + LAG_EVERY_S)
        assert (asked, told) == (["lag"], ["broker"]), "one question, for all of them"
        tidelog_broker.start()
        monkeypatch.setattr(run, "_away_until", 0.0)
        monkeypatch.setattr(run, "_all_lags", dict)
        run._report(time.monotonic() + LAG_EVERY_S, at_once=True)
        assert asked[1:] == ["report"] * 6 and told[1:] == ["broker answers again"]
        assert set(states(cluster)) == {f"shop.{n}" for n in range(5)}


@proves("P3", "F1")
def test_a_report_in_vain_is_the_last_one_for_a_while(tidelog_broker: TestBroker) -> None:
    with Cluster(tidelog_broker.bootstrap, timeout_s=1) as cluster:
        run = Run("shop", [Doomed(f"shop.{n}") for n in range(5)], cluster, quietly)
        run._report(time.monotonic())
        tidelog_broker.kill()
        run._due["lag"] = math.inf
        run._report(time.monotonic(), at_once=True)
        assert [one.in_vain for one in run._reporters.values()] == [True, False, False, False, False]


class Wordy(Doomed):
    """Tells more than the broker takes in one record."""

    def figures(self) -> dict[str, Any]:
        return {"rows_in": "9" * (4 << 20)}


@proves("P3", "F1")
def test_a_report_that_the_broker_refuses_is_no_broker_that_is_away(ours: Cluster) -> None:
    told: list[str] = []
    parts = [Doomed("shop.a"), Wordy("shop.b"), Doomed("shop.c")]
    run = Run("shop", parts, ours, lambda event, **_: told.append(event))
    run._report(time.monotonic(), at_once=True)
    assert [one.in_vain for one in run._reporters.values()] == [False, False, False]
    assert set(states(ours)) == {"shop.a", "shop.c"}, "and the others are told of"
    assert [(one.kind, one.name) for one in read_status(ours) if one.kind == "app"] == [("app", "shop")]
    assert told == [], "nobody waits for it to answer again"


class Lost(Doomed):
    """A part whose Spark is gone: looking at it fails, and so does stopping it."""

    def look(self) -> Fault | None:
        raise ConnectionError("Spark has ended")

    def stop(self) -> None:
        raise ConnectionError("Spark has ended")


@proves("P3", "F1")
def test_a_run_whose_spark_is_gone_ends_with_1_and_says_so(ours: Cluster) -> None:
    told: list[str] = []
    run = Run("shop", [Lost("shop.a")], ours, lambda event, **fields: told.append(f"{event} {fields.get('error')}"))
    assert run.loop() == 1
    assert "failed ConnectionError: Spark has ended" in told and states(ours) == {"shop.a": "failed"}


@proves("P3", "F1")
def test_a_signal_that_has_ended_spark_as_well_is_a_clean_stop(ours: Cluster) -> None:
    def say(event: str, **_: object) -> None:
        if event == "started":
            run.stopping.set()

    run = Run("shop", [Lost("shop.a")], ours, say)
    run._looked_at = lambda part: None  # type: ignore[method-assign]  # stopped before it was looked at
    assert (run.loop(), states(ours)) == (0, {"shop.a": "stopped"})
