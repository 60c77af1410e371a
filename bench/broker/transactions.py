"""Row `transactions`: transactional produce by librdkafka, one transaction after the other, and reading what it left.

Small transactions (1 and 10 records of 100 B) measure the protocol: partitions added, records, outcome, markers. Ten
producers at once, each with its own partition, measure what the broker can share among them. Large transactions
(10,000 records) measure that they cost little more than records without one; what they left is read at read_committed.

Where the last transaction of an id is still being marked, Apache Kafka asks the client to come again, which librdkafka
does after 20 ms; Tidelog lets the request wait. That is most of what small transactions of one producer show; the
broker's CPU for 1,000 of them shows the rest. The synced side of Apache Kafka syncs the records; its own log of
transactions is as its distribution has it.
"""

from __future__ import annotations

from typing import NamedTuple

from bench.broker.bench import Bench, Side
from bench.broker.throughput import measured

SIZE = 100
SECONDS = 2.0
READ_FROM_RECORDS = 1000  # fewer make a log too short to time its reader


class Shape(NamedTuple):
    name: str
    producers: int
    records: int


SHAPES = (
    Shape("transactions of 1 record", 1, 1),
    Shape("transactions of 10 records", 1, 10),
    Shape("transactions of 10 records, 10 producers", 10, 10),
    Shape("transactions of 10,000 records", 1, 10_000),
)


def run(bench: Bench) -> None:
    seconds = 0.5 if bench.quick else SECONDS
    for shape in SHAPES:
        for side, counts in bench.turns():
            topic = bench.new_topic(side, shape.producers)
            produced = measured(side, "commit", side.bootstrap, topic, shape.producers, seconds, shape.records, SIZE)
            read = None
            if shape.records >= READ_FROM_RECORDS:
                read = measured(side, "consume", side.bootstrap, topic, int(produced["messages"]))
            if counts:
                _add(bench, shape.name, side, produced, read)
            bench.delete_topic(side, topic)


def _add(bench: Bench, row: str, side: Side, produced: dict[str, float], read: dict[str, float] | None) -> None:
    figures, seconds = bench.figures, produced["seconds"]
    figures.add(row, "transactions/s", side.name, produced["transactions"] / seconds)
    figures.add(row, "records/s", side.name, produced["messages"] / seconds)
    figures.add(row, "CPU s/1,000", side.name, produced["cpu"] / produced["transactions"] * 1000)
    if read is not None:
        figures.add(row, "records read/s", side.name, read["messages"] / read["seconds"])
