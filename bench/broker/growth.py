"""Rows `partitions` and `connections`: how time and memory grow with how much there is of each, from one fresh broker
per step.
"""

from __future__ import annotations

import socket
import time

from bench.broker import frames
from bench.broker.bench import Bench, Side
from bench.broker.figures import KAFKA, TIDELOG_DISK
from bench.broker.process import resident_bytes
from bench.broker.startup import SETTLE_SECONDS, seconds_to_first_ack

from against.apache_kafka import ApacheKafka
from against.tidelog_process import TidelogProcess

PARTITIONS = (1, 10, 100, 1_000, 10_000)
CONNECTIONS = (100, 1_000, 5_000)
CONNECTION_SETTINGS = {"max.connections.per.ip": "10000", "max.connections": "10000"}
MB = 1e6


def run_partitions(bench: Bench) -> None:
    for count in PARTITIONS[: 3 if bench.quick else None]:
        for name, broker in ((TIDELOG_DISK, bench.new_tidelog()), (KAFKA, bench.new_kafka())):
            _grow_partitions(bench, name, broker, count)
            bench.discard(broker)


def _grow_partitions(bench: Bench, name: str, broker: TidelogProcess | ApacheKafka, count: int) -> None:
    row = f"{count:,} partitions"
    broker.start()
    began = time.monotonic()
    topic = bench.new_topic(Side(name, broker.bootstrap, broker.pid, {}), count)
    bench.figures.add(row, "create s", name, time.monotonic() - began)
    broker.stop()
    bench.figures.add(row, "start to first ack ms", name, seconds_to_first_ack(broker, topic) * 1000)
    time.sleep(SETTLE_SECONDS)
    bench.figures.add(row, "memory MB", name, resident_bytes(broker.pid) / MB)
    broker.kill()
    bench.figures.add(row, "start after kill -9 ms", name, seconds_to_first_ack(broker, topic) * 1000)


def run_connections(bench: Bench) -> None:
    for count in CONNECTIONS[: 1 if bench.quick else None]:
        for name, broker in ((TIDELOG_DISK, bench.new_tidelog(CONNECTION_SETTINGS)), (KAFKA, bench.new_kafka())):
            broker.start()
            with_one = _idle_memory(broker, 1)
            with_many = _idle_memory(broker, count)
            bench.figures.add(f"{count:,} idle connections", "bytes each", name, (with_many - with_one) / (count - 1))
            bench.discard(broker)


def _idle_memory(broker: TidelogProcess | ApacheKafka, count: int) -> int:
    connections = [_greeted(broker.port) for _ in range(count)]
    time.sleep(SETTLE_SECONDS)
    used = resident_bytes(broker.pid)
    for connection in connections:
        connection.close()
    return used


def _greeted(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(frames.api_versions())
    frames.receive(connection)
    return connection
