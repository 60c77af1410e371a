"""How fast one log, and many at once, take batches and make them durable, and what an append costs.

    python bench/log.py                    every row below, three rounds, interleaved; the median of each
    python bench/log.py --rounds 1 --seconds 1 --only 16K

A loop like the broker's appends as long as fewer than WINDOW bytes are in flight, and drains the committer when it is
told to. `append` is the time of `Log.append` in the loop's thread, without waiting for the interpreter; `cpu` is that
of the whole process per append, in user space and in the kernel; `ack` is from append to visible. `lone` rows have one
batch in flight: that is the latency of a single client. Wall-clock MB/s depend on what else the machine does and on
whether the kernel's pages are fresh (a fresh page costs ten times a recycled one here); compare rows of one run.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import NamedTuple

from tidelog.log.commit import Committer
from tidelog.log.files import RealFiles
from tidelog.log.log import Log
from tidelog.log.settings import LogSettings
from tidelog.record.codec import check
from tidelog.record.columns import encode

WINDOW = 32 << 20
BUFFERS = 64
RECORD = 100
APPENDS_PER_WAKE = 16  # as a broker takes a few requests from its sockets at a time


class Row(NamedTuple):
    name: str
    batch_bytes: int
    partitions: int
    durable: bool
    lone: bool = False
    idempotent: bool = False


ROWS = [
    Row("16K, disk", 16_000, 1, True),
    Row("16K, memory", 16_000, 1, False),
    Row("16K, disk, idempotent", 16_000, 1, True, idempotent=True),
    Row("1M, disk", 1_000_000, 1, True),
    Row("1M, memory", 1_000_000, 1, False),
    Row("16K, disk, 10 partitions", 16_000, 10, True),
    Row("16K, disk, 100 partitions", 16_000, 100, True),
    Row("16K, disk, 1000 partitions", 16_000, 1000, True),
    Row("100B, disk, lone", 100, 1, True, lone=True),
    Row("16K, disk, lone", 16_000, 1, True, lone=True),
    Row("100B, memory, lone", 100, 1, False, lone=True),
]


class Measured(NamedTuple):
    megabytes: float
    appends: float
    append_us: float
    user_us: float
    system_us: float
    ack_p50_ms: float
    ack_p99_ms: float


class Run:
    """One row once, in a folder of its own."""

    def __init__(self, row: Row, seconds: float, folder: Path) -> None:
        self.row = row
        self.seconds = seconds
        self.ready = threading.Semaphore(0)
        self.committer = Committer(RealFiles(), self.ready.release)
        settings = LogSettings(durable=row.durable)
        self.logs = [
            Log.open(f"{folder}/{number}", self.committer.files, settings, self.committer)
            for number in range(row.partitions)
        ]
        rows = [(None, b"x" * min(RECORD, row.batch_bytes), (), 0)] * max(1, row.batch_bytes // (RECORD + 10))
        self.buffers = [memoryview(encode(rows)) for _ in range(BUFFERS)]
        self.header = check(self.buffers[0])
        self.in_flight = 0
        self.sequence = 0
        self.acks: deque[float] = deque()
        self.spent = 0.0

    def append(self, log: Log, number: int) -> None:
        header = self.header
        if self.row.idempotent:
            header = header._replace(producer_id=1, producer_epoch=0, base_sequence=self.sequence)
            self.sequence = (self.sequence + header.count) & 0x7FFFFFFF
        started = time.perf_counter()
        cpu = time.thread_time()
        done = log.append(self.buffers[number % BUFFERS], header, 1_700_000_000_000)
        self.spent += time.thread_time() - cpu
        self.in_flight += header.size

        def visible(error: Exception | None) -> None:
            assert error is None, error
            self.in_flight -= header.size
            self.acks.append(time.perf_counter() - started)

        log.when_visible(done.last_offset + 1, visible)

    def measure(self) -> Measured:
        self.committer.start()
        for number, log in enumerate(self.logs):
            self.append(log, number)
        self.wait(0)
        self.acks.clear()
        self.spent = 0.0
        usage, started, number = getrusage(RUSAGE_SELF), time.perf_counter(), 0
        window = 1 if self.row.lone else WINDOW
        while time.perf_counter() - started < self.seconds:
            for _ in range(APPENDS_PER_WAKE):
                if self.in_flight >= window:
                    break
                self.append(self.logs[number % len(self.logs)], number)
                number += 1
            self.wait(window - 1)
        self.wait(0)
        elapsed, used = time.perf_counter() - started, getrusage(RUSAGE_SELF)
        self.committer.stop()
        acks = sorted(self.acks)
        return Measured(
            number * self.header.size / elapsed / 1e6,
            number / elapsed,
            self.spent / number * 1e6,
            (used.ru_utime - usage.ru_utime) / number * 1e6,
            (used.ru_stime - usage.ru_stime) / number * 1e6,
            acks[len(acks) // 2] * 1e3,
            acks[int(len(acks) * 0.99)] * 1e3,
        )

    def wait(self, below: int) -> None:
        while self.in_flight > below:
            self.ready.acquire()
            self.committer.drain()


def run(row: Row, seconds: float, where: str | None) -> Measured:
    folder = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=where))
    gc.collect()
    try:
        return Run(row, seconds, folder).measure()
    finally:
        shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--folder", default=None, help="where to write (default: the system's temporary folder)")
    options = parser.parse_args()
    rows = [row for row in ROWS if options.only in row.name]
    measured: dict[Row, list[Measured]] = {row: [] for row in rows}
    for _ in range(options.rounds):
        for row in rows:
            measured[row].append(run(row, options.seconds, options.folder))
    print(
        f"{'':28}{'MB/s':>8}{'appends/s':>11}{'append us':>11}{'cpu us (user+kernel)':>22}{'ack p50':>9}{'p99 ms':>8}"
    )
    for row, results in measured.items():
        middle = Measured(*(statistics.median(column) for column in zip(*results, strict=True)))
        cpu = f"{middle.user_us:.1f} + {middle.system_us:.1f}"
        print(
            f"{row.name:28}{middle.megabytes:8.0f}{middle.appends:11.0f}{middle.append_us:11.1f}{cpu:>22}"
            f"{middle.ack_p50_ms:9.2f}{middle.ack_p99_ms:8.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
