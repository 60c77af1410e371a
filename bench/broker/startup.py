"""Rows `startup` and `memory`: launch to first ack in a fresh folder, memory idle and after a gigabyte in and out."""

from __future__ import annotations

import socket
import time

from bench.broker import frames
from bench.broker.bench import Bench
from bench.broker.figures import KAFKA, TIDELOG_DISK
from bench.broker.load import run_load
from bench.broker.process import resident_bytes

from against.apache_kafka import ApacheKafka
from against.tidelog_process import TidelogProcess

GIVE_UP_SECONDS = 300.0
RETRY_SECONDS = 0.001
SETTLE_SECONDS = 3.0
MB = 1e6


def run_startup(bench: Bench) -> None:
    for _ in range(bench.reps):
        for name, broker in ((TIDELOG_DISK, bench.new_tidelog()), (KAFKA, bench.new_kafka())):
            bench.figures.add("launch to first ack", "ms", name, seconds_to_first_ack(broker) * 1000)
            bench.discard(broker)


def run_memory(bench: Bench) -> None:
    messages = bench.amount(1_000_000, least=20_000)
    for name, broker in ((TIDELOG_DISK, bench.new_tidelog()), (KAFKA, bench.new_kafka())):
        seconds_to_first_ack(broker)
        time.sleep(SETTLE_SECONDS)
        bench.figures.add("memory", "idle MB", name, resident_bytes(broker.pid) / MB)
        run_load("produce", broker.bootstrap, "bench", messages, 1000, 1_000_000)
        run_load("consume", broker.bootstrap, "bench", messages)
        run_load("produce", broker.bootstrap, "bench", messages // 2, 1000, 16_384)
        bench.figures.add("memory", "after load MB", name, resident_bytes(broker.pid) / MB)
        bench.discard(broker)


def seconds_to_first_ack(broker: TidelogProcess | ApacheKafka, topic: str = "bench") -> float:
    """Starts the broker and produces as soon as it lets us, over one plain connection; the topic is made if need be."""
    began = time.monotonic()
    broker.start(wait=False)
    connection = _connect(broker.port, began + GIVE_UP_SECONDS)
    with connection:
        request = frames.produce(topic, 0, frames.batch(b"first"))
        while True:
            connection.sendall(request)
            error = frames.produce_error(frames.receive(connection), topic)
            if error == 0:
                return time.monotonic() - began
            if time.monotonic() > began + GIVE_UP_SECONDS:
                raise TimeoutError(f"no ack within {GIVE_UP_SECONDS} s:\n{broker.said()[-2000:]}")
            if error == frames.UNKNOWN_TOPIC_OR_PARTITION:
                connection.sendall(frames.metadata(topic))
                frames.receive(connection)
            time.sleep(RETRY_SECONDS)


def _connect(port: int, deadline: float) -> socket.socket:
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=GIVE_UP_SECONDS)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
