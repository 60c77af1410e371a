"""Appliers when somebody dies: the applier at each of its steps and at random, the broker, the store.

And one that is stopped, and wakes up when a successor has been at work. Each is a process of its own: `tidelog apply`,
or one that kills itself. Whatever happened, the view is that of a mark, and in the end it is all there, once.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from client.dying import DyingNetwork
from contract import TIMEOUT_S
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control.health import told_state
from tidelog.control.status import STATUS, read_status
from tidelog.testing.broker import TestBroker
from tidelog.views.applier import Applier
from tidelog.views.stores import sqlite
from tidelog.views.stores.sqlite import SqliteStore
from views.applying import applying, shown, until, until_applied
from views.writing import Oracle, Pipeline, declare_view

STEPS_MAX = 400


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "views.db"


@pytest.fixture
def url(file: Path) -> str:
    return f"sqlite:///{file}"


class Process:
    """`tidelog apply revenue`."""

    def __init__(self, broker: TestBroker, url: str, *words: str) -> None:
        line = [sys.executable, "-m", "tidelog", "apply", "revenue", "--store", url, *words]
        environment = {**os.environ, "TIDELOG_BOOTSTRAP": broker.bootstrap}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(line, env=environment, **pipes)  # type: ignore[call-overload]

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Exit code, and what it complained of."""
        _, said = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, said.decode()


@pytest.fixture
def start(tidelog_broker: TestBroker, url: str) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def begin(*words: str) -> Process:
        started.append(Process(tidelog_broker, url, *words))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.send(signal.SIGKILL)
            one.end()


def begun(cluster: Cluster, partitions: int = 2) -> tuple[Pipeline, Oracle]:
    view = declare_view(cluster, "revenue", partitions=partitions)
    pipeline, oracle = Pipeline(cluster, view.generations[0]), Oracle()
    oracle.after[tuple((at, 0) for at in pipeline.partitions)] = {}
    return pipeline, oracle


def write(pipeline: Pipeline, oracle: Oracle, number: int) -> None:
    rows = {f"p{number % 5}-{item}": None if number % 4 == 3 else number for item in range(4)} | {"all": number}
    oracle.note(rows, pipeline.batch(rows))


def check(url: str, oracle: Oracle) -> None:
    """What a reader sees is the view after some micro-batch."""
    now = shown(url)
    assert now is None or now.rows == oracle.at(now.ends)


# The applier ----------------------------------------------------------------------------------------------------------


class DyingStore(SqliteStore):
    """Kills its process before statement number `step` of SQLite."""

    def __init__(self, path: Path, view: str, step: int) -> None:
        super().__init__(path, view)
        self._left = step

    def _open(self, *, make: bool) -> sqlite3.Connection | None:
        connection = super()._open(make=make)
        if connection is not None:
            connection.set_trace_callback(self._count)
        return connection

    def _count(self, _statement: str) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def apply_until(bootstrap: str, file: Path, ends: object, *, network: int = 0, statement: int = 0) -> bool:
    """One applier, in a child; whether it died at that step, of its requests or of its statements."""

    def instance() -> None:
        dial = {"dial": DyingNetwork(network)} if network else {}
        store = DyingStore(file, "revenue", statement) if statement else SqliteStore(file, "revenue")
        with Cluster(bootstrap, timeout_s=TIMEOUT_S, **dial) as cluster:  # type: ignore[arg-type]
            applier = Applier(cluster, "revenue", store, store_name="s", max_wait_ms=20)
            for _ in range(STEPS_MAX):
                applier.step()
                place = store.place(1)
                if place is not None and place.ends == ends and store.shown() == 1:
                    os._exit(0)
        os._exit(1)

    process = multiprocessing.get_context("fork").Process(target=instance)
    process.start()
    process.join(TIMEOUT_S)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


@proves("eo.16", "eo.19", "F2", "F3")
@pytest.mark.parametrize("kind", [pytest.param("network", marks=pytest.mark.slow), "statement"])
def test_an_applier_dies_at_each_of_its_steps_and_its_successor_goes_on(
    tidelog_broker: TestBroker, cluster: Cluster, file: Path, url: str, kind: str
) -> None:
    pipeline, oracle = begun(cluster)
    write(pipeline, oracle, 0)
    deaths, step = 0, 0
    for number in range(1, STEPS_MAX):
        step += 1 + number // 12  # every early step, then wider: later ones repeat the loop
        write(pipeline, oracle, number)
        assert pipeline.last is not None
        if not apply_until(tidelog_broker.bootstrap, file, pipeline.last.ends, **{kind: step}):
            break
        deaths += 1
        check(url, oracle)
    assert deaths > 10
    assert shown(url) == (oracle.now, pipeline.last.ends, 1)  # type: ignore[union-attr]


