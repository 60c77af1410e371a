"""Owners that are fenced, paused, killed and joined by others: what was answered is there, once, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from contract import Broker
from proving import proves
from sourcing.seats import SHORT_SESSIONS, Cancel, Reserve, Reserved, Seat, seats
from tidelog.client.admin import groups
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.control.owner import Owner
from tidelog.errors import OutcomeUnknown, ProducerFenced, Refused
from tidelog.sourcing import EventStore, Receipt, command_reading
from tidelog.sourcing.checking import check
from tidelog.sourcing.event_following import EARLIEST, EventLog
from tidelog.sourcing.event_record import headers_of
from tidelog.sourcing.owning import PartitionOwner
from tidelog.sourcing.requests import Joint
from tidelog.testing.broker import TestBroker

TESTS = Path(__file__).parent.parent
WITHIN_S = 90.0

pytestmark = pytest.mark.timeout(300)


@contextmanager
def running(bootstrap: str, name: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, str(TESTS / "sourcing" / "store_process.py"), bootstrap, name]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    process = subprocess.Popen(words, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with_suppressed_close(stream.close)


def with_suppressed_close(close: Callable[[], None]) -> None:
    try:
        close()
    except BrokenPipeError:
        return  # what was asked of it stays unsent


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def owners_of(bootstrap: str, name: str) -> dict[str, int]:
    """Partitions by member."""
    with Cluster(bootstrap) as cluster:
        found = groups.describe(cluster, f"tidelog.store.{name}")
    return {member.member_id: len(member.assigned) for member in found.members}


@proves("E4", "es.24")
def test_an_owner_that_is_fenced_writes_nothing_and_begins_again_when_the_group_says_so(
    broker: Broker, topic: str, cluster: Cluster
) -> None:
    with EventStore(topic, seats(), bootstrap=broker.bootstrap, partitions=1) as store:
        store.send("A1", Reserve("anna"))
        thief = Owner(cluster, f"tidelog.store.{topic}.0")
        thief.begin()
        assert store.send("A1", Cancel("anna"), id="c").version == 2  # it was asked again, of who owns it then
        with pytest.raises(ProducerFenced), thief.transaction() as outgoing:
            outgoing.send(TopicPartition(f"{topic}.events", 0), [(b"A1", b"{}", (), 0)])
        assert [record.version for record, _ in store.history("A1")] == [1, 2]
    assert check(cluster, topic, seats().types) == (2, [])


@proves("E4", "es.24")
@pytest.mark.slow
@pytest.mark.tidelog(settings=SHORT_SESSIONS)
def test_a_process_that_was_paused_and_woken_cannot_write(tidelog_broker: TestBroker, topic: str) -> None:
    bootstrap = tidelog_broker.bootstrap
    with running(bootstrap, topic) as elder:
        assert elder.stdin is not None and elder.stdout is not None
        print("c1 A1 anna", file=elder.stdin, flush=True)
        assert elder.stdout.readline() == "c1 1\n"
        elder.send_signal(signal.SIGSTOP)
        for number in range(20):  # it wakes up with these, and believes that the seats are its own
            print(f"old{number} B{number} elder", file=elder.stdin, flush=True)
        with EventStore(topic, seats(), bootstrap=bootstrap, timeout_s=60) as younger:
            wait_until(lambda: list(owners_of(bootstrap, topic).values()) == [2])
            for number in range(20):
                assert younger.send(f"B{number}", Reserve("younger")).version == 1
            assert younger.state("A1").state == Seat("anna", 1)
            elder.send_signal(signal.SIGCONT)
            answers = sorted(elder.stdout.readline().split()[1] for _ in range(20))
            assert answers == ["refused"] * 20
            assert {younger.state(f"B{number}").state.holder for number in range(20)} == {"younger"}
            wait_until(lambda: sorted(owners_of(bootstrap, topic).values()) == [1, 1])  # it has joined again
    with Cluster(bootstrap) as cluster:
        assert check(cluster, topic, seats().types) == (21, [])


@proves("E4", "es.4")
@pytest.mark.slow
@pytest.mark.tidelog(settings=SHORT_SESSIONS)
def test_what_was_answered_is_there_once_however_often_the_owner_is_killed(
    tidelog_broker: TestBroker, topic: str
) -> None:
    bootstrap = tidelog_broker.bootstrap
    answered: dict[str, Receipt] = {}

    def client(number: int, store: EventStore[Seat]) -> None:
        for turn in range(12):
            id = f"{number}-{turn}"
            command = Reserve(id) if turn % 2 == 0 else Cancel(f"{number}-{turn - 1}")
            while id not in answered:
                try:
                    answered[id] = store.send(f"seat {number}", command, id=id, timeout_s=3)
                except OutcomeUnknown:
                    continue

    with (
        ThreadPoolExecutor(6) as pool,
        running(bootstrap, topic) as first,
        EventStore(topic, seats(), bootstrap=bootstrap, serve=False) as store,
    ):
        clients = [pool.submit(client, number, store) for number in range(6)]
        wait_until(lambda: len(answered) > 5)
        first.kill()
        for enough in (20, 40):
            with running(bootstrap, topic) as owner:
                wait_until(lambda enough=enough: len(answered) >= enough)  # type: ignore[misc]
                owner.kill()
        with running(bootstrap, topic):
            for one in clients:
                one.result(WITHIN_S)
    assert len(answered) == 72
    with EventStore(topic, seats(), bootstrap=bootstrap) as store, Cluster(bootstrap) as cluster:
        assert check(cluster, topic, seats().types) == (72, [])
        for number in range(6):
            commands = [record.command for record, _ in store.history(f"seat {number}")]
            assert commands == [f"{number}-{turn}" for turn in range(12)]
            for id in commands:
                found = store.find(f"seat {number}", id)
                assert found is not None and found._replace(repeated=True) == answered[id]._replace(repeated=True)


@proves("E4", "E1")
@pytest.mark.slow
@pytest.mark.tidelog(settings=SHORT_SESSIONS)
def test_two_processes_share_the_partitions_and_no_owner_is_fenced_in_peace(
    tidelog_broker: TestBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap = tidelog_broker.bootstrap
    with (
        running(bootstrap, topic) as other,
        EventStore(topic, seats(), bootstrap=bootstrap, timeout_s=60) as store,
        ThreadPoolExecutor(50) as pool,
    ):
        wait_until(lambda: sorted(owners_of(bootstrap, topic).values()) == [1, 1])
        wait_until(lambda: store.figures()["partitions"] != [] and len(store.figures()["partitions"]) == 1)
        caplog.clear()
        assert other.stdin is not None and other.stdout is not None
        for number in range(50):
            print(f"o{number} seat{number} other", file=other.stdin, flush=True)

        def reserve(number: int) -> str:
            try:
                store.send(f"seat{number}", Reserve("mine"))
                return "mine"
            except Refused as refused:
                assert refused.reason is not None
                return "other"

        mine = list(pool.map(reserve, range(50)))
        theirs = dict(other.stdout.readline().split() for _ in range(50))
        for number, holder in enumerate(mine):
            assert (theirs[f"o{number}"] == "refused") is (holder == "mine")
            assert store.state(f"seat{number}").state == Seat(holder, 1)
        assert "has another owner" not in caplog.text
    with Cluster(bootstrap) as cluster:
        assert check(cluster, topic, seats().types) == (50, [])


@proves("E4")
def test_a_process_that_is_given_no_partition_begins_and_sends(tidelog_broker: TestBroker, topic: str) -> None:
    """Others have them all; it would wait for as long as a command may take."""
    bootstrap = tidelog_broker.bootstrap
    with (
        EventStore(topic, seats(), bootstrap=bootstrap, partitions=1),
        EventStore(topic, seats(), bootstrap=bootstrap, timeout_s=3600.0) as spare,
    ):
        assert spare.figures()["partitions"] == []
        assert spare.send("A1", Reserve("anna"), timeout_s=WITHIN_S).version == 1


@proves("E4", "hostile")
def test_of_many_commands_in_the_topic_few_are_read_before_the_first_are_answered(
    tidelog_broker: TestBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_reading, "AHEAD_MAX", 20)
    begun, going_on, ahead, offer = Event(), Event(), list[int](), PartitionOwner.offer

    def slow(seat: Seat, command: object, now: object) -> list[Reserved]:
        begun.set()
        going_on.wait(WITHIN_S)
        return [Reserved("anna")]

    def offering(owner: PartitionOwner, joint: Joint) -> bool:
        taken = offer(owner, joint)
        ahead.append(owner.read_ahead)
        return taken

    monkeypatch.setattr(PartitionOwner, "offer", offering)
    bootstrap = tidelog_broker.bootstrap
    with EventStore(topic, seats(), bootstrap=bootstrap, partitions=1) as store:
        store.decider._decide = slow
        with EventStore(topic, seats(), bootstrap=bootstrap, serve=False) as sender:
            answers = [sender.send_soon(f"A{number}", Reserve("anna")) for number in range(200)]
            assert begun.wait(WITHIN_S)
            wait_until(lambda: len(ahead) >= 20)
            going_on.set()
            assert [answer.result(WITHIN_S).version for answer in answers] == [1] * 200
    assert max(ahead) == 20


@proves("E3", "E4", "es.13")
def test_no_reader_passes_an_event_that_is_not_committed_yet(broker: Broker, topic: str, cluster: Cluster) -> None:
    at = TopicPartition(f"{topic}.events", 0)
    with EventStore(topic, seats(), bootstrap=broker.bootstrap, partitions=1) as store:
        store.send("A1", Reserve("anna"))
    owner = Owner(cluster, f"tidelog.store.{topic}.0")
    owner.begin()
    with Cluster(broker.bootstrap) as others:
        follower = EventLog(others, store, "process", f"{topic}-follower", EARLIEST)
        follower.begin(lambda key, row: None)

        def read() -> list[bytes | None]:
            found = []
            for one, rows, following in follower.fetch():
                follower.places[one.partition].offset = following
                found += [row.value for row in rows]
            return found

        wait_until(lambda: read() == [b'{"who":"anna"}'])
        end = list_offsets(cluster, {at: LATEST})[at].offset
        with owner.transaction() as outgoing:
            for version, who in ((2, "anna"), (3, "bob")):
                headers = headers_of("Cancelled", 1, version, f"c{version}", 0, "0", [])
                outgoing.send(at, [(b"A1", f'{{"who":"{who}"}}'.encode(), headers, 0)])
                outgoing.flush()
                assert read() == []
                assert follower.places[0].offset <= end, "what may still be filled is not passed"
        wait_until(lambda: read() == [b'{"who":"anna"}', b'{"who":"bob"}'])


@proves("E4", "F3")
def test_a_command_waits_for_the_broker_and_goes_on_when_it_is_back(tidelog_broker: TestBroker, topic: str) -> None:
    with EventStore(topic, seats(), bootstrap=tidelog_broker.bootstrap, partitions=1, timeout_s=60) as store:
        store.send("A1", Reserve("anna"), id="a")
        with ThreadPoolExecutor(1) as pool:
            tidelog_broker.kill()
            waiting = pool.submit(store.send, "A1", Cancel("anna"), id="b")
            tidelog_broker.restart()
            assert waiting.result(WITHIN_S).version == 2
        assert next(events for _, events in store.history("A1")) == [Reserved("anna")]
        assert store.send("A1", Reserve("anna"), id="a").repeated
