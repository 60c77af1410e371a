"""Consumers that wait cost nothing until there is something for them: nothing polls, an append wakes whom it concerns.

What they cost in time is in `make bench-broker --only idle`; here is what holds whatever the machine does.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from raw import RawConnection, batch_of, produce

from against.patience import eventually
from log.resting import all_rest
from proving import proves
from tidelog.broker.topics import TOPICS_TOPIC
from tidelog.testing.broker import TestBroker
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.produce import ProduceResponse

CONSUMERS = 100
LONG_WAIT_MS = 60_000
FETCH_VERSION = 12
PRODUCE_VERSION = 9
SECONDS = 4  # each of which counts, once what was begun before (a topic made, a folder synced) has ended
FEW = CONSUMERS / 4  # its own clocks wake it about five times
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


@pytest.mark.full
@proves("T2")
def test_the_broker_sleeps_while_its_consumers_wait(tidelog_broker: TestBroker) -> None:
    bootstrap = tidelog_broker.bootstrap
    tidelog_broker.create_topic("many", CONSUMERS)
    with consumers(bootstrap, "many", list(range(CONSUMERS))):
        eventually(lambda: all_rest(tidelog_broker.data, TOPICS_FOLDER))
        eventually(lambda: wakes_in_a_second(tidelog_broker.pid), lambda woken: woken < FEW)
        woken = [wakes_in_a_second(tidelog_broker.pid) for _ in range(SECONDS)]
    assert max(woken) < FEW, f"the broker does not sleep: it woke {woken} times in each second"


def wakes_in_a_second(pid: int) -> int:
    before = switches(pid)
    time.sleep(1)
    return switches(pid) - before


def switches(pid: int) -> int:
    """How often its threads have gone to sleep."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            status = (task / "status").read_text()
            total += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return total


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