@proves("eo.16", "eo.20", "F2", "F3")
@pytest.mark.slow
def test_appliers_killed_at_random_leave_whole_micro_batches(
    cluster: Cluster, url: str, start: Callable[..., Process], seed: int
) -> None:
    pipeline, oracle = begun(cluster, partitions=3)
    chance = random.Random(seed)
    number = 0
    for _ in range(4):
        applier = start()
        until_ms = time.monotonic() + 0.3 + chance.random() * 0.7
        while time.monotonic() < until_ms:
            write(pipeline, oracle, number)
            number += 1
            check(url, oracle)
        applier.send(signal.SIGKILL)
        applier.end()
        check(url, oracle)
    start()
    assert pipeline.last is not None
    assert until_applied(url, pipeline.last.ends).rows == oracle.now


@proves("eo.17", "F3")
def test_an_applier_that_was_stopped_wakes_up_after_its_successor_and_changes_nothing(
    cluster: Cluster, url: str, start: Callable[..., Process]
) -> None:
    pipeline, oracle = begun(cluster)
    write(pipeline, oracle, 0)
    old = start()
    until_applied(url, pipeline.last.ends)  # type: ignore[union-attr]
    old.send(signal.SIGSTOP)
    new = start()
    for number in range(1, 4):
        write(pipeline, oracle, number)
        final = until_applied(url, pipeline.last.ends)  # type: ignore[union-attr]
    new.send(signal.SIGTERM)
    assert new.end()[0] == 0
    old.send(signal.SIGCONT)
    write(pipeline, oracle, 4)
    code, said = old.end()
    assert code == 1 and "another one is at work" in said
    assert shown(url) == final, "nothing has changed"


@proves("eo.20", "eo.11")
def test_sigterm_ends_an_applier_cleanly_and_its_status_says_so(
    cluster: Cluster, url: str, start: Callable[..., Process]
) -> None:
    pipeline, oracle = begun(cluster)
    write(pipeline, oracle, 0)
    applier = start()
    until_applied(url, pipeline.last.ends)  # type: ignore[union-attr]
    applier.send(signal.SIGTERM)
    assert applier.end() == (0, "")
    (report,) = [one for one in read_status(cluster) if one.kind == "applier"]
    assert report.name.startswith("revenue.sqlite-views-")
    told = report.figures
    assert (told["view"], told["state"], told["ended"], told["error"]) == ("revenue", "stopped", True, None)
    assert told["generations"][0]["shown"] is True
    assert told["generations"][0]["ends"] == {str(at): end for at, end in pipeline.last.ends.items()}  # type: ignore[union-attr]


@proves("eo.20")
def test_an_applier_ends_with_its_parent(cluster: Cluster, url: str, start: Callable[..., Process]) -> None:
    pipeline, oracle = begun(cluster)
    write(pipeline, oracle, 0)
    applier = start("--with-parent")
    until_applied(url, pipeline.last.ends)  # type: ignore[union-attr]
    assert applier.end() == (0, ""), "its standard input has ended"


def told(broker: TestBroker) -> list[dict[str, Any]]:
    """All that appliers have said of themselves, the oldest first."""
    rows = [row for row in broker.records(STATUS.topic) if b'"kind":"applier"' in (row.key or b"")]
    return [json.loads(row.value or b"{}") for row in rows]


@proves("eo.20", "P3", "F1")
def test_an_applier_that_fails_before_it_applies_anything_is_in_status_if_the_view_declares_its_store(
    tidelog_broker: TestBroker, cluster: Cluster, file: Path
) -> None:
    declared, mistyped = f"sqlite:///{file.parent}/${{NOT_SET}}.db", f"sqlite:///{file.parent}/${{NOT_ST}}.db"
    declare_view(cluster, "revenue", stores=[declared])
    code, said = Process(tidelog_broker, mistyped).end()
    assert code == 2 and "NOT_ST" in said
    assert told(tidelog_broker) == [], "who has mistyped it was told so, and no part was expected there"
    code, said = Process(tidelog_broker, declared).end()
    assert code == 2 and "the environment does not; set it" in said
    (report,) = [one for one in read_status(cluster) if one.kind == "applier"]
    assert report.name.startswith("revenue.sqlite-NOT_SET-")
    figures = report.figures
    assert (told_state(figures), figures["view"], figures["store"]) == ("failed", "revenue", declared)
    assert figures["error"] in said and figures["ended"] is True and figures["last_error_ms"] <= figures["at_ms"]


