"""Row `queues`: share groups, with confluent-kafka's ShareConsumer on both brokers.

`one worker takes what there is`: a topic of small records, accepted as fast as one worker can. `eight workers, jobs of
5 ms`: one partition with 4,000 jobs; how long they take, and how many of the eight did at least half an equal share.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from bench.broker.bench import Bench, Side
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

RECORDS = 200_000
SIZE = 100
JOBS = 4000
JOB_S = 0.005
WORKERS = 8
PATIENCE_S = 300


def run(bench: Bench) -> None:
    records, jobs = bench.amount(RECORDS, least=2_000), bench.amount(JOBS, least=80)
    for side, counts in bench.turns():
        took, _ = _shared(bench, side, records, workers=1, job_s=0.0)
        if counts:
            bench.figures.add("one worker takes what there is", "records/s", side.name, records / took)
        took, done = _shared(bench, side, jobs, workers=WORKERS, job_s=JOB_S)
        if counts:
            busy = sum(count >= jobs / WORKERS / 2 for count in done.values())
            row = f"{WORKERS} workers of one partition, {JOB_S * 1000:g} ms a job"
            bench.figures.add(row, "times the ideal", side.name, took / (jobs * JOB_S / WORKERS))
            bench.figures.add(row, "workers busy", side.name, busy)


def _shared(bench: Bench, side: Side, count: int, workers: int, job_s: float) -> tuple[float, Counter[int]]:
    """How long the records of a topic took, and how many each worker had."""
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
    done: Counter[int] = Counter()
    ready, over = threading.Barrier(workers + 1), threading.Event()

    def work(worker: int) -> None:
        consumer = ShareConsumer({"bootstrap.servers": side.bootstrap, "group.id": group, "log_level": 0})
        consumer.subscribe([topic])
        ready.wait(60)
        while not over.is_set():
            for _ in consumer.poll(0.2):
                if job_s:
                    time.sleep(job_s)
                done[worker] += 1
        consumer.close()

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in range(workers)]
    for thread in threads:
        thread.start()
    ready.wait(60)
    began = time.monotonic()
    while sum(done.values()) < count:
        if time.monotonic() - began > PATIENCE_S:
            raise RuntimeError(f"{sum(done.values())} of {count} records of {side.name} within {PATIENCE_S} s")
        time.sleep(0.01)
    took = time.monotonic() - began
    over.set()
    for thread in threads:
        thread.join(60)
    bench.delete_topic(side, topic)
    return took, done
