"""How a run ends: by itself where nothing is left to run, with 1 after a fault for good, or when it is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.status import read_status, send_command
from tidelog.errors import UsageError
from tidelog.pipelines.running import Run
from tidelog.pipelines.supervision import Fault
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
