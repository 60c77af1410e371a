"""Row `nexmark`: ten of Nexmark's queries, from topics to a topic, by each side; the answers are compared.

Topics are filled before anything is measured: a side drains them as fast as it goes, writes what it found as JSON to a
topic, and is done when all of that is there. Rows are all those of the topics that a query reads. Sides take turns.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.pipelines import oracle
from bench.pipelines.checking import difference, parsed
from bench.pipelines.figures import BY_HAND, BYTEWAX, CONNECTOR, FLINK, QUERY_SIDES, QUIX, TIDELOG
from bench.pipelines.nexmark import BID, PARTITIONS, Events
from bench.pipelines.peers import python_of

if TYPE_CHECKING:
    import pyarrow as pa
    from bench.pipelines.bench import Bench

SECONDS = 150.0  # a side that takes longer stands on the page with that
EVENTS = 2_000_000
WITHOUT_BIDS = 5  # times as many events, as a query that reads no bids has so few rows of them
WARM_EVENTS, QUICK_WARM_EVENTS = 100_000, 20_000
A_BATCH = 500_000


class Program(NamedTuple):
    module: str
    environment: str | None = None
    """That of a peer; None for this one."""
    queries: tuple[str, ...] = tuple(oracle.READS)


PROGRAMS = {
    TIDELOG: Program("bench.pipelines.sides.spark"),
    BY_HAND: Program("bench.pipelines.sides.spark"),
    CONNECTOR: Program("bench.pipelines.sides.spark", queries=("q0",)),
    QUIX: Program("bench.pipelines.sides.quix", "quix"),
    BYTEWAX: Program("bench.pipelines.sides.with_bytewax", "bytewax"),
    FLINK: Program("bench.pipelines.sides.flink", "flink"),
}


def run(bench: Bench) -> Iterator[None]:
    """Stops where what there is so far may be published."""
    for query in oracle.READS:
        if bench.queries and query not in bench.queries:
            continue
        events = events_of(query, bench.amount(EVENTS))
        answer = oracle.answer(query, events)
        for rep in range(bench.reps):
            for side in bench.chosen(QUERY_SIDES)[:: -1 if rep % 2 else 1]:  # who is first finds the caches cold
                if query in PROGRAMS[side].queries:
                    measure(bench, query, side, events, answer)
        yield


def events_of(query: str, count: int) -> Events:
    return Events(count if BID in oracle.READS[query] else count * WITHOUT_BIDS)


def measure(bench: Bench, query: str, side: str, events: Events, answer: pa.Table) -> None:
    program, python = PROGRAMS[side], sys.executable
    if program.environment is not None:
        python, why = python_of(program.environment)
        if why:
            bench.cannot(query, side, why)
            return
    output = bench.new_topic(f"{query}-answers")
    seen = bench.attempt(query, side, program.module, work_of(bench, query, side, events, output), SECONDS, python)
    if seen is None:
        return
    if wrong := judged(bench, query, output, answer):
        bench.cannot(query, side, f"the answer was wrong: {wrong}")
        return
    rows = sum(events.rows_of(kind) + PARTITIONS * len(events.closing(kind)) for kind in oracle.READS[query])
    bench.add(query, side, rows, seen.said.get("seconds", seen.seconds), seen)


def work_of(bench: Bench, query: str, side: str, events: Events, output: str) -> dict[str, Any]:
    """What the program of a side is told."""
    warm = events_of(query, QUICK_WARM_EVENTS if bench.quick else WARM_EVENTS)
    return {
        "side": side,
        "query": query,
        "bootstrap": bench.bootstrap,
        "topics": {kind: bench.nexmark_topic(events, kind) for kind in oracle.READS[query]},
        "warm": {kind: bench.nexmark_topic(warm, kind) for kind in oracle.READS[query]},
        "output": output,
        "warm_output": bench.new_topic(f"{query}-warm"),
        "a_batch": A_BATCH,
        "heap": bench.heap,
        "folder": str(bench.folder),
        "partitions": PARTITIONS,
        "end": events.end,
    }


def judged(bench: Bench, query: str, output: str, answer: pa.Table) -> str | None:
    return difference(parsed(bench.values_of(output), answer.schema), answer, oracle.KEYS.get(query, ()))