@proves("eo.20", "P3", "F1")
def test_an_applier_of_a_view_that_there_is_not_is_no_part(
    tidelog_broker: TestBroker, cluster: Cluster, start: Callable[..., Process]
) -> None:
    declare_view(cluster, "other")
    code, said = start().end()
    assert code == 2 and "no view 'revenue'" in said and told(tidelog_broker) == []


@proves("eo.17", "P3", "F1")
def test_an_applier_that_fails_says_why_and_one_that_was_replaced_leaves_the_status_to_the_other(
    tidelog_broker: TestBroker, cluster: Cluster, url: str, start: Callable[..., Process]
) -> None:
    pipeline, oracle = begun(cluster, partitions=1)
    write(pipeline, oracle, 0)
    old = start()
    until_applied(url, pipeline.last.ends)  # type: ignore[union-attr]
    old.send(signal.SIGSTOP)
    new = start()
    write(pipeline, oracle, 1)
    until_applied(url, pipeline.last.ends)  # type: ignore[union-attr]
    old.send(signal.SIGCONT)
    write(pipeline, oracle, 2)
    assert old.end()[0] == 1
    assert told(tidelog_broker) and not any("ended" in one for one in told(tidelog_broker))
    tidelog_broker.produce(pipeline.generation.topic, [("{}", "somebody else's")])
    write(pipeline, oracle, 3)
    code, said = new.end()
    last = told(tidelog_broker)[-1]
    assert code == 1 and (last["state"], last["ended"]) == ("failed", True)
    assert "who else writes to its topic?" in last["error"] and last["error"] in said


# The broker and the store ---------------------------------------------------------------------------------------------


@proves("eo.16", "F2", "F3")
def test_a_broker_that_is_killed_is_waited_for(tidelog_broker: TestBroker, url: str) -> None:
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        pipeline, oracle = begun(cluster)
        write(pipeline, oracle, 0)
        with applying(tidelog_broker.bootstrap, url) as running:
            until_applied(url, pipeline.last.ends)  # type: ignore[union-attr]
            for number in range(1, 3):
                tidelog_broker.kill()
                until(lambda: len(running.said) % 2 == 1)
                tidelog_broker.start()
                write(pipeline, oracle, number)
                assert until_applied(url, pipeline.last.ends).rows == oracle.now  # type: ignore[union-attr]
                until(lambda: running.said[-1] == "view revenue is applied again")


@proves("eo.16", "F3")
def test_a_store_that_is_away_is_tried_again_and_its_fault_is_said(
    tidelog_broker: TestBroker, cluster: Cluster, file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_S", 1.0)  # for who looks on here, too: the applier makes the file
    pipeline, oracle = begun(cluster)
    write(pipeline, oracle, 0)
    with applying(tidelog_broker.bootstrap, url) as running:
        until_applied(url, pipeline.last.ends)  # type: ignore[union-attr]
        somebody = sqlite3.connect(file, isolation_level=None)
        somebody.execute("BEGIN IMMEDIATE")
        write(pipeline, oracle, 1)
        until(lambda: any("database is locked" in line for line in running.said))
        somebody.execute("ROLLBACK")
        somebody.close()
        assert until_applied(url, pipeline.last.ends).rows == oracle.now  # type: ignore[union-attr]


@proves("eo.16", "F2")
def test_a_store_that_was_lost_is_built_again_from_the_log(
    tidelog_broker: TestBroker, cluster: Cluster, file: Path, url: str
) -> None:
    pipeline, oracle = begun(cluster)
    for number in range(6):
        write(pipeline, oracle, number)
    with applying(tidelog_broker.bootstrap, url) as running:
        assert until_applied(url, pipeline.last.ends).rows == oracle.now  # type: ignore[union-attr]
        for one in file.parent.glob("views.db*"):
            one.unlink()
        write(pipeline, oracle, 6)
        assert until_applied(url, pipeline.last.ends).rows == oracle.now  # type: ignore[union-attr]
    assert "is gone" in running.said[0]
