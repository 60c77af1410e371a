"""Queues while what they rest on changes: topics that grow and go, members that never answer, very many members, a
broker that is killed while records wait for their time.

What is told of each record is kept beside it, and at the end held against what was sent: nothing lost, and nothing
accepted twice.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from against.patience import eventually
from broker.queues.worker import ACCEPT, Given, Worker, configure, create, send
from proving import proves
from tidelog.client import Cluster, Producer, ShareReader, TopicPartition, topics
from tidelog.client.share import AcquiredRecord
from tidelog.wire.error_code import ErrorCode

MEMBERS = 1_000
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "1",
    "group.share.max.size": str(MEMBERS),
    "group.share.max.record.lock.duration.ms": "3600000",
    "group.share.max.session.timeout.ms": "3600000",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tidelog.Broker]:
    with tidelog.Broker(tmp_path / "data", settings=SETTINGS, in_process=True) as running:
        assert configure(running.bootstrap, share_auto_offset_reset="earliest") is None
        yield running


def accepted(reader: ShareReader, count: int) -> list[AcquiredRecord]:
    """The next records that a reader is given, each accepted."""
    found: list[AcquiredRecord] = []
    while len(found) < count:
        given = eventually(lambda: reader.fetch(100))
        kinds: dict[TopicPartition, dict[int, int]] = {}
        for one in given:
            kinds.setdefault(one.at, {})[one.row.offset] = ACCEPT
        assert reader.acknowledge(kinds) == []
        found += given
    return found


@proves("T4")
def test_a_group_reads_on_while_its_topic_gains_partitions_is_deleted_and_made_anew(broker: tidelog.Broker) -> None:
    """Who is a member all the while is given what is new, and nothing that is known of the topic before counts."""
    assert configure(broker.bootstrap, share_heartbeat_interval_ms="1") is None
    create(broker.bootstrap)
    with Cluster(broker.bootstrap) as cluster, Cluster(broker.bootstrap) as other:
        reader = ShareReader(cluster, "g", ["jobs"])
        send(broker.bootstrap, "a", "b")
        assert [one.row.value for one in accepted(reader, 2)] == [b"a", b"b"]
        topics.add_partitions(other, "jobs", 3)
        with Producer(other) as producer:
            for partition in range(3):
                producer.send("jobs", b"grown", partition=partition)
        assert {(one.at.partition, one.row.offset) for one in accepted(reader, 3)} == {(0, 2), (1, 0), (2, 0)}
        send(broker.bootstrap, "never read")
        topics.delete(other, "jobs")
        create(broker.bootstrap)
        send(broker.bootstrap, "new a", "new b")
        again = accepted(reader, 2)
        assert [(one.row.offset, one.row.value, one.delivery) for one in again] == [(0, b"new a", 1), (1, b"new b", 1)]
        assert reader.fetch(100) == []
        reader.close()


@proves("T4")
def test_who_was_told_that_a_topic_is_gone_and_asks_for_it_again_waits(broker: tidelog.Broker) -> None:
    """librdkafka asks again at once until its next heartbeat, and each such client took a third of a core."""
    worker = Worker(broker.bootstrap, create(broker.bootstrap))

    def fault(wait_ms: int) -> list[int]:
        return [part.error_code for topic in worker.fetch(1, wait_ms).responses for part in topic.partitions]

    assert fault(0) == []
    with Cluster(broker.bootstrap) as cluster:
        topics.delete(cluster, "jobs")
    assert fault(60_000) == [ErrorCode.UNKNOWN_TOPIC_ID], "at once"
    began = time.monotonic()
    assert fault(200) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert time.monotonic() - began >= 0.2


@proves("T4")
def test_what_a_member_has_that_never_says_anything_is_done_by_another(broker: tidelog.Broker) -> None:
    """It is alive and goes on asking. Its locks run out one after the other, and none of its deliveries is the last."""
    assert configure(broker.bootstrap, share_record_lock_duration_ms="1000") is None
    topic = create(broker.bootstrap)
    send(broker.bootstrap, *map(str, range(20)))
    silent, other = Worker(broker.bootstrap, topic), Worker(broker.bootstrap, topic)
    held = {one.offset for one in silent.until(3, most=20)}
    done: Counter[int] = Counter()
    deliveries: dict[int, int] = {}
    while len(done) < 20:
        for one in other.until(1, most=20):
            deliveries[one.offset] = one.deliveries
            assert other.say(ACCEPT, one.offset) == 0
            done[one.offset] += 1
    assert done == Counter(range(20))
    assert {offset for offset, count in deliveries.items() if count == 2} == held
    assert silent.say(ACCEPT, min(held)) != 0, "it was accepted of another"


@proves("T4")
def test_a_record_that_only_silent_members_get_ends_with_the_dead_letters(broker: tidelog.Broker) -> None:
    settings = {"share_record_lock_duration_ms": "1000", "share_delivery_count_limit": "2"}
    topic = create(broker.bootstrap)
    letters = create(broker.bootstrap, "dlq.jobs", errors_deadletterqueue_group_enable="true")
    assert configure(broker.bootstrap, errors_deadletterqueue_topic_name="dlq.jobs", **settings) is None
    assert configure(broker.bootstrap, "readers", share_auto_offset_reset="earliest") is None
    send(broker.bootstrap, "a", "b")
    silent = Worker(broker.bootstrap, topic)
    seen = [(one.offset, one.deliveries) for one in silent.until(4, most=2)]
    assert sorted(seen) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    reader = Worker(broker.bootstrap, letters, group="readers", topic="dlq.jobs")
    assert sorted(one.value or b"" for one in reader.until(2, most=2)) == [b"a", b"b"]
    assert silent.get(wait_ms=50) == []


@pytest.mark.full
@pytest.mark.timeout(600)
@proves("T4")
def test_a_thousand_members_of_one_partition_each_get_their_part(broker: tidelog.Broker) -> None:
    """Half of them go without a word. What they had is done by the others, each record once."""
    long = {"share_record_lock_duration_ms": "3600000", "share_session_timeout_ms": "3600000"}
    assert configure(broker.bootstrap, **long) is None  # however slow the machine is
    topic = create(broker.bootstrap)
    members = [Worker(broker.bootstrap, topic) for _ in range(MEMBERS)]
    with pytest.raises(AssertionError, match=f"has {MEMBERS} members, the maximum"):
        Worker(broker.bootstrap, topic)
    send(broker.bootstrap, *map(str, range(4 * MEMBERS)))
    had = [member.get(most=500) for member in members]
    assert all(had), "nobody is left without a record"
    assert max(map(len, had)) <= 4, "and nobody has many"
    stay, go = members[::2], members[1::2]
    for member in go:
        member.die()
    done: Counter[int] = Counter()
    for member, given in zip(stay, had[::2], strict=True):
        accept(member, given, done)
    while sum(done.values()) < 4 * MEMBERS:
        member = stay[len(done) % len(stay)]
        accept(member, member.until(1, most=500), done)
    assert done == Counter(range(4 * MEMBERS))


def accept(member: Worker, given: list[Given], done: Counter[int]) -> None:
    assert member.say(ACCEPT, *(one.offset for one in given)) == 0
    done.update(one.offset for one in given)


@pytest.mark.full
@pytest.mark.timeout(400)
@proves("T4")
def test_over_kills_of_the_broker_no_delayed_record_comes_early_or_twice_or_never(tmp_path: Path) -> None:
    chance = random.Random(18)
    with tidelog.Broker(tmp_path / "data", settings=SETTINGS) as broker:
        assert configure(broker.bootstrap, share_auto_offset_reset="earliest") is None
        topic = create(broker.bootstrap, tidelog_delay_max_ms="60000")
        due: list[float] = []
        for _ in range(60):
            delay_ms = chance.choice([0, 0, *range(500, 6000, 250)])
            due.append(time.time() + delay_ms / 1000 - 0.001)  # stamps are whole milliseconds
            send(broker.bootstrap, str(len(due)), headers=(("tidelog-delay-ms", str(delay_ms).encode()),))
        worker, done, order = Worker(broker.bootstrap, topic), Counter[int](), list[int]()
        for _ in range(6):
            for one in worker.until(6, most=3):
                assert time.time() >= due[one.offset], f"{one.offset} came before its time"
                if worker.say(ACCEPT, one.offset) == 0:
                    done[one.offset] += 1
                    order.append(one.offset)
            broker.kill()
            broker.start()
            worker = Worker(broker.bootstrap, topic)
        while sum(done.values()) < len(due):
            for one in worker.until(1, most=3):
                assert time.time() >= due[one.offset], f"{one.offset} came before its time"
                assert worker.say(ACCEPT, one.offset) == 0
                done[one.offset] += 1
                order.append(one.offset)
        assert done == Counter(range(len(due)))
        assert order != sorted(order), "some waited, and others did not wait for them"
