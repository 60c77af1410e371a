"""Row `commands`: one durable command after the other, by 1, 16 and 200 clients."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.run import Run
from bench.sourcing.figures import COMMANDS, CPU_US, LATENCY, LATENCY_99
from bench.sourcing.sides import Side, sides

AMOUNTS = {1: 400, 16: 4_000, 200: 8_000}


def run(bench: Run) -> Iterator[None]:
    with sides(Path(tempfile.mkdtemp(dir=bench.folder))) as found:
        for clients, amount in AMOUNTS.items():
            row = f"{clients} client{'s' if clients > 1 else ''}"
            for counts in bench.rounds():
                for name, side in found.items():
                    for metric, value in taken(side, clients, bench.amount(amount)).items():
                        if counts:
                            bench.figures.add(row, metric, name, value)
            yield


def taken(side: Side, clients: int, total: int) -> dict[str, float]:
    """CPU is of this process: of clients and owner, or of clients and library; no server's is in it."""
    each, latencies = max(1, total // clients), list[float]()

    def client(number: int) -> None:
        for turn in range(each):
            begun = time.perf_counter()
            side.send(f"{time.monotonic_ns()}-{number}-{turn}")
            latencies.append(time.perf_counter() - begun)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    begun, used = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, used, done = time.perf_counter() - begun, time.process_time() - used, clients * each
    assert len(latencies) == done, "a client failed"
    latencies.sort()
    return {
        COMMANDS: done / seconds,
        LATENCY: statistics.median(latencies) * 1e3,
        LATENCY_99: latencies[int(done * 0.99)] * 1e3,
        CPU_US: used / done * 1e6,
    }
