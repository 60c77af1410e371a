"""The record codec beside aiokafka's (compiled) and kafka-python's, in one interleaved run.

    python bench/record.py [--rounds 7] [--records 100000]

Every contender does the same work on the same records, in turn, round after round, so that a busy phase of the machine
hits all alike; the figures are medians. "M/s" is million records a second of wall time, "CPU s" is processor seconds
for ten million records, "x" is how many times less of them than aiokafka takes for the same. Decoding checks the CRC
(kafka-python's is in Python, unless one more package is there). What they make of the bytes is compared before
anything is timed.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from kafka.record.default_records import DefaultRecordBatch as PythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as PythonBuilder

from tidelog.record import _pure, codec
from tidelog.record.arrow import arrow_to_partitions, columns_to_arrow
from tidelog.record.columns import Columns, decode, encode
from tidelog.record.compression import decompress

SLOW_SHARE = 10  # pure-Python contenders get this part of the records: their rate is the same, the run is shorter
RowTuple = tuple[bytes | None, bytes, list[tuple[str, bytes]], int]


class Contender(NamedTuple):
    name: str
    records: int
    work: Callable[[], object]


class Workload(NamedTuple):
    name: str
    rows: list[RowTuple]
    per_batch: int

    def chunks(self, share: int = 1) -> Iterator[list[RowTuple]]:
        for start in range(0, len(self.rows) // share, self.per_batch):
            yield self.rows[start : min(start + self.per_batch, len(self.rows) // share)]


def workloads(count: int) -> list[Workload]:
    value, now = bytes(range(100)), 1_700_000_000_000
    bare: list[RowTuple] = [(None, value, [], now + i) for i in range(count)]
    keyed: list[RowTuple] = [
        (b"customer-%06d" % (i % 5000), value, [("trace", b"%016x" % i)], now + i) for i in range(count)
    ]
    return [
        Workload("100 B values, 1 MB batches", bare, 9_400),
        Workload("100 B values, 16 KB batches", bare, 150),
        Workload("100 B values, keys and a header, 1 MB batches", keyed, 7_000),
    ]


# --- the contenders --------------------------------------------------------------------------------------------------


def peer_rows(reader: Any, batches: list[bytes]) -> list[tuple[Any, ...]]:
    """Iterate, as a consumer does; the last row of each batch is kept, so that nothing can be left out."""
    last = []
    for batch in batches:
        read = reader(batch)
        assert read.validate_crc()
        for record in read:
            row = record.offset, record.timestamp, record.key, record.value, record.headers
        last.append(row)
    return last


def peer_arrow(reader: Any, batches: list[bytes]) -> list[Any]:
    offsets, timestamps, keys, values = [], [], [], []
    for batch in batches:
        read = reader(batch)
        assert read.validate_crc()
        for record in read:
            offsets.append(record.offset)
            timestamps.append(record.timestamp)
            keys.append(record.key)
            values.append(record.value)
    kinds = (pa.int64(), pa.int64(), pa.binary(), pa.binary())
    return [pa.array(column, kind) for column, kind in zip((offsets, timestamps, keys, values), kinds, strict=True)]


def our_rows(buffer: bytes) -> int:
    count = 0
    for _ in decode(buffer).rows():
        count += 1
    return count


def peer_encode(builder: Any, chunks: list[list[RowTuple]]) -> list[bytes]:
    made = []
    for rows in chunks:
        batch = builder(2, 0, 0, -1, -1, -1, 1 << 30)
        for offset, (key, value, headers, timestamp) in enumerate(rows):
            batch.append(offset, timestamp=timestamp, key=key, value=value, headers=headers)
        made.append(bytes(batch.build()))
    return made


def pure_encode(chunks: list[list[RowTuple]]) -> None:
    for rows in chunks:
        _pure.seal(_pure.encode_rows(rows, 0, 0, -1, -1, -1))


def decoders(load: Workload) -> list[Contender]:
    batches = [bytes(encode(rows)) for rows in load.chunks()]
    few = [bytes(encode(rows)) for rows in load.chunks(SLOW_SHARE)]
    whole, part = b"".join(batches), b"".join(few)
    count, some = len(load.rows), len(load.rows) // SLOW_SHARE
    assert [row[1:] for row in peer_rows(AioBatch, few)] == [row[1:] for row in peer_rows(PythonBatch, few)]
    assert columns_to_arrow(decode(whole)).column("value").equals(peer_arrow(AioBatch, batches)[3])
    return [
        Contender("aiokafka, rows", count, lambda: peer_rows(AioBatch, batches)),
        Contender("kafka-python, rows", some, lambda: peer_rows(PythonBatch, few)),
        Contender("Tidelog, rows", count, lambda: our_rows(whole)),
        Contender("aiokafka, Arrow", count, lambda: peer_arrow(AioBatch, batches)),
        Contender("kafka-python, Arrow", some, lambda: peer_arrow(PythonBatch, few)),
        Contender("Tidelog, Arrow", count, lambda: columns_to_arrow(decode(whole))),
        Contender("Tidelog, columns", count, lambda: decode(whole)),
        Contender("Tidelog, columns, pure", some, lambda: Columns(*_pure.decode(part, True, 0, True, decompress))),
    ]


def encoders(load: Workload) -> list[Contender]:
    chunks, few = list(load.chunks()), list(load.chunks(SLOW_SHARE))
    table = columns_to_arrow(decode(b"".join(encode(rows) for rows in chunks)))
    size = max(len(encode(rows)) for rows in chunks)
    count, some = len(load.rows), len(load.rows) // SLOW_SHARE
    assert [bytes(encode(rows))[61:] for rows in few] == [each[61:] for each in peer_encode(AioBuilder, few)]
    return [
        Contender("aiokafka, rows", count, lambda: peer_encode(AioBuilder, chunks)),
        Contender("kafka-python, rows", some, lambda: peer_encode(PythonBuilder, few)),
        Contender("Tidelog, rows", count, lambda: [encode(rows) for rows in chunks]),
        Contender(
            "Tidelog, Arrow", count, lambda: list(arrow_to_partitions(table, partitions=1, spare=0, target=size))
        ),
        Contender("Tidelog, rows, pure", some, lambda: pure_encode(few)),
    ]


# --- the run ---------------------------------------------------------------------------------------------------------


def run(contenders: list[Contender], rounds: int) -> dict[str, tuple[float, float]]:
    """Median wall and processor seconds per record, by name."""
    walls: dict[str, list[float]] = {each.name: [] for each in contenders}
    spent: dict[str, list[float]] = {each.name: [] for each in contenders}
    for _ in range(rounds):
        for name, records, work in contenders:
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            walls[name].append((time.perf_counter() - wall) / records)
            spent[name].append((time.process_time() - cpu) / records)
    return {name: (statistics.median(walls[name]), statistics.median(spent[name])) for name in walls}


def show(title: str, results: dict[str, tuple[float, float]]) -> None:
    print(f"\n{title}\n{'':26}{'M/s':>9}{'CPU s':>9}{'x':>9}")
    for name, (wall, cpu) in results.items():
        shape = "Arrow" if "Arrow" in name or "columns" in name else "rows"
        peer = results.get(f"aiokafka, {shape}", results["aiokafka, rows"])[1]
        print(f"{name:26}{1e-6 / wall:9.2f}{1e7 * cpu:9.2f}{peer / cpu:9.2f}")


def small_calls(rounds: int) -> None:
    """What the broker does for each batch that a producer sends: microseconds a call."""
    batch = encode([(None, bytes(100), None, 0)])
    large = encode([(None, bytes(100), None, i) for i in range(9_400)])
    aio, view = bytes(batch), memoryview(bytearray(b"....") + batch)[4:]
    calls: list[tuple[str, Callable[[], object], int]] = [
        ("check, 1 record", lambda: codec.check(view), 20_000),
        ("aiokafka: parse and validate_crc", lambda: AioBatch(aio).validate_crc(), 20_000),
        ("patch", lambda: codec.patch(view, 1, 1), 20_000),
        ("stamp_append_time, 1 record", lambda: codec.stamp_append_time(view, 1), 20_000),
        ("check, 1 MB", lambda: codec.check(large), 300),
        ("decode, 1 record", lambda: decode(view), 20_000),
        ("encode, 1 record", lambda: encode([(None, b"x", None, 0)]), 20_000),
    ]
    times: dict[str, list[float]] = {name: [] for name, _, _ in calls}
    for _ in range(rounds):
        for name, call, count in calls:
            start = time.perf_counter()
            for _ in range(count):
                call()
            times[name].append((time.perf_counter() - start) / count * 1e6)
    print("\nsmall calls, microseconds")
    for name, each in times.items():
        print(f"{name:40}{statistics.median(each):9.2f}")
    rows = bytes(large) * 64
    start = time.perf_counter()
    found = codec.scan(rows)
    assert found.error is None
    print(f"{'scan, 1 MB batches, GB/s':40}{len(rows) / (time.perf_counter() - start) / 1e9:9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, default=100_000)
    given = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, CRC by {codec.engine()}, {given.rounds} rounds")
    for load in workloads(given.records):
        show(f"decode, {load.name}", run(decoders(load), given.rounds))
        show(f"encode, {load.name}", run(encoders(load), given.rounds))
    small_calls(given.rounds)


if __name__ == "__main__":
    main()
