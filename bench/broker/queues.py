"""Row `queues`: share groups, with confluent-kafka's ShareConsumer on both brokers, and with our own workers.

`one worker takes what there is`: a topic of small records, accepted as fast as one worker can. `8 workers of one
partition`: 4,000 jobs of 5 ms; how long they take, and how many of the eight did at least half an equal share. `8 of
our workers`: the same by `tidelog.worker`. CPU is the broker's.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import NamedTuple

from bench.broker.bench import Bench, Side
from bench.broker.process import cpu_seconds
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import tidelog

RECORDS = 200_000
SIZE = 100
JOBS = 4000
JOB_S = 0.005
WORKERS = 8
PATIENCE_S = 300


def run(bench: Bench) -> None:
    records, jobs = bench.amount(RECORDS, least=2_000), bench.amount(JOBS, least=80)
    for side, counts in bench.turns():
        taken = _shared(bench, side, records, workers=1, job_s=0.0)
        if counts:
            row = "one worker takes what there is"
            bench.figures.add(row, "records/s", side.name, records / taken.seconds)
            bench.figures.add(row, "CPU s/1,000,000", side.name, taken.cpu * 1e6 / records)
        ideal_s = jobs * JOB_S / WORKERS
        for row, take in ((f"{WORKERS} workers of one partition", _shared), (f"{WORKERS} of our workers", _ours)):
            taken = take(bench, side, jobs, workers=WORKERS, job_s=JOB_S)
            if counts:
                busy = sum(count >= jobs / WORKERS / 2 for count in taken.done.values())
                bench.figures.add(
                    f"{row}, {JOB_S * 1000:g} ms a job", "times the ideal", side.name, taken.seconds / ideal_s
                )
                bench.figures.add(f"{row}, {JOB_S * 1000:g} ms a job", "workers busy", side.name, busy)
                bench.figures.add(f"{row}, {JOB_S * 1000:g} ms a job", "CPU s/1,000", side.name, taken.cpu * 1e3 / jobs)


class Taken(NamedTuple):
    seconds: float
    cpu: float
    done: Counter[str]


def _filled(bench: Bench, side: Side, count: int) -> tuple[str, str]:
    """A topic with records, and a group that begins with the first of them."""
    topic = bench.new_topic(side)
    group = f"group-{topic}"
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(60)
    producer = Producer(
        {"bootstrap.servers": side.bootstrap, "linger.ms": 5, "queue.buffering.max.messages": count + 1}
    )
    for _ in range(count):
        producer.produce(topic, bytes(SIZE))
    producer.flush()
    return topic, group


def _until(side: Side, done: Counter[str], count: int) -> tuple[float, float]:
    """How long until all are done, from now on, and the broker's CPU seconds."""
    began, before = time.monotonic(), cpu_seconds(side.pid)
    while sum(done.values()) < count:
        if time.monotonic() - began > PATIENCE_S:
            raise RuntimeError(f"{sum(done.values())} of {count} records of {side.name} within {PATIENCE_S} s")
        time.sleep(0.01)
    return time.monotonic() - began, cpu_seconds(side.pid) - before


def _shared(bench: Bench, side: Side, count: int, workers: int, job_s: float) -> Taken:
    topic, group = _filled(bench, side, count)
    done: Counter[str] = Counter()
    ready, over = threading.Barrier(workers + 1), threading.Event()

    def work(worker: int) -> None:
        consumer = ShareConsumer({"bootstrap.servers": side.bootstrap, "group.id": group, "log_level": 0})
        consumer.subscribe([topic])
        ready.wait(60)
        while not over.is_set():
            for _ in consumer.poll(0.2):
                if job_s:
                    time.sleep(job_s)
                done[str(worker)] += 1
        consumer.close()

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in range(workers)]
    for thread in threads:
        thread.start()
    ready.wait(60)
    seconds, cpu = _until(side, done, count)
    over.set()
    for thread in threads:
        thread.join(60)
    bench.delete_topic(side, topic)
    return Taken(seconds, cpu, done)


def _ours(bench: Bench, side: Side, count: int, workers: int, job_s: float) -> Taken:
    """From the first job on: how long a process takes to start is not the question."""
    topic, group = _filled(bench, side, count)
    done: Counter[str] = Counter()
    begun = threading.Event()

    def work(job: tidelog.Job) -> None:
        begun.set()
        time.sleep(job_s)
        done[threading.current_thread().name] += 1

    with tidelog.worker(work, topic=topic, group=group, workers=workers, bootstrap=side.bootstrap):
        begun.wait(60)
        seconds, cpu = _until(side, done, count)
    bench.delete_topic(side, topic)
    return Taken(seconds, cpu, done)
