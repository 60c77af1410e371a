"""confluent-kafka's ShareConsumer: accept, release and reject, locks that run out, more consumers than partitions."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer, TopicPartition

from against.apache_kafka import ApacheKafka, die_with_parent
from against.brokers import Broker
from against.confluent import consumer_of, producer_of, read
from against.queues import EARLIEST, EXPLICIT, configure, offsets, polled, share_consumer
from against.rebalancing import create
from against.tidelog_process import TidelogProcess
from proving import proves


def fill(broker: Broker, topic: str, count: int, partitions: int = 1) -> None:
    create(broker.bootstrap, topic, partitions)
    send(broker, topic, count)


def send(broker: Broker, topic: str, count: int) -> None:
    producer = producer_of(broker, linger_ms=5)
    for number in range(count):
        producer.produce(topic, str(number))
    assert producer.flush(180) == 0


@proves("T4")
@pytest.mark.slow
def test_what_is_released_comes_again_and_what_is_accepted_or_rejected_does_not(
    broker: Broker, topic: str, group: str
) -> None:
    fill(broker, topic, 10)
    configure(broker.bootstrap, group, **EARLIEST)
    with share_consumer(broker.bootstrap, group, topic, **EXPLICIT) as consumer:
        first = polled(consumer)
        assert offsets(first) == list(range(10))
        for message in first:
            kinds = {3: AcknowledgeType.RELEASE, 5: AcknowledgeType.REJECT}
            consumer.acknowledge(message, kinds.get(message.offset() or 0, AcknowledgeType.ACCEPT))
        assert list(consumer.commit_sync(60.0).values()) == [None]
        again = polled(consumer)
        assert [(one.offset(), one.delivery_count()) for one in again] == [(3, 2)]
        consumer.acknowledge(again[0])
    with share_consumer(broker.bootstrap, group, topic) as consumer:
        assert not list(consumer.poll(2.0))


@proves("T4")
@pytest.mark.slow
def test_a_lock_that_runs_out_gives_the_record_to_another(broker: Broker, topic: str, group: str) -> None:
    fill(broker, topic, 1)
    configure(broker.bootstrap, group, **EARLIEST, share_record_lock_duration_ms="1000")
    with share_consumer(broker.bootstrap, group, topic, **EXPLICIT) as slow:
        (mine,) = polled(slow)
        with share_consumer(broker.bootstrap, group, topic) as other:
            (theirs,) = polled(other)
            assert (theirs.offset(), theirs.delivery_count()) == (0, 2)
            other.commit_sync(60.0)
        slow.acknowledge(mine)
        (outcome,) = slow.commit_sync(60.0).values()
        # Apache Kafka passes over what lies below the start of the queue, whoever speaks of it.
        told = outcome is not None or broker.name == ApacheKafka.name
        assert told, "who let the lock run out cannot accept any more"


@proves("T4")
@pytest.mark.slow
def test_a_record_that_fails_each_time_is_given_up(broker: Broker, topic: str, group: str) -> None:
    fill(broker, topic, 2)
    configure(broker.bootstrap, group, **EARLIEST, share_delivery_count_limit="2")
    seen: Counter[int] = Counter()
    with share_consumer(broker.bootstrap, group, topic, **EXPLICIT) as consumer:
        while seen != {0: 2, 1: 1}:
            for message in polled(consumer):
                seen[message.offset() or 0] += 1
                consumer.acknowledge(message, AcknowledgeType.ACCEPT if message.offset() else AcknowledgeType.RELEASE)
            consumer.commit_sync(60.0)
        assert not list(consumer.poll(2.0))


@proves("T4")
@pytest.mark.slow
def test_a_new_group_begins_with_what_comes_then(broker: Broker, topic: str, group: str) -> None:
    fill(broker, topic, 5)
    with share_consumer(broker.bootstrap, group, topic) as consumer:
        assert not list(consumer.poll(3.0))
        send(broker, topic, 1)
        assert offsets(polled(consumer)) == [5]


@proves("T4")
@pytest.mark.slow
def test_more_consumers_than_partitions_share_them_and_each_record_is_given_once(
    broker: Broker, topic: str, group: str
) -> None:
    configure(broker.bootstrap, group, **EARLIEST)
    fill(broker, topic, 600, partitions=2)
    done = work(broker.bootstrap, topic, group, workers=4, count=600, seconds=0.001)
    assert sum(done.values(), Counter()) == Counter(range(600))


@proves("T4")
@pytest.mark.slow
def test_eight_workers_of_one_partition_are_all_busy(tidelog_process: TidelogProcess, topic: str, group: str) -> None:
    """Apache Kafka gives hundreds of records to whoever asks first, and keeps two of the eight busy."""
    create(tidelog_process.bootstrap, topic, 1)
    configure(tidelog_process.bootstrap, group, **EARLIEST)
    send(tidelog_process, topic, 1600)
    done = work(tidelog_process.bootstrap, topic, group, workers=8, count=1600, seconds=0.005)
    assert sum(done.values(), Counter()) == Counter(range(1600))
    busy = [worker for worker, numbers in done.items() if sum(numbers.values()) >= 1600 / 8 / 2]
    assert len(busy) >= 7, {worker: sum(numbers.values()) for worker, numbers in done.items()}


def work(bootstrap: str, topic: str, group: str, workers: int, count: int, seconds: float) -> dict[int, Counter[int]]:
    """The numbers that each worker was given, all of which take so long; they begin together."""
    done: dict[int, Counter[int]] = {worker: Counter() for worker in range(workers)}
    ready, over = threading.Barrier(workers), threading.Event()

    def run(worker: int) -> None:
        consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 3})
        consumer.subscribe([topic])
        ready.wait(60)
        while not over.is_set():
            for message in consumer.poll(0.2):
                assert message.error() is None
                time.sleep(seconds)
                done[worker][int(message.value() or b"-1")] += 1
            if sum(len(numbers) for numbers in done.values()) >= count:
                over.set()
        consumer.commit_sync(60.0)  # what was polled last is accepted by the next poll, by a commit, and not by `close`
        consumer.close()

    threads = [threading.Thread(target=run, args=(worker,), daemon=True) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert over.is_set()
    return done


@proves("T4")
@pytest.mark.full
def test_eight_workers_are_killed_at_random_and_poison_becomes_dead_letters(
    tidelog_process: TidelogProcess, topic: str, group: str, tmp_path: Path
) -> None:
    """Nothing is lost, nothing is accepted twice, and what killed every worker that had it is in the dead letters."""
    bootstrap, jobs = tidelog_process.bootstrap, 400
    create(bootstrap, topic, 1)
    create(bootstrap, f"dlq.{topic}", 1, errors_deadletterqueue_group_enable="true")
    letters = {"errors_deadletterqueue_topic_name": f"dlq.{topic}", "share_delivery_count_limit": "3"}
    configure(bootstrap, group, **EARLIEST, **letters, share_record_lock_duration_ms="2000")
    send(tidelog_process, topic, jobs)
    chance = random.Random(18)
    files = [tmp_path / f"done-{worker}" for worker in range(8)]
    poison = {number for number in range(jobs) if number % 50 == 0}

    def start(worker: int) -> subprocess.Popen[bytes]:
        words = [sys.executable, str(Path(__file__).with_name("killed_worker.py"))]
        return subprocess.Popen([*words, bootstrap, topic, group, str(files[worker])], preexec_fn=die_with_parent)

    workers = [start(worker) for worker in range(8)]
    deadline = time.monotonic() + 180
    done: set[int] = set()
    try:
        while done != set(range(jobs)) - poison or len(dead := dead_letters(tidelog_process, topic)) < len(poison):
            assert time.monotonic() < deadline, (sorted(set(range(jobs)) - poison - done), len(dead))
            time.sleep(0.3)
            victim = chance.randrange(8)
            if chance.random() < 0.3 and workers[victim].poll() is None:
                workers[victim].kill()
            for worker, process in enumerate(workers):
                if process.poll() is not None:
                    workers[worker] = start(worker)
            lines = [line.split() for file in files if file.exists() for line in file.read_text().splitlines()]
            done = {int(number) for what, number in lines if what == "done"}
    finally:
        for process in workers:
            process.kill()
            process.wait()
    accepted = Counter(number for what, number in lines if what == "accepted")
    assert [number for number, times in accepted.items() if times > 1] == []
    assert Counter(dead) == Counter(poison)


def dead_letters(broker: TidelogProcess, topic: str) -> list[int]:
    consumer = consumer_of(broker)
    try:
        place = TopicPartition(f"dlq.{topic}", 0, 0)
        end = consumer.get_watermark_offsets(place, timeout=60)[1]
        consumer.assign([place])
        return [int(one.value() or b"-1") for one in read(consumer, end)] if end else []
    finally:
        consumer.close()
