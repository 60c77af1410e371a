"""The scenario that every client's consumer groups must pass: members come, go and crash, and each record is seen
exactly once.

A member commits all it has read before it goes, so nothing may be seen twice: a duplicate or a gap is a fault of the
broker's group or offsets.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from against.apache_kafka import die_with_parent
from against.brokers import BRIEF_SESSION_MS
from against.patience import eventually
from tidelog.client.admin.configs import GROUP, alter
from tidelog.client.cluster import Cluster

PARTITIONS = 4
ROUND = 40


def ways(every: Iterable[str], *quick: str) -> list[Any]:
    """The quick ones are in `make test`: each waits for a session to end, however partitions are shared."""
    return [pytest.param(way, id=way, marks=() if way in quick else pytest.mark.full) for way in every]


class Member:
    """A `member.py` process: what it owns, what it has read, how much of that it has committed."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        arguments = {"bootstrap": bootstrap, "group": group, "topic": topic, "client": settings}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("member.py")), client, json.dumps(arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        self.assigned: list[list[Any]] = []
        self.assignments: list[list[list[Any]]] = []
        self.records: list[tuple[str, int, int, str]] = []
        self.committed = 0
        self.complaints: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._hear_complaints, daemon=True).start()

    def owns(self) -> set[tuple[str, int]]:
        return {(topic, partition) for topic, partition in self.assigned}

    def leave(self) -> None:
        self.process.terminate()
        self.process.wait(180)

    def crash(self) -> None:
        self.process.kill()
        self.process.wait()

    def __repr__(self) -> str:
        return f"Member(owns={sorted(self.owns())}, read={len(self.records)}, said={self.complaints[-5:]})"

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if said["event"] == "assigned":
                self.assigned = said["what"]
                self.assignments.append(said["what"])
            elif said["event"] == "records":
                self.records += [tuple(record) for record in said["what"]]
            else:
                self.committed += said["what"]

    def _hear_complaints(self) -> None:
        assert self.process.stderr is not None
        self.complaints.extend(iter(self.process.stderr.readline, ""))


def create(bootstrap: str, topic: str, partitions: int = PARTITIONS, **config: str) -> None:
    """Makes the topic and waits until its partitions are led: Apache Kafka says so later than that it is made."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(180)
    eventually(lambda: is_led(admin, topic, partitions))


def is_led(admin: AdminClient, topic: str, partitions: int) -> bool:
    ends = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}
    return all(found.exception(180) is None for found in admin.list_offsets(ends).values())


def produce_round(bootstrap: str, topic: str, name: str, partitions: int = PARTITIONS) -> set[str]:
    producer = Producer({"bootstrap.servers": bootstrap})
    values = {f"{name}-{number}" for number in range(ROUND)}
    for number, value in enumerate(sorted(values)):
        producer.produce(topic, value=value.encode(), partition=number % partitions)
    assert producer.flush(180) == 0
    return values


def shared_evenly(topic: str, *members: Member) -> None:
    """Waits until these members own all partitions of the topic, each an equal share, none twice."""
    everything = {(topic, partition) for partition in range(PARTITIONS)}

    def is_even(owned: list[set[tuple[str, int]]]) -> bool:
        return set.union(*owned) == everything and all(len(one) == PARTITIONS // len(members) for one in owned)

    eventually(lambda: [member.owns() for member in members], is_even)


def all_read_and_committed(expected: set[str], *members: Member) -> None:
    def read() -> set[str]:
        return {value for member in members for _, _, _, value in member.records}

    eventually(lambda: expected - read(), lambda missing: not missing)
    eventually(lambda: [len(member.records) - member.committed for member in members], lambda open: not any(open))


def be_brief(bootstrap: str, group: str) -> None:
    """Under the consumer protocol all members of a group have the same session, and the broker knows how long it is."""
    with Cluster(bootstrap) as cluster:
        alter(cluster, GROUP, group, set={"consumer.session.timeout.ms": str(BRIEF_SESSION_MS)})


def members_come_go_and_crash(broker: Any, client: str, group: str, topic: str, **settings: Any) -> None:
    create(broker.bootstrap, topic)
    be_brief(broker.bootstrap, group)
    join = lambda **changed: Member(client, broker.bootstrap, group, topic, **{**settings, **changed})  # noqa: E731
    brief = {key: BRIEF_SESSION_MS for key in settings if key.replace("_", ".") == "session.timeout.ms"}
    first = join()
    shared_evenly(topic, first)
    second = join(**brief)
    shared_evenly(topic, first, second)
    expected = produce_round(broker.bootstrap, topic, "both")
    all_read_and_committed(expected, first, second)

    second.crash()
    shared_evenly(topic, first)
    expected |= produce_round(broker.bootstrap, topic, "after-crash")
    all_read_and_committed(expected, first, second)

    third = join()
    shared_evenly(topic, first, third)
    first.leave()
    shared_evenly(topic, third)
    expected |= produce_round(broker.bootstrap, topic, "after-leave")
    all_read_and_committed(expected, first, second, third)
    third.leave()

    fourth = join()
    shared_evenly(topic, fourth)
    expected |= produce_round(broker.bootstrap, topic, "resumed")
    all_read_and_committed(expected, first, second, third, fourth)
    fourth.leave()
    seen = [value for member in (first, second, third, fourth) for _, _, _, value in member.records]
    assert len(seen) == len(set(seen)) == len(expected), "a record was read twice although it had been committed"
