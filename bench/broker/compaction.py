"""Row `compaction`: how fast a log is compacted, beside Apache Kafka's cleaner: bytes of log that a pass goes over.

Each broker gets the same records, by the same producer, into a topic that only deletes; then the topic is told to
compact, and the brokers' own log says how long the pass took: Kafka's `... MB of log processed in ... seconds`, ours
`compacted ... bytes=... seconds=...`. Both read every record twice (once for its key, once to copy it) and count it
once. Kafka has one cleaner thread, 128 MB for keys and its distribution's heap. Data lies in memory where there is such
a place: this measures the cleaners.
"""

from __future__ import annotations

import random
import re
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.broker.bench import Bench
from bench.broker.figures import KAFKA, TIDELOG_DISK
from bench.broker.process import cpu_seconds
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from against.apache_kafka import DISTRIBUTION_JVM, ApacheKafka
from against.tidelog_process import TidelogProcess

MEGABYTES = 100  # of records, before compression; fewer may leave no segment that can be compacted
FEW_TO_A_BATCH = 0.2  # of that: they are slow to produce
SECONDS = 90.0
SHORTEST_S = 0.05  # Kafka tells tenths
SEGMENT_BYTES = 4 << 20
SETTINGS = {"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "1000"}
LOGGING = """\
<Configuration status="WARN"><Appenders><Console name="out"><PatternLayout pattern="%m%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="out"/></Root>
<Logger name="org.apache.kafka.storage.internals.log" level="INFO"/></Loggers></Configuration>
"""
KAFKA_SAYS = re.compile(r"cleaned log (\S+?)-0 .*?\n\s*([\d,.]+) MB of log processed in ([\d,.]+) seconds", re.DOTALL)
OURS_SAYS = re.compile(r"compacted topic=(\S+) .*bytes=\D*(\d+) to \d+\D* seconds=([\d.]+)")


class Shape(NamedTuple):
    name: str
    value_bytes: int
    keys: int
    compression: str
    linger_ms: int


SHAPES = [
    Shape("100 B values, plain", 100, 200_000, "none", 50),
    Shape("1 KB values, plain", 1000, 20_000, "none", 50),
    Shape("100 B values, lz4", 100, 200_000, "lz4", 50),
    Shape("100 B values, zstd", 100, 200_000, "zstd", 50),
    Shape("100 B values, few to a batch", 100, 200_000, "none", 0),
]
Broker = ApacheKafka | TidelogProcess


def fill(broker: Broker, topic: str, shape: Shape, megabytes: float) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"cleanup.policy": "delete", "segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)
    batch = {} if shape.linger_ms else {"batch.num.messages": 3}
    settings = {"linger.ms": shape.linger_ms, "compression.type": shape.compression, "acks": 1, **batch}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "queue.buffering.max.kbytes": 200_000, **settings})
    rng = random.Random(1)
    values = [rng.randbytes(shape.value_bytes // 2).hex().encode() for _ in range(100)]
    for number in range(int(megabytes * 1_000_000) // (shape.value_bytes + 30)):
        while True:
            try:
                producer.produce(topic, values[number % 100], b"key-%010d" % rng.randrange(shape.keys))
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


class Pass(NamedTuple):
    megabytes: float
    seconds: float


def compact(broker: Broker, topic: str) -> Pass:
    """The first pass."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        said = broker.said()
        for name, size, seconds in KAFKA_SAYS.findall(said):
            if name == topic:
                return Pass(float(size.replace(",", "")) * 1.048576, max(float(seconds.replace(",", "")), SHORTEST_S))
        for name, size, seconds in OURS_SAYS.findall(said):
            if name == topic:
                return Pass(int(size) / 1e6, max(float(seconds), SHORTEST_S))
        time.sleep(0.1)
    raise TimeoutError(f"{broker.name} did not compact {topic} within {SECONDS} s")


def started(name: str, folder: Path) -> Broker:
    if name == "tidelog":
        return TidelogProcess(folder, SETTINGS).start()
    folder.mkdir(parents=True)
    (folder / "log4j2.xml").write_text(LOGGING)
    jvm = (*DISTRIBUTION_JVM, f"-Dlog4j2.configurationFile={folder / 'log4j2.xml'}")
    return ApacheKafka(folder, SETTINGS, jvm=jvm).start()


def run(bench: Bench) -> None:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-", dir=memory if memory.is_dir() else None) as folder:
        brokers = [started(name, Path(folder) / name) for name in ("tidelog", "apache_kafka")]
        try:
            for number, shape in enumerate(SHAPES):
                for rep, counts in enumerate(bench.rounds()):
                    for broker in brokers:
                        _take(bench, broker, f"table-{number}-{rep}", shape, counts=counts)
        finally:
            for broker in brokers:
                broker.stop()


def _take(bench: Bench, broker: Broker, topic: str, shape: Shape, *, counts: bool) -> None:
    megabytes = MEGABYTES * (1 if shape.linger_ms else FEW_TO_A_BATCH)
    fill(broker, topic, shape, megabytes)
    before = cpu_seconds(broker.pid)
    done = compact(broker, topic)
    spent = cpu_seconds(broker.pid) - before
    if counts:
        side = TIDELOG_DISK if broker.name == "tidelog" else KAFKA
        bench.figures.add(f"compaction, {shape.name}", "MB/s", side, done.megabytes / done.seconds)
        bench.figures.add(f"compaction, {shape.name}", "CPU s/GB", side, spent / done.megabytes * 1000)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
