"""How a run ends: by itself where nothing is left to run, with 1 after a fault for good, or when it is told."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from contract import TIMEOUT_S
from parts.plain import Doomed
from proving import proves
from tidelog.cli.run import say_in
from tidelog.client.cluster import Cluster
from tidelog.control import status
from tidelog.control.health import RUNNING
from tidelog.control.status import Command, read_status, send_command
from tidelog.errors import Disconnected, UsageError
from tidelog.logger import Logger
from tidelog.parts.part import Fault, Part, Say
from tidelog.parts.running import COMMANDS_EVERY_S, Supervisor
from tidelog.parts.supervision import Watch
from tidelog.testing.broker import TestBroker


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


def states(cluster: Cluster) -> dict[str, str]:
    return {one.name: one.figures["state"] for one in read_status(cluster) if one.kind == "query"}


def supervised(parts: Sequence[Part], cluster: Cluster, say: Say) -> Supervisor:
    return Supervisor(list(parts), cluster, say, app="shop")


def quietly(*_: object, **__: object) -> None:
    pass


@proves("P3")
def test_a_run_whose_only_part_failed_for_good_ends_with_1(ours: Cluster) -> None:
    part = Doomed("shop.a", UsageError("shop.py:3: no such column"))
    assert supervised([part], ours, quietly).loop() == 1
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
    run = supervised(parts, ours, say)
    run.loop()
    failed, tried_again, stopped = (line.partition(" ")[2] for line in lines.getvalue().splitlines())
    assert failed == "ERROR failed kind=query name=shop.a error='UsageError: no such column'"
    assert tried_again == "WARNING failed kind=query name=shop.b error='Disconnected: no answer' again_in_s=0.5"
    assert stopped == "INFO stopped name=shop"


class Overtaken(Doomed):
    """Another one has its name by now."""

    def fault_of(self, error: Exception) -> Fault:
        return Fault(str(error), final=True, superseded=True)


@proves("P3")
def test_a_part_whose_name_is_anothers_by_now_tells_nothing_by_it(ours: Cluster) -> None:
    status.Reporter(ours, "query", "shop.a").tell({"state": "running", "by": "the other"})
    assert supervised([Overtaken("shop.a", UsageError("another has begun"))], ours, quietly).loop() == 1
    assert states(ours) == {"shop.a": "running"}


@proves("P3")
def test_a_process_that_its_run_has_paused_is_shown_as_paused_and_not_as_stopped(ours: Cluster) -> None:
    child = Doomed("shop.a")
    child.reports_as = "revenue.a"
    run = supervised([child], ours, quietly)
    status.Reporter(ours, "query", "revenue.a").tell({"state": "stopped", "ended": True})
    run.step(("query", "shop.a"), time.monotonic())
    run.obey(("query", "shop.a"), Command("query", "revenue.a", "pause", {}, 0))
    run.report()
    assert (states(ours), child.calls) == ({"revenue.a": "paused"}, ["start", "stop"])


@proves("P3")
def test_a_run_that_is_told_to_stop_before_it_begins_starts_nothing(ours: Cluster) -> None:
    part = Doomed("shop.a")
    run = supervised([part], ours, quietly)
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

    assert supervised(parts, ours, say).loop() == 0
    assert [part.calls for part in parts] == [["start", "stop"], []]
    assert "pause shop.b" in told and states(ours) == {"shop.a": "stopped", "shop.b": "stopped"}


@proves("P3")
def test_a_run_that_begins_while_the_broker_is_away_obeys_no_command_of_long_ago(ours: Cluster) -> None:
    send_command(ours, "query", "shop.a", "stop")  # to a run that has ended since
    send_command(ours, "query", "shop.b", "pause")
    run = supervised([Doomed("shop.a"), Doomed("shop.b")], ours, quietly)
    run.link.away_until = time.monotonic() + TIMEOUT_S
    run.listen(1.0)
    run.link.away_until = None
    run.listen(9.0)
    assert [run.watches["query", name].state for name in ("shop.a", "shop.b")] == ["starting", "paused"]
    send_command(ours, "query", "shop.a", "stop")
    run.listen(17.0)
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

    run = supervised(parts, ours, say)
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

    run = supervised([part], ours, say)
    assert run.loop() == 0 and part.calls == ["start", "stop"] and "was gone" not in told


@proves("P3", "F1")
def test_a_supervisor_is_told_while_one_part_is_paused_that_the_run_is_alive(
    ours: Cluster, supervisor: socket.socket
) -> None:
    part, told = Watched("shop.a", supervisor), list[str]()
    run = supervised([part], ours, lambda event, **_: told.append(event))
    run.watches["query", "shop.a"] = Watch(RUNNING)
    part.awaited = b"WATCHDOG=1"
    run.obey(("query", "shop.a"), Command("query", "shop.a", "pause", {}, 0))
    assert part.calls == ["stop"] and told == ["pause"] and run.watches["query", "shop.a"].state == "paused"


@proves("P3", "F1")
def test_a_broker_that_is_away_is_waited_for_once_and_reported_to_when_it_is_back(
    tidelog_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, asked = list[str](), list[str]()
    with Cluster(tidelog_broker.bootstrap, timeout_s=1) as cluster:
        run = supervised([Doomed(f"shop.{n}") for n in range(5)], cluster, lambda event, **_: told.append(event))
        run.report()
        tidelog_broker.kill()
        write = status._write

        def counted(*arguments: Any) -> None:
            asked.append("report")
            write(*arguments)

        def commands() -> list[Command]:
            asked.append("commands")
            raise Disconnected("the broker is away")

        monkeypatch.setattr(status, "_write", counted)
        monkeypatch.setattr(run._commands, "first", commands)
        for number in range(3):
            run.listen(time.monotonic() + number * COMMANDS_EVERY_S)
            run.report(at_once=True)
        assert (asked, told) == (["commands"], ["broker"]), "one question, for all of them"
        tidelog_broker.start()
        run.link.away_until = 0.0
        run.report(at_once=True)
        assert asked[1:] == ["report"] * 6 and told[1:] == ["broker answers again"]
        assert set(states(cluster)) == {f"shop.{n}" for n in range(5)}


@proves("P3", "F1")
def test_a_report_in_vain_is_the_last_one_for_a_while(tidelog_broker: TestBroker) -> None:
    with Cluster(tidelog_broker.bootstrap, timeout_s=1) as cluster:
        run = supervised([Doomed(f"shop.{n}") for n in range(5)], cluster, quietly)
        run.report()
        tidelog_broker.kill()
        run.report(at_once=True)
        assert [one.in_vain for one in run.link.reporters.values()] == [True, False, False, False, False, False]


class Wordy(Doomed):
    """Tells more than the broker takes in one record."""

    def figures(self) -> dict[str, Any]:
        return {"rows_in": "9" * (4 << 20)}


@proves("P3", "F1")
def test_a_report_that_the_broker_refuses_is_no_broker_that_is_away(ours: Cluster) -> None:
    told: list[str] = []
    parts = [Doomed("shop.a"), Wordy("shop.b"), Doomed("shop.c")]
    run = supervised(parts, ours, lambda event, **_: told.append(event))
    run.report(at_once=True)
    assert not any(one.in_vain for one in run.link.reporters.values())
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
    run = supervised([Lost("shop.a")], ours, lambda event, **fields: told.append(f"{event} {fields.get('error')}"))
    assert run.loop() == 1
    assert "failed ConnectionError: Spark has ended" in told and states(ours) == {"shop.a": "failed"}


@proves("P3", "F1")
def test_a_signal_that_has_ended_spark_as_well_is_a_clean_stop(ours: Cluster) -> None:
    def say(event: str, **_: object) -> None:
        if event == "started":
            run.stopping.set()

    run = supervised([Lost("shop.a")], ours, say)
    run._look_at = lambda part: None  # type: ignore[method-assign]  # stopped before it was looked at
    assert (run.loop(), states(ours)) == (0, {"shop.a": "stopped"})


class Crashing(Doomed):
    """Is started, and has a fault before it has worked: a crash loop. Once it is mended, it works."""

    mended = False

    def look(self) -> Fault | None:
        return None if self.mended else Fault("Disconnected: away", final=False)

    def has_worked(self) -> bool:
        return self.mended


@proves("P3", "F1")
def test_a_part_in_a_crash_loop_is_told_as_retrying_at_every_look_with_the_time_of_its_next_try(ours: Cluster) -> None:
    part = Crashing("shop.a")
    run, now = supervised([part], ours, quietly), 0.0
    key = (part.kind, part.name)
    run.step(key, now)
    for turn in range(4):
        now += 100.0
        run.step(key, now)
        told = run.figures(key)
        assert told["state"] == "retrying", turn
        assert told["error"]["message"] == "Disconnected: away"
        assert (told["next_try_ms"] is None) == (run.watches[key].state == "running"), "while it waits"
    assert run.figures(key)["restarts"] == 2
    part.mended = True
    now += 100.0
    run.step(key, now)
    run.step(key, now)
    assert (run.figures(key)["state"], run.figures(key)["next_try_ms"]) == ("running", None)


class Apart(Doomed):
    """A process of its own, which tells of itself."""

    kind = "applier"
    reports_as = "revenue.sqlite-shop"


@proves("P3", "F1")
def test_a_part_that_tells_of_itself_is_not_told_of_and_obeys_by_either_name(ours: Cluster) -> None:
    part = Apart("shop.revenue")
    run = supervised([part], ours, quietly)
    run.step(("applier", "shop.revenue"), 0.0)
    for number, (name, command, state) in enumerate(
        [("revenue.sqlite-shop", "pause", "paused"), ("shop.revenue", "resume", "starting")]
    ):
        send_command(ours, "applier", name, command)
        run.listen(number * COMMANDS_EVERY_S)
        assert run.watches["applier", "shop.revenue"].state == state
    run.report(at_once=True)
    assert [one.name for one in read_status(ours) if one.kind == "applier"] == []


@proves("P3", "metrics")
def test_an_app_tells_how_often_its_parts_were_started_again(ours: Cluster) -> None:
    run = supervised([Doomed("shop.a", Disconnected("away")), Doomed("shop.b")], ours, quietly)
    for now in (0.0, 100.0):
        for key in run.parts:
            run.step(key, now)
    run.report(at_once=True)
    told = {one.kind: one.figures for one in read_status(ours) if one.name in ("shop", "shop.a")}
    assert told["app"]["restarts"] == 2 and told["query"]["restarts"] == 2
    assert (told["query"]["state"], told["query"]["error"]["message"]) == ("retrying", "Disconnected: away")
