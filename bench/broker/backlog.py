"""Row `backlog`: what a backlog that nobody reads costs producers, under `tidelog.overload.policy=buffer`.

The same records go to a topic that is empty and to one that has ten times as many, with the page cache dropped before
each; `times the CPU of an empty one` is of the two in one turn. How a cold reader beside a producer shows is row
`cold`.
"""

from __future__ import annotations

from bench.broker.bench import Bench
from bench.broker.load import run_load
from bench.broker.process import forget_pages
from bench.broker.throughput import add, measured

MESSAGES = 300_000
SIZE = 1000
BATCH_BYTES = 1_000_000
TIMES = 10


def run(bench: Bench) -> None:
    folders = {bench.tidelog.pid: bench.tidelog.data, bench.kafka.pid: bench.kafka.folder / "data"}
    messages = bench.amount(MESSAGES, least=2_000)
    for side, counts in bench.turns():
        topic, cpu = bench.new_topic(side), []
        for row, before in (("produce to an empty topic", 0), ("produce on a backlog of ten times as much", TIMES)):
            if before:
                run_load("produce", side.bootstrap, topic, before * messages, SIZE, BATCH_BYTES)
            forget_pages(folders[side.pid])
            bench.touch_memory(messages * SIZE)
            told = measured(side, "produce", side.bootstrap, topic, messages, SIZE, BATCH_BYTES)
            add(bench, row, side, told, counts)
            cpu.append(told["cpu"])
        if counts and cpu[0]:
            bench.figures.add(row, "times the CPU of an empty one", side.name, cpu[1] / cpu[0])
        bench.delete_topic(side, topic)
