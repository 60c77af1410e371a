"""Row `memory`: the most that a session's processes have while a query reads 1 KB values, each connector in a session
of its own.

    python -m bench.spark.memory FORMAT BOOTSTRAP TOPIC      one such session; figures as JSON by standard output

Pages that processes share, as forked Python workers do, are counted once (PSS).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import psutil
from bench.repository import find_parts_of_tests
from bench.session import QUIET

if TYPE_CHECKING:
    from bench.spark.bench import Bench

HEAP = "1g"
LOOK_S = 0.2
MB = 1e6
READS = 3
SECONDS = 300


def run(bench: Bench) -> None:
    from bench.spark.bench import SHAPES

    bench.stop_session()
    shape = SHAPES[-1]
    topic = bench.topic(shape)
    for turn in bench.one_round(counts=True)[:2]:  # one broker: it is another's memory
        command = [sys.executable, "-m", "bench.spark.memory", turn.connector, bench.brokers[turn.broker], topic]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SECONDS, check=True).stdout
        for metric, value in json.loads(said.splitlines()[-1]).items():
            bench.figures.add(f"memory, reading {shape.name}, heap {HEAP}", metric, turn.side, value)


def main(connector: str, bootstrap: str, topic: str) -> None:
    import tidelog
    from spark.connector import found_jars

    jars = {"spark.jars": ",".join(map(str, found_jars()))}
    session = tidelog.spark_session("memory", memory=HEAP, settings={**jars, **QUIET})
    reader = session.read.format(connector).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    frame = reader.load()
    most, done = {"JVM MB": 0.0, "Python MB": 0.0}, threading.Event()
    watcher = threading.Thread(target=watch, args=(most, done))
    watcher.start()
    for _ in range(READS):
        frame.write.format("noop").mode("overwrite").save()
    done.set()
    watcher.join()
    session.stop()
    print(json.dumps({**most, "in all MB": sum(most.values())}))


def watch(most: dict[str, float], done: threading.Event) -> None:
    while not done.wait(LOOK_S):
        for name, value in held().items():
            most[name] = max(most[name], value)


def held() -> dict[str, float]:
    found = {"JVM MB": 0.0, "Python MB": 0.0}
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            name = "JVM MB" if process.name() == "java" else "Python MB"
            found[name] += process.memory_full_info().pss / MB
        except psutil.Error:
            continue
    return found


if __name__ == "__main__":
    find_parts_of_tests()
    main(*sys.argv[1:])
