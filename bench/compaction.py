"""How fast a log is compacted, beside Apache Kafka's cleaner: bytes of log that a pass goes over in a second.

    PYTHONPATH=tests python bench/compaction.py                       both brokers, every row
    PYTHONPATH=tests python bench/compaction.py --only lz4 --megabytes 100 --brokers tidelog

Each broker gets the same records, by the same producer, into a topic that only deletes; then the topic is told to
compact, and the brokers' own log says how long the pass took: Kafka's `... MB of log processed in ... seconds`, ours
`compacted ... bytes=... seconds=...`. Both read every record twice (once for its key, once to copy it) and count it
once. Kafka has one cleaner thread, 128 MB for keys and its distribution's heap; a pass over other records comes first,
so that its code is compiled by then. Data lies in memory where there is such a place: this measures the cleaners.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from against.apache_kafka import DISTRIBUTION_JVM, ApacheKafka
from against.tidelog_process import TidelogProcess

SECONDS = 240.0
SEGMENT_BYTES = 4 << 20
SETTINGS = {"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "1000"}
LOGGING = """\
<Configuration status="WARN"><Appenders><Console name="out"><PatternLayout pattern="%m%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="out"/></Root>
<Logger name="org.apache.kafka.storage.internals.log" level="INFO"/></Loggers></Configuration>
"""
KAFKA_SAYS = re.compile(r"cleaned log (\S+?)-0 .*?\n\s*([\d,.]+) MB of log processed in ([\d,.]+) seconds", re.DOTALL)
OURS_SAYS = re.compile(r"compacted topic=(\S+) .*bytes=\D*(\d+) to \d+\D* seconds=([\d.]+)")


class Row(NamedTuple):
    name: str
    value_bytes: int
    keys: int
    compression: str
    linger_ms: int


ROWS = [
    Row("100 B values, plain", 100, 200_000, "none", 50),
    Row("1 KB values, plain", 1000, 20_000, "none", 50),
    Row("100 B values, lz4", 100, 200_000, "lz4", 50),
    Row("100 B values, zstd", 100, 200_000, "zstd", 50),
    Row("100 B values, few to a batch", 100, 200_000, "none", 0),
]
Broker = ApacheKafka | TidelogProcess


def fill(broker: Broker, topic: str, row: Row, megabytes: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"cleanup.policy": "delete", "segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)
    batch = {} if row.linger_ms else {"batch.num.messages": 3}
    settings = {"linger.ms": row.linger_ms, "compression.type": row.compression, "acks": 1, **batch}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "queue.buffering.max.kbytes": 200_000, **settings})
    rng = random.Random(1)
    values = [rng.randbytes(row.value_bytes // 2).hex().encode() for _ in range(100)]
    for number in range(megabytes * 1_000_000 // (row.value_bytes + 30)):
        while True:
            try:
                producer.produce(topic, values[number % 100], b"key-%010d" % rng.randrange(row.keys))
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def compact(broker: Broker, topic: str) -> float:
    """Megabytes a second, of the first pass."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for name, size, seconds in KAFKA_SAYS.findall(broker.said()):
            if name == topic:
                return float(size.replace(",", "")) * 1.048576 / float(seconds.replace(",", ""))
        for name, size, seconds in OURS_SAYS.findall(broker.said()):
            if name == topic:
                return int(size) / 1e6 / max(float(seconds), 0.001)
        time.sleep(0.1)
    raise TimeoutError(f"{broker.name} did not compact {topic} within {SECONDS} s")


def started(name: str, folder: Path) -> Broker:
    if name == "tidelog":
        return TidelogProcess(folder, SETTINGS).start()
    folder.mkdir(parents=True)
    (folder / "log4j2.xml").write_text(LOGGING)
    jvm = (*DISTRIBUTION_JVM, f"-Dlog4j2.configurationFile={folder / 'log4j2.xml'}")
    return ApacheKafka(folder, SETTINGS, jvm=jvm).start()


def measure(name: str, rows: list[Row], megabytes: int) -> dict[str, float]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-", dir=memory if memory.is_dir() else None) as folder:
        broker = started(name, Path(folder) / name)
        try:
            fill(broker, "warm", rows[0], megabytes)
            compact(broker, "warm")
            found = {}
            for number, row in enumerate(rows):
                fill(broker, f"table{number}", row, megabytes if row.linger_ms else megabytes // 5)
                found[row.name] = compact(broker, f"table{number}")
            return found
        finally:
            broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--megabytes", type=int, default=200, help="of records, before compression")
    parser.add_argument("--brokers", default="tidelog,apache_kafka")
    options = parser.parse_args()
    rows = [row for row in ROWS if options.only in row.name]
    measured = {name: measure(name, rows, options.megabytes) for name in options.brokers.split(",")}
    print(f"{'MB of log a second':32}" + "".join(f"{name:>16}" for name in measured))
    for row in rows:
        print(f"{row.name:32}" + "".join(f"{found[row.name]:>16.0f}" for found in measured.values()))


if __name__ == "__main__":
    main()
