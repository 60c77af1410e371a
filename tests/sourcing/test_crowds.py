"""Two processes with two hundred clients each, all sending to all entities: nobody is fenced while both run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proving import proves
from sourcing.seats import seats
from tidelog.client.cluster import Cluster
from tidelog.sourcing.checking import check
from tidelog.testing.broker import TestBroker

TESTS = Path(__file__).parent.parent
CLIENTS, TURNS = 200, 5


@contextmanager
def crowd(bootstrap: str, name: str, clients: int = CLIENTS) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, str(TESTS / "sourcing" / "crowd_process.py"), bootstrap, name, str(clients), str(TURNS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def line_of(process: subprocess.Popen[str], *, begins: str) -> str:
    assert process.stdout is not None
    while not (line := process.stdout.readline()).startswith(begins):
        assert line, f"it ended before it said {begins!r}"
    return line


def run(broker: TestBroker, topic: str, clients: int) -> None:
    with crowd(broker.bootstrap, topic, clients) as first, crowd(broker.bootstrap, topic, clients) as second:
        for process in (first, second):
            line_of(process, begins="ready 2")
        for name, process in (("a", first), ("b", second)):
            tell(process, name)
        told = [json.loads(line_of(process, begins="{")) for process in (first, second)]
        for process in (first, second):
            tell(process, "end")
            assert process.wait(120) == 0
    for one in told:
        assert len(one["before"]) == 2
        assert one["after"] == one["before"], "the same owners, none of which was fenced, failed or loaded again"
    events = sum(one["events"] for one in told)
    assert events >= clients, "many were done"
    assert sum(one["refused"] for one in told) > 0, "and they met each other"
    with Cluster(broker.bootstrap) as cluster:
        assert check(cluster, topic, seats().types) == (events, []), "each answer is an event, and none is there twice"


@proves("E4")
@pytest.mark.full
@pytest.mark.timeout(600)
def test_two_processes_with_two_hundred_clients_each_fence_nobody(tidelog_broker: TestBroker, topic: str) -> None:
    run(tidelog_broker, topic, CLIENTS)


@proves("E4")
@pytest.mark.slow
def test_two_processes_with_some_clients_fence_nobody(tidelog_broker: TestBroker, topic: str) -> None:
    run(tidelog_broker, topic, 10)
