"""Queues end to end, over sockets: who is given what, in which order, after deaths, restarts and delays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from against import patience
from broker.queues.worker import ACCEPT, REJECT, RELEASE, TOPIC_RESOURCE, Worker, configure, create, send
from broker.raw import RawConnection, fetch
from proving import proves
from tidelog.broker.queue_totals import queue_totals
from tidelog.client import Cluster, Producer, ShareReader, topics
from tidelog.record.columns import Row, decode
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.fetch import FetchResponse

SETTINGS = {"group.share.min.record.lock.duration.ms": "1000"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tidelog.Broker]:
    with tidelog.Broker(tmp_path / "data", settings=SETTINGS, in_process=True) as running:
        assert configure(running.bootstrap, share_auto_offset_reset="earliest") is None
        yield running


def restart(broker: tidelog.Broker) -> None:
    broker.stop()
    broker.start()


def log_of(bootstrap: str, topic: str) -> list[Row]:
    with RawConnection(bootstrap) as connection:
        response = connection.call(fetch(topic, 0), 12, FetchResponse)
    return list(decode(bytes(response.responses[0].partitions[0].records or b"")).rows())  # type: ignore[arg-type]


def drain(worker: Worker, count: int) -> list[int]:
    """The next offsets that a worker is given one by one, each accepted before it asks for more."""
    got = []
    for _ in range(count):
        (one,) = worker.until(1)
        assert worker.say(ACCEPT, one.offset) == 0
        got.append(one.offset)
    return got


@proves("T4")
def test_what_a_dead_consumer_had_comes_after_what_others_have(broker: tidelog.Broker) -> None:
    """The figure of the seeds: consumer 2 dies on m3 while consumer 1 has m4. So consumer 1 does m4, m3, m5."""
    topic = create(broker.bootstrap)
    send(broker.bootstrap, "m1", "m2", "m3", "m4", "m5")
    one, two = Worker(broker.bootstrap, topic), Worker(broker.bootstrap, topic)
    assert drain(one, 2) == [0, 1]
    assert [given.offset for given in two.until(1)] == [2]
    assert [given.offset for given in one.until(1)] == [3]
    two.die()
    order = [3]
    assert one.say(ACCEPT, 3) == 0
    again = one.until(1)
    assert (again[0].offset, again[0].deliveries) == (2, 2)
    assert one.say(ACCEPT, 2) == 0
    order += [2, *drain(one, 1)]
    assert order == [3, 2, 4]


@proves("T4")
def test_in_order_by_key_nobody_else_is_given_a_key_that_is_in_flight(broker: tidelog.Broker) -> None:
    topic = create(broker.bootstrap, tidelog_queue_order="key")
    send(broker.bootstrap, "m1", "m2", "m3", "m4", "m5", key=b"account 7")
    send(broker.bootstrap, "other", key=b"account 8")
    send(broker.bootstrap, "none")
    one, two = Worker(broker.bootstrap, topic), Worker(broker.bootstrap, topic)
    assert drain(one, 2) == [0, 1]
    assert [given.offset for given in two.until(1)] == [2]
    assert drain(one, 2) == [5, 6]  # of another key, and of none
    assert one.get() == []
    two.die()
    assert drain(one, 3) == [2, 3, 4]


@proves("T4")
def test_with_one_queue_for_each_consumer_there_is_order_too(broker: tidelog.Broker) -> None:
    topic = create(broker.bootstrap)
    send(broker.bootstrap, "m1", "m2", "m3", "m4", "m5")
    two = Worker(broker.bootstrap, topic)
    assert drain(two, 2) == [0, 1]
    assert [given.offset for given in two.until(1)] == [2]
    two.die()
    assert drain(Worker(broker.bootstrap, topic), 3) == [2, 3, 4]


@proves("T4")
def test_what_was_acknowledged_stays_so_after_a_restart_and_the_rest_comes_again(broker: tidelog.Broker) -> None:
    topic = create(broker.bootstrap)
    send(broker.bootstrap, *(str(number) for number in range(6)))
    worker = Worker(broker.bootstrap, topic)
    assert [one.offset for one in worker.until(5, most=5)] == [0, 1, 2, 3, 4]
    assert worker.say(ACCEPT, 0, 2) == 0
    assert worker.say(RELEASE, 1) == 0
    assert worker.say(REJECT, 3) == 0
    restart(broker)
    again = Worker(broker.bootstrap, topic)
    assert [(one.offset, one.deliveries) for one in again.until(3, most=9)] == [(1, 2), (4, 1), (5, 1)]


@proves("T4")
@pytest.mark.slow
def test_a_killed_broker_has_every_acknowledgement_that_it_answered(tmp_path: Path) -> None:
    with tidelog.Broker(tmp_path / "data", settings=SETTINGS) as broker:
        assert configure(broker.bootstrap, share_auto_offset_reset="earliest") is None
        topic = create(broker.bootstrap)
        send(broker.bootstrap, *(str(number) for number in range(30)))
        worker = Worker(broker.bootstrap, topic)
        done: list[int] = []
        while len(done) < 20:
            (one,) = worker.until(1)
            assert worker.say(REJECT if one.offset % 5 == 0 else ACCEPT, one.offset) == 0
            done.append(one.offset)
            if len(done) % 7 == 0:
                worker.until(1)  # in flight, and not answered
                broker.kill()
                broker.start()
                worker = Worker(broker.bootstrap, topic)
        assert done == list(range(20))
        assert drain(worker, 10) == list(range(20, 30))


@proves("T4")
def test_dead_letters_have_the_record_and_say_why(broker: tidelog.Broker) -> None:
    topic = create(broker.bootstrap)
    create(broker.bootstrap, "dlq.jobs", errors_deadletterqueue_group_enable="true")
    wanted = {"errors_deadletterqueue_topic_name": "dlq.jobs", "share_delivery_count_limit": "2"}
    assert configure(broker.bootstrap, **wanted) is None
    send(broker.bootstrap, "poison", "rejected", "good", key=b"k", headers=(("trace", b"1"),))
    worker = Worker(broker.bootstrap, topic)
    assert len(worker.until(3, most=3)) == 3
    assert worker.say(RELEASE, 0) == 0 and worker.say(REJECT, 1) == 0 and worker.say(ACCEPT, 2) == 0
    assert worker.until(1)[0].deliveries == 2
    assert worker.say(RELEASE, 0) == 0
    letters = eventually(lambda: log_of(broker.bootstrap, "dlq.jobs"), 2)
    said = {row.value: {name: (value or b"").decode() for name, value in row.headers} for row in letters}
    assert {row.key for row in letters} == {b"k"}
    assert said[b"poison"].pop("__dlq.errors.message") == "it was delivered 2 times, the limit, and not accepted"
    assert said[b"rejected"].pop("__dlq.errors.message") == "a consumer rejected it"
    assert said[b"poison"] == {
        "trace": "1",
        "__dlq.errors.topic": "jobs",
        "__dlq.errors.partition": "0",
        "__dlq.errors.offset": "0",
        "__dlq.errors.group": "g",
        "__dlq.errors.delivery.count": "2",
        "tidelog-dead-letter-id": f"g/{topic.hex()}/0/0",
    }
    assert worker.get() == []


@proves("T4")
def test_a_dead_letter_topic_must_be_there_and_be_one(broker: tidelog.Broker) -> None:
    bootstrap = broker.bootstrap
    create(bootstrap, "dlq.jobs")
    create(bootstrap, "letters", errors_deadletterqueue_group_enable="true")

    def refused(name: str) -> str:
        why = configure(bootstrap, errors_deadletterqueue_topic_name=name)
        assert why is not None
        return why

    assert "dlq.none is not a topic; create it" in refused("dlq.none")
    assert "set errors.deadletterqueue.group.enable=true" in refused("dlq.jobs")
    assert "does not begin with dlq." in refused("letters")
    assert configure(bootstrap, "dlq.jobs", TOPIC_RESOURCE, errors_deadletterqueue_group_enable="true") is None
    assert configure(bootstrap, errors_deadletterqueue_topic_name="dlq.jobs") is None
    with pytest.raises(AssertionError, match="the group's own dead letters"):
        Worker(bootstrap, b"0" * 16, topic="dlq.jobs")
    topic = create(bootstrap)
    worker = Worker(bootstrap, topic)
    assert worker.heartbeat(1, ["jobs", "dlq.jobs"]).error_code == ErrorCode.INVALID_REQUEST
    assert worker.heartbeat(1).error_code == 0, "it is a member as before"
    of_letters = create(bootstrap, "dlq.read", errors_deadletterqueue_group_enable="true")
    assert configure(bootstrap, "readers", share_auto_offset_reset="earliest") is None
    reader = Worker(bootstrap, of_letters, group="readers", topic="dlq.read")
    assert "reads itself" in (configure(bootstrap, "readers", errors_deadletterqueue_topic_name="dlq.read") or "")
    reader.fetch()
    assert reader.heartbeat(-1).error_code == 0
    assert "reads itself" in (configure(bootstrap, "readers", errors_deadletterqueue_topic_name="dlq.read") or "")


@proves("T4")
def test_dead_letters_wait_for_their_topic_over_a_restart(broker: tidelog.Broker) -> None:
    topic = create(broker.bootstrap)
    create(broker.bootstrap, "dlq.jobs", errors_deadletterqueue_group_enable="true")
    assert configure(broker.bootstrap, errors_deadletterqueue_topic_name="dlq.jobs") is None
    send(broker.bootstrap, "rejected")
    assert configure(broker.bootstrap, "dlq.jobs", TOPIC_RESOURCE, errors_deadletterqueue_group_enable="false") is None
    worker = Worker(broker.bootstrap, topic)
    worker.until(1)
    assert worker.say(REJECT, 0) == 0
    restart(broker)
    assert Worker(broker.bootstrap, topic).get() == []
    assert log_of(broker.bootstrap, "dlq.jobs") == []
    assert configure(broker.bootstrap, "dlq.jobs", TOPIC_RESOURCE, errors_deadletterqueue_group_enable="true") is None
    assert [row.value for row in eventually(lambda: log_of(broker.bootstrap, "dlq.jobs"), 1)] == [b"rejected"]


@proves("T4")
def test_a_topic_for_dead_letters_is_made_where_the_broker_is_told_to(tmp_path: Path) -> None:
    made = {**SETTINGS, "errors.deadletterqueue.auto.create.topics.enable": "true"}
    with tidelog.Broker(tmp_path / "data", settings=made, in_process=True) as running:
        topic = create(running.bootstrap)
        assert configure(running.bootstrap, share_auto_offset_reset="earliest") is None
        for wrong in ("other", "__dlq.jobs", "dlq.no such name"):
            assert configure(running.bootstrap, errors_deadletterqueue_topic_name=wrong) is not None
        assert configure(running.bootstrap, errors_deadletterqueue_topic_name="dlq.jobs") is None
        send(running.bootstrap, "rejected")
        worker = Worker(running.bootstrap, topic)
        worker.until(1)
        assert not is_there(running.bootstrap, "dlq.jobs")
        assert worker.say(REJECT, 0) == 0
        here = running.bootstrap
        found = eventually(lambda: log_of(here, "dlq.jobs") if is_there(here, "dlq.jobs") else [], 1)
        assert [row.value for row in found] == [b"rejected"]


@proves("T4")
def test_a_delayed_record_is_in_the_log_at_once_and_in_the_queue_when_it_is_due(broker: tidelog.Broker) -> None:
    topic = create(broker.bootstrap, tidelog_delay_max_ms="60000")
    began = time.time()
    send(broker.bootstrap, "later", headers=(("tidelog-delay-ms", b"3000"),))
    send(broker.bootstrap, "at", headers=(("tidelog-deliver-at", str(int((began + 2.5) * 1000)).encode()),))
    send(broker.bootstrap, "now")
    for wrong in (b"soon", b"-5", b"60001", b"", b"9" * 30):
        send(broker.bootstrap, wrong, headers=(("tidelog-delay-ms", wrong),))
    assert len(log_of(broker.bootstrap, "jobs")) == 8
    worker = Worker(broker.bootstrap, topic)
    assert [one.offset for one in worker.until(6, most=100)] == [2, 3, 4, 5, 6, 7]
    assert worker.say(ACCEPT, 2, 3, 4, 5, 6, 7) == 0
    assert broker._server is not None
    assert queue_totals(broker._server.broker.queues)["queue_delays_refused"] == 5
    restart(broker)  # the index of what is not due is rebuilt from the log
    worker = Worker(broker.bootstrap, topic)
    seen = [(one.offset, time.time() - began) for one in worker.until(2, most=100)]
    assert [offset for offset, _ in seen] in ([1, 0], [0, 1])
    assert all(after >= (3.0 if offset == 0 else 2.5) for offset, after in seen)
    worker.die()
    with Cluster(broker.bootstrap) as cluster:
        topics.delete(cluster, "jobs")
    assert not broker._server.broker.queues.looked, "nothing is kept of a topic that is gone"


@proves("T4")
@pytest.mark.slow
def test_a_hundred_thousand_delayed_records_do_not_hold_up_those_that_are_ready(broker: tidelog.Broker) -> None:
    topic = create(broker.bootstrap, tidelog_delay_max_ms="3600000")
    for _ in range(100):
        send(broker.bootstrap, *["later"] * 1000, headers=(("tidelog-delay-ms", b"3600000"),))
    send(broker.bootstrap, "now")
    for _ in range(2):
        worker = Worker(broker.bootstrap, topic)
        (ready,) = worker.until(1)
        assert (ready.offset, ready.value) == (100_000, b"now")
        restart(broker)


@proves("T4")
def test_retention_waits_for_what_is_not_due_and_for_nothing_else(tmp_path: Path) -> None:
    """Two topics whose records are too old as soon as they are there; one of them delays."""
    quick = {**SETTINGS, "log.retention.check.interval.ms": "50"}
    small = {"retention_ms": "1", "segment_bytes": str(1 << 20)}
    with tidelog.Broker(tmp_path / "data", settings=quick, in_process=True) as running:
        assert configure(running.bootstrap, share_auto_offset_reset="earliest") is None
        topic = create(running.bootstrap, tidelog_delay_max_ms="3600000", **small)
        create(running.bootstrap, "plain", **small)
        for name in ("jobs", "plain"):
            send(running.bootstrap, "x" * 700_000, headers=(("tidelog-delay-ms", b"1500"),), topic=name)
            for _ in range(3):
                send(running.bootstrap, "y" * 700_000, topic=name)
        deadline = time.monotonic() + 60
        while start_of(running.bootstrap, "plain", 3) == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert start_of(running.bootstrap, "jobs", 3) == 0
        worker = Worker(running.bootstrap, topic)
        assert sorted(one.offset for one in worker.until(4, most=4)) == [0, 1, 2, 3]


@proves("T4")
def test_a_record_that_failed_waits_before_it_comes_again(broker: tidelog.Broker) -> None:
    topic = create(broker.bootstrap)
    assert configure(broker.bootstrap, tidelog_retry_backoff_ms="300") is None
    send(broker.bootstrap, "fails", "good")
    worker = Worker(broker.bootstrap, topic)
    worker.until(1)
    began = time.monotonic()
    assert worker.say(RELEASE, 0) == 0
    assert drain(worker, 1) == [1]  # others need not wait for it
    assert worker.until(1)[0].deliveries == 2
    assert time.monotonic() - began >= 0.3
    began = time.monotonic()
    assert worker.say(RELEASE, 0) == 0
    assert worker.until(1)[0].deliveries == 3
    assert time.monotonic() - began >= 0.6


@proves("T4")
def test_the_log_start_follows_the_slowest_of_the_named_groups(broker: tidelog.Broker) -> None:
    configs = {"tidelog_delete_when": "acknowledged", "tidelog_delete_groups": "g,slow"}
    topic = create(broker.bootstrap, **configs)
    assert configure(broker.bootstrap, "slow", share_auto_offset_reset="earliest") is None
    send(broker.bootstrap, *(str(number) for number in range(10)))
    fast, slow = Worker(broker.bootstrap, topic), Worker(broker.bootstrap, topic, group="slow")
    drain(fast, 8)
    assert start_of(broker.bootstrap) == 0
    drain(slow, 3)
    deadline = time.monotonic() + 60
    while start_of(broker.bootstrap) != 3:
        assert time.monotonic() < deadline, start_of(broker.bootstrap)
        time.sleep(0.1)


@proves("T4")
def test_who_asks_for_no_bytes_is_given_nothing_and_who_asks_for_one_gets_a_record(broker: tidelog.Broker) -> None:
    """As on Apache Kafka: `fetch.max.bytes=0` of a librdkafka share consumer."""
    topic = create(broker.bootstrap)
    send(broker.bootstrap, "a")
    worker = Worker(broker.bootstrap, topic)
    assert worker.fetch(wait_ms=50, size=0).responses == []
    (part,) = worker.fetch(wait_ms=5000, size=1).responses[0].partitions
    assert [(one.first_offset, one.last_offset, one.delivery_count) for one in part.acquired_records] == [(0, 0, 1)]


@proves("T4")
def test_the_first_who_asks_leaves_a_part_to_who_has_joined_and_not_asked_yet(broker: tidelog.Broker) -> None:
    topic = create(broker.bootstrap)
    send(broker.bootstrap, *map(str, range(100)))
    first, second = Worker(broker.bootstrap, topic), Worker(broker.bootstrap, topic)
    assert len(first.until(1, most=500)) == 25
    assert len(second.until(1, most=500)) == 19
    second.heartbeat(-1)
    second.die()
    found = first.until(75, most=500)
    assert {one.offset for one in found} == set(range(25, 100)), "when it is alone, all that is left"


@proves("T4")
def test_a_queue_that_begins_is_given_alone_and_later_all_partitions_together(broker: tidelog.Broker) -> None:
    """As on Apache Kafka, where each partition's queue begins by itself; librdkafka's tests count on it."""
    create(broker.bootstrap, partitions=3)
    with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
        reader = ShareReader(cluster, "g", ["jobs"])

        def send_to_each() -> None:
            for partition in range(3):
                producer.send("jobs", b"x", partition=partition)
            producer.flush()

        send_to_each()
        begun = [[one.at.partition for one in reader.fetch(60_000)] for _ in range(3)]
        assert sorted(begun) == [[0], [1], [2]]
        send_to_each()
        assert sorted(one.at.partition for one in reader.fetch(60_000)) == [0, 1, 2]
        reader.close()


@proves("T4")
def test_who_is_alone_and_takes_whole_batches_gets_the_rest_of_one_that_is_not_much_longer(
    broker: tidelog.Broker,
) -> None:
    """As on Apache Kafka, so that a batch is not sent twice; but not where others wait, nor all of a large one."""
    topic = create(broker.bootstrap)

    def given(worker: Worker, most: int, mode: int = 0) -> list[tuple[int, int]]:
        response = worker.fetch(most, 5000, mode=mode)
        acquired = response.responses[0].partitions[0].acquired_records
        return [(one.first_offset, one.last_offset) for one in acquired]

    send(broker.bootstrap, *["x"] * 20)
    send(broker.bootstrap, *["x"] * 3)
    alone = Worker(broker.bootstrap, topic)
    assert given(alone, 5) == [(0, 4), (5, 19)]
    assert given(alone, 2, mode=1) == [(20, 21)]
    assert given(alone, 1) == [(22, 22)]
    other = Worker(broker.bootstrap, topic)
    send(broker.bootstrap, *["x"] * 20)
    assert given(other, 2) == [(23, 24)]
    assert other.say(ACCEPT, 23, 24) == 0
    other.heartbeat(-1)
    other.die()
    send(broker.bootstrap, *["x"] * 200)
    assert broker._server is not None
    sessions = broker._server.broker.queues.sessions
    patience.eventually(lambda: len(sessions), lambda count: count == 1)
    assert given(alone, 23) == [(25, 47)]


@proves("T4")
def test_who_is_alone_and_fast_gets_more_of_a_large_batch_than_it_asks_for(broker: tidelog.Broker) -> None:
    """Or it would be sent the same batch for each 50 of its records. How fast it is, is a matter of the machine."""
    topic = create(broker.bootstrap)
    send(broker.bootstrap, *["x"] * 5000)
    alone = Worker(broker.bootstrap, topic)
    given: list[int] = []
    while len(given) < 5000:
        (part,) = alone.fetch(50, 5000, mode=0).responses[0].partitions
        offsets = [at for one in part.acquired_records for at in range(one.first_offset, one.last_offset + 1)]
        assert alone.say(ACCEPT, *offsets) == 0
        assert given or len(offsets) == 50, "at first nobody knows how fast it is"
        given += offsets
        if len(offsets) > 150:
            break
    else:
        raise AssertionError("it was never given more")
    assert given == list(range(len(given)))


@proves("T4")
def test_who_is_not_in_step_with_its_session_is_refused(broker: tidelog.Broker) -> None:
    topic = create(broker.bootstrap)
    worker = Worker(broker.bootstrap, topic)
    assert worker.fetch(epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert worker.fetch().error_code == 0
    assert worker.fetch(epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert worker.heartbeat(99).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert worker.heartbeat(-1).error_code == 0
    assert worker.heartbeat(1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    stranger = Worker(broker.bootstrap, topic, group="other")
    stranger.group = "unknown"
    assert stranger.fetch().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def start_of(bootstrap: str, topic: str = "jobs", known: int = 9) -> int:
    """`known` is an offset that the topic has."""
    with RawConnection(bootstrap) as connection:
        response = connection.call(fetch(topic, known), 12, FetchResponse)
    return response.responses[0].partitions[0].log_start_offset


def is_there(bootstrap: str, topic: str) -> bool:
    with Cluster(bootstrap) as cluster:
        return topic in topics.names(cluster)


def eventually(look: object, count: int) -> list[Row]:
    deadline = time.monotonic() + 60
    while len(found := look()) < count:  # type: ignore[operator]
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found  # type: ignore[no-any-return]
