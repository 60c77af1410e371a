"""Row `idle`: 1,000 consumers that wait for a record, each on its own partition, as default clients do (500 ms a poll).

First nothing is written: what the broker spends on them. Then a record goes to one of them at a time: how long until
it is seen, from the produce request to the fetch answer.
"""

from __future__ import annotations

import random
import selectors
import socket
import struct
import time
from dataclasses import dataclass

from bench.broker import frames
from bench.broker.bench import Bench, Side
from bench.broker.process import cpu_seconds

CONSUMERS = 1000
WAIT_MS = 500
QUIET_SECONDS = 10.0
RECORDS = 500
BETWEEN_RECORDS = 0.01


@dataclass(slots=True)
class Waiter:
    """One consumer: it asks again as soon as it is answered."""

    connection: socket.socket
    topic: str
    partition: int
    offset: int = 0
    received: bytes = b""

    def ask(self) -> None:
        self.connection.sendall(frames.fetch(self.topic, self.partition, self.offset, WAIT_MS))

    def answered(self) -> bool:
        """Takes what has arrived; True if that was a record."""
        self.received += self.connection.recv(65536)
        if len(self.received) < 4:
            return False
        size = 4 + struct.unpack_from(">i", self.received)[0]
        if len(self.received) < size:
            return False
        error, records = frames.fetched(self.received[8:size], self.topic)
        if error:
            raise RuntimeError(f"fetch of {self.topic}-{self.partition} at {self.offset}: error {error}")
        self.received = self.received[size:]
        self.offset += 1 if records else 0
        self.ask()
        return records > 0


def run(bench: Bench) -> None:
    consumers = 50 if bench.quick else CONSUMERS
    row = f"{consumers:,} idle consumers"
    for side, counts in bench.turns(warm=False):
        topic = bench.new_topic(side, consumers)
        each, seen = _measure(side, topic, consumers, bench.quick)
        bench.delete_topic(side, topic)
        if counts:
            bench.figures.add(row, "CPU ms/s each", side.name, each)
            bench.figures.add(row, "record seen p50 ms", side.name, seen[len(seen) // 2])
            bench.figures.add(row, "record seen p99 ms", side.name, seen[int(len(seen) * 0.99)])


def _measure(side: Side, topic: str, consumers: int, quick: bool) -> tuple[float, list[float]]:
    port = int(side.bootstrap.rpartition(":")[2])
    selector = selectors.DefaultSelector()
    for partition in range(consumers):
        waiter = Waiter(_connect(port), topic, partition)
        selector.register(waiter.connection, selectors.EVENT_READ, waiter)
        waiter.ask()
        time.sleep(WAIT_MS / 1000 / consumers)
    _serve(selector, 1.0)
    quiet = 2.0 if quick else QUIET_SECONDS
    before = cpu_seconds(side.pid)
    _serve(selector, quiet)
    each = (cpu_seconds(side.pid) - before) * 1000 / quiet / consumers
    seen = _wake_some(selector, _connect(port), topic, consumers, 50 if quick else RECORDS)
    for key in list(selector.get_map().values()):
        key.data.connection.close()
    selector.close()
    return each, sorted(seen)


def _wake_some(
    selector: selectors.BaseSelector, producer: socket.socket, topic: str, consumers: int, records: int
) -> list[float]:
    choice = random.Random(1)
    seen: list[float] = []
    for _ in range(records):
        sent = time.monotonic()
        producer.sendall(frames.produce(topic, choice.randrange(consumers), frames.batch(b"x" * 100)))
        seen.append((_serve(selector, 5.0, until_record=True) - sent) * 1000)
        frames.receive(producer)
        _serve(selector, BETWEEN_RECORDS)
    producer.close()
    return seen


def _serve(selector: selectors.BaseSelector, seconds: float, *, until_record: bool = False) -> float:
    """Answers the waiters for so long, or until one has a record; the time when it ended."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        for key, _ in selector.select(left):
            if key.data.answered() and until_record:
                return time.monotonic()
    if until_record:
        raise TimeoutError(f"no consumer saw the record within {seconds} s")
    return time.monotonic()


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
