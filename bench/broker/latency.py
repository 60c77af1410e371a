"""Rows `latency`, `waves` and `cold`: how long an ack takes, and how long until a consumer has the record.

`latency`: 1,000 messages of 100 B a second, one a request. `waves`: a message to each of 1, 10, 100 and 1,000
partitions at once, the next when all are acked. `cold`: `latency` while another consumer reads a backlog that the page
cache has forgotten.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.broker.bench import Bench, Side
from bench.broker.load import run_load, start_load
from bench.broker.process import cpu_seconds, forget_pages

RATE = 1000
SIZE = 100
SECONDS = 10
PARTITIONS_AT_ONCE = (1, 10, 100, 1000)
BACKLOG_MESSAGES = 2_000_000
BACKLOG_SIZE = 1000


def run_latency(bench: Bench) -> None:
    seconds = 2 if bench.quick else SECONDS
    for side, counts in bench.turns():
        topic = bench.new_topic(side)
        before = cpu_seconds(side.pid)
        told = run_load("latency", side.bootstrap, topic, RATE, seconds, SIZE)
        spent = cpu_seconds(side.pid) - before
        bench.delete_topic(side, topic)
        if counts:
            _add(bench, "latency at 1,000/s", side, told)
            bench.figures.add("latency at 1,000/s", "CPU ms/s", side.name, spent * 1000 / seconds)


def run_waves(bench: Bench) -> None:
    for partitions in PARTITIONS_AT_ONCE[: 2 if bench.quick else None]:
        row = f"{partitions:,} partitions at once"
        for side, counts in bench.turns(warm=False):
            topic = bench.new_topic(side, partitions)
            told = run_load("waves", side.bootstrap, topic, partitions, 1 if bench.quick else 5, SIZE)
            bench.delete_topic(side, topic)
            if counts:
                bench.figures.add(row, "ack p50 ms", side.name, told["ack"]["p50"])
                bench.figures.add(row, "ack p99 ms", side.name, told["ack"]["p99"])


def run_cold(bench: Bench) -> None:
    seconds = 2 if bench.quick else SECONDS
    folders = {bench.tidelog.pid: bench.tidelog.data, bench.kafka.pid: bench.kafka.folder / "data"}
    messages = bench.amount(BACKLOG_MESSAGES, least=20_000)
    for side, counts in bench.turns(warm=False):
        backlog, topic = bench.new_topic(side), bench.new_topic(side)
        run_load("produce", side.bootstrap, backlog, messages, BACKLOG_SIZE, 1_000_000)
        told = _beside_a_cold_reader(side, topic, backlog, messages, seconds, folders[side.pid])
        bench.delete_topic(side, topic)
        bench.delete_topic(side, backlog)
        if counts:
            _add(bench, "latency beside a cold reader", side, told)
            bench.figures.add("latency beside a cold reader", "ack max ms", side.name, told["ack"]["max"])
            bench.figures.add("latency beside a cold reader", "reader MB/s", side.name, told["reader"])


def _beside_a_cold_reader(
    side: Side, topic: str, backlog: str, messages: int, seconds: int, folder: Path
) -> dict[str, Any]:
    forget_pages(folder)
    writer = start_load("latency", side.bootstrap, topic, RATE, seconds, SIZE)
    reader = start_load("consume", side.bootstrap, backlog, messages)
    told: dict[str, Any] = json.loads(writer.communicate()[0])
    read = json.loads(reader.communicate()[0])
    return {**told, "reader": read["bytes"] / read["seconds"] / 1e6}


def _add(bench: Bench, row: str, side: Side, told: dict[str, Any]) -> None:
    for metric, name in (("ack", "ack"), ("end_to_end", "end to end")):
        for share in ("p50", "p99"):
            bench.figures.add(row, f"{name} {share} ms", side.name, told[metric][share])
