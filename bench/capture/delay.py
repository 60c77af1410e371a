"""Row `delay`: 500 changes a second, each a transaction; until a consumer has its record."""

from __future__ import annotations

import json
import statistics
import time
from threading import Thread
from typing import Any

import psycopg
from bench.capture.bench import POSTGRES, Bench, until
from bench.capture.figures import P50, P99

from tidelog.client import Cluster, Consumer, TopicPartition

RATE, SECONDS = 500, 10.0


def run(bench: Bench) -> None:
    for database in bench.databases:
        for _ in range(bench.reps):
            for side in bench.sides(database):
                turn(bench, database, side)


def turn(bench: Bench, database: str, side: str) -> None:
    table = bench.new_table(database)
    bench.run_sql(database, f"INSERT INTO {table} VALUES (0, 0, 0, 'first')")
    with bench.capturing(database, side, table, f"p{table}") as one:
        until(lambda: bench.end_of(one.topic) > 0, "no record came")
        time.sleep(2)  # it follows by now
        count = int(RATE * max(3.0, SECONDS * bench.share))
        writer = Thread(target=writes, args=(bench, database, table, count))
        writer.start()
        delays = followed(bench, one.topic, count)
        writer.join()
    delays = sorted(delays[len(delays) // 10 :])
    bench.figures.add(f"{database}, delay", P50, side, statistics.median(delays))
    bench.figures.add(f"{database}, delay", P99, side, delays[int(len(delays) * 0.99)])


def connected(bench: Bench, database: str) -> Any:
    if database == POSTGRES:
        return psycopg.connect(bench.postgres[0].url(), autocommit=True)
    return bench.mariadb.connect("bench")


def writes(bench: Bench, database: str, table: str, count: int) -> None:
    connection = connected(bench, database)
    cursor = connection.cursor()
    began = time.perf_counter()
    for number in range(1, count + 1):
        due = began + number / RATE
        if (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        cursor.execute(f"INSERT INTO {table} VALUES ({number}, 1, {time.time_ns() // 1000}, 'a note of some length')")
    connection.close()


def followed(bench: Bench, topic: str, count: int) -> list[float]:
    """Milliseconds, in the order of receipt."""
    delays: list[float] = []
    deadline = time.monotonic() + 120
    with Cluster(bench.broker) as cluster:
        consumer = Consumer(cluster, read_committed=True)
        consumer.assign({TopicPartition(topic, 0): bench.end_of(topic)})
        while len(delays) < count:
            assert time.monotonic() < deadline, f"{len(delays)} of {count} changes came"
            for fetched in consumer.fetch():
                now_us = time.time_ns() // 1000
                for row in fetched.rows():
                    if row.value is not None:
                        delays.append((now_us - json.loads(row.value)["after"]["at"]) / 1000)
    return delays
