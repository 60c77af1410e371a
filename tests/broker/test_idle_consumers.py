"""Consumers that wait cost nothing until there is something for them: nothing polls, an append wakes whom it concerns.

What they cost in time is in `make bench-broker --only idle`; here is what holds whatever the machine does.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from raw import RawConnection, batch_of, produce

import tidelog
from against.patience import eventually
from log.resting import all_rest
from proving import proves
from tidelog.broker import housekeeping
from tidelog.broker.loop import Loop
from tidelog.broker.topics import TOPICS_TOPIC
from tidelog.client import Cluster, topics
from tidelog.testing.broker import TestBroker
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.produce import ProduceResponse

CONSUMERS = 100
LONG_WAIT_MS = 60_000
FETCH_VERSION = 12
PRODUCE_VERSION = 9
SECONDS = 4
CONSUMER_MS = 0.1  # of CPU a second for each: all that the broker does at rest is a fiftieth to a fifth of it
TURNS = 20
HOUSEKEEPING = "tidelog.broker.housekeeping.Housekeeping._turn"
OF_CONSUMERS = ("tidelog.broker.connection", "tidelog.broker.waiting", "tidelog.broker.handlers")
TOPICS_FOLDER = f"{TOPICS_TOPIC.topic_id.hex()}-0"


def waiting_fetch(topic: str, partition: int) -> FetchRequest:
    part = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=LONG_WAIT_MS, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[part])]
    )


@contextmanager
def consumers(bootstrap: str, topic: str, partitions: list[int]) -> Iterator[list[RawConnection]]:
    """One connection per entry, each with a fetch that waits on that partition."""
    with ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(bootstrap)) for _ in partitions]
        for connection, partition in zip(connections, partitions, strict=True):
            connection.send(waiting_fetch(topic, partition), FETCH_VERSION)
        for connection in connections[-1:]:
            assert not answered([connection], seconds=0.2)
        yield connections


def answered(connections: list[RawConnection], seconds: float) -> list[int]:
    """Which of them have an answer, once at least one has or the time is over."""
    poller = select.poll()
    places = {connection.socket.fileno(): place for place, connection in enumerate(connections)}
    for descriptor in places:
        poller.register(descriptor, select.POLLIN)
    return sorted(places[descriptor] for descriptor, _ in poller.poll(seconds * 1000))


def put(bootstrap: str, topic: str, partition: int) -> None:
    with RawConnection(bootstrap) as connection:
        request = produce(topic, batch_of(b"wake up"), partition=partition)
        response = connection.call(request, PRODUCE_VERSION, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == 0


@proves("T2")
def test_an_append_wakes_only_the_consumer_that_waits_for_it(tidelog_broker: TestBroker) -> None:
    bootstrap = tidelog_broker.bootstrap
    tidelog_broker.create_topic("many", CONSUMERS)
    with consumers(bootstrap, "many", list(range(CONSUMERS))) as waiting:
        for partition in (7, 42):
            put(bootstrap, "many", partition)
            assert answered(waiting, seconds=180) == [partition]
            _, response = waiting[partition].receive(FetchResponse, FETCH_VERSION)
            assert response.responses[0].partitions[0].error_code == 0
        assert answered(waiting, seconds=0.3) == []


@proves("T2", "T3")
def test_one_append_wakes_all_that_wait_for_it(tidelog_broker: TestBroker) -> None:
    bootstrap = tidelog_broker.bootstrap
    tidelog_broker.create_topic("one", 1)
    with consumers(bootstrap, "one", [0] * CONSUMERS) as waiting:
        put(bootstrap, "one", 0)
        for connection in waiting:
            _, response = connection.receive(FetchResponse, FETCH_VERSION)
            assert bytes(response.responses[0].partitions[0].records or b"")


@proves("T2")
def test_while_consumers_wait_the_loop_does_nothing_of_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it does meanwhile is housekeeping, whose turns are the clock here: a busy machine has fewer of them."""
    monkeypatch.setattr(housekeeping, "TURN_S", 0.02)
    done = noted_actions(monkeypatch)
    with tidelog.Broker(tmp_path, in_process=True) as broker:
        with Cluster(broker.bootstrap) as cluster:
            topics.create(cluster, "many", partitions=CONSUMERS)
        with consumers(broker.bootstrap, "many", list(range(CONSUMERS))):
            eventually(lambda: waiting(broker), lambda count: count == CONSUMERS)
            since = len(done)
            eventually(lambda: done[since:].count(HOUSEKEEPING), lambda turns: turns > TURNS)
            while_they_waited = set(done[since:])
        assert any(one.startswith(OF_CONSUMERS) for one in done), "what is looked for is what they do when they come"
    assert not {one for one in while_they_waited if one.startswith(OF_CONSUMERS)}, while_they_waited


def noted_actions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all that loops do from here on: readers, writers, timers, and what other threads ask for."""
    done: list[str] = []
    do = Loop._do

    def noted(loop: Loop, action: Callable[[], object]) -> None:
        whole: Any = action
        while isinstance(whole, partial):
            whole = whole.func
        done.append(f"{whole.__module__}.{whole.__qualname__}")
        do(loop, action)

    monkeypatch.setattr(Loop, "_do", noted)
    return done


def waiting(broker: tidelog.Broker) -> int:
    """How many fetches wait."""
    assert broker._server is not None
    return sum(len(partition.waiters) for partition in list(broker._server.broker._partitions))


@pytest.mark.full
@proves("T2")
def test_the_broker_sleeps_while_its_consumers_wait(tidelog_broker: TestBroker) -> None:
    """All of its threads, by their own clocks: what others do on the machine is not in it."""
    bootstrap = tidelog_broker.bootstrap
    tidelog_broker.create_topic("many", CONSUMERS)
    with consumers(bootstrap, "many", list(range(CONSUMERS))):
        eventually(lambda: all_rest(tidelog_broker.data, TOPICS_FOLDER))
        before = cpu_ms(tidelog_broker.pid)
        time.sleep(SECONDS)
        spent = cpu_ms(tidelog_broker.pid) - before
    assert spent / SECONDS / CONSUMERS < CONSUMER_MS, f"{spent} ms of CPU in {SECONDS} s for {CONSUMERS} consumers"


def cpu_ms(pid: int) -> float:
    """What its threads have run, which none of them ends."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6


@proves("T2")
def test_consumers_that_go_away_leave_nothing_behind(tidelog_broker: TestBroker) -> None:
    bootstrap = tidelog_broker.bootstrap
    tidelog_broker.create_topic("one", 1)
    put(bootstrap, "one", 0)
    before = descriptors(tidelog_broker.pid)
    tidelog_broker.create_topic("two", 1)
    for _ in range(3):
        with consumers(bootstrap, "two", [0] * CONSUMERS):
            pass
    put(bootstrap, "two", 0)
    eventually(lambda: descriptors(tidelog_broker.pid) - before, lambda left: left < CONSUMERS / 4)


def descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
