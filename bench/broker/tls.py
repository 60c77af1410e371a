"""Row `tls`: one partition in and out by TLS, as row `throughput` does without; the same certificate on both brokers.

Both have brokers of their own for it, with a second listener that speaks TLS 1.3; topics are made by the plain one.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from bench.broker.bench import KAFKA_SETTINGS, Bench, Side
from bench.broker.figures import KAFKA, KAFKA_DISK, TIDELOG_DISK, TIDELOG_MEMORY
from bench.broker.throughput import SHAPES, add, measured

from against.apache_kafka import DISTRIBUTION_JVM, ApacheKafka, free_port
from against.tidelog_process import TidelogProcess
from certificates import make_certificates

AUTHORITY = "LOAD_SSL_CA"  # load.c speaks TLS where it is set


class Pair(NamedTuple):
    side: Side
    address: str


def run(bench: Bench) -> None:
    folder = bench.new_folder("certificates")
    certificates = make_certificates(folder)
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificates.broker)}
    ports = free_port(), free_port()
    listeners = [f"SSL://127.0.0.1:{port}" for port in ports]
    tidelog = TidelogProcess(bench.new_folder("tidelog"), settings, further_listeners=listeners[0])
    kafka = ApacheKafka(
        bench.new_folder("kafka"), {**KAFKA_SETTINGS, **settings}, jvm=DISTRIBUTION_JVM, further_listeners=listeners[1]
    )
    os.environ[AUTHORITY] = str(certificates.authority)
    try:
        tidelog.start()
        kafka.start()
        _take(bench, _pairs(tidelog, kafka, *ports))
    finally:
        del os.environ[AUTHORITY]
        bench.discard(tidelog)
        bench.discard(kafka)


def _pairs(tidelog: TidelogProcess, kafka: ApacheKafka, tidelog_port: int, kafka_port: int) -> list[Pair]:
    ours, theirs = f"localhost:{tidelog_port}", f"localhost:{kafka_port}"
    return [
        Pair(Side(TIDELOG_DISK, tidelog.bootstrap, tidelog.pid, {}), ours),
        Pair(Side(TIDELOG_MEMORY, tidelog.bootstrap, tidelog.pid, {"tidelog.durability": "memory"}), ours),
        Pair(Side(KAFKA, kafka.bootstrap, kafka.pid, {}), theirs),
        Pair(Side(KAFKA_DISK, kafka.bootstrap, kafka.pid, {"flush.messages": "1"}), theirs),
    ]


def _take(bench: Bench, pairs: list[Pair]) -> None:
    first = 1 if bench.quick else 0
    for shape in (SHAPES[0], SHAPES[2]):
        for rep in range(first, bench.reps + 1):
            for side, address in pairs:
                topic = bench.new_topic(side)
                messages = bench.amount(shape.messages, least=2_000)
                bench.touch_memory(messages * shape.size)
                produced = measured(side, "produce", address, topic, messages, shape.size, shape.batch_bytes)
                add(bench, f"TLS produce {shape.name}", side, produced, rep > 0)
                consumed = measured(side, "consume", address, topic, messages)
                add(bench, f"TLS consume {shape.name}", side, consumed, rep > 0)
                bench.delete_topic(side, topic)
