"""Row `replay`: one long history through decoding and the user's `apply`.

A history of Tidelog's is read with its whole partition, and that has nothing else here. Beside the rate by the clock
stands the CPU time of the thread that reads, in which nobody else's turn is.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.run import Run
from bench.sourcing.figures import EVENTS, REPLAY_CPU
from bench.sourcing.sides import sides

LENGTH = 20_000


def run(bench: Run) -> None:
    count = bench.amount(LENGTH)
    with sides(Path(tempfile.mkdtemp(dir=bench.folder))) as found:
        histories = {name: side.history(count) for name, side in found.items()}
        for counts in bench.rounds():
            for name, fold in histories.items():
                begun, used = time.perf_counter(), time.thread_time()
                assert fold() == count
                if counts:
                    bench.figures.add("replay", EVENTS, name, count / (time.perf_counter() - begun))
                    bench.figures.add("replay", REPLAY_CPU, name, (time.thread_time() - used) / count * 1e6)
