"""Row `nexmark`: ten of Nexmark's queries, from topics to a topic, by each side; the answers are compared.

Topics are filled before anything is measured: a side drains them as fast as it goes, writes what it found as JSON to a
topic, and is done when all of that is there. Rows are all those of the topics that a query reads. Sides take turns.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from bench.pipelines import oracle
from bench.pipelines.checking import difference, parsed
from bench.pipelines.figures import BY_HAND, BYTEWAX, CONNECTOR, FLINK, QUERY_SIDES, QUIX, TIDELOG
from bench.pipelines.nexmark import PARTITIONS, Events
from bench.pipelines.peers import UNABLE, python_of

if TYPE_CHECKING:
    import pyarrow as pa
    from bench.pipelines.bench import Bench
    from bench.pipelines.watch import Seen

SECONDS = 600.0
EVENTS = 2_000_000
OF_FEW_ROWS = {"q3": 10_000_000, "q8": 10_000_000}  # they read no bids: of so many events, 800,000 rows
WARM_EVENTS = 100_000
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
        events = Events(bench.amount(OF_FEW_ROWS.get(query, EVENTS)))
        answer = oracle.answer(query, events)
        for _ in range(bench.reps):
            for side in bench.chosen(QUERY_SIDES):
                if query in PROGRAMS[side].queries:
                    measure(bench, query, side, events, answer)
        yield


def measure(bench: Bench, query: str, side: str, events: Events, answer: pa.Table) -> None:
    program = PROGRAMS[side]
    if why := UNABLE.get((query, side)):
        bench.reasons[query][side] = why
        return
    python = sys.executable
    if program.environment is not None:
        python, why = python_of(program.environment)
        if why:
            bench.reasons[query][side] = why
            print(f"{query}: {side}: {why}", file=sys.stderr, flush=True)
            return
    kinds = oracle.READS[query]
    warm = Events(bench.amount(WARM_EVENTS, least=20_000) * ((OF_FEW_ROWS.get(query, EVENTS) != EVENTS and 5) or 1))
    output = bench.new_topic(f"{query}-answers")
    work = {
        "side": side,
        "query": query,
        "bootstrap": bench.bootstrap,
        "topics": {kind: bench.nexmark_topic(events, kind) for kind in kinds},
        "warm": {kind: bench.nexmark_topic(warm, kind) for kind in kinds},
        "output": output,
        "warm_output": bench.new_topic(f"{query}-warm"),
        "a_batch": A_BATCH,
        "heap": bench.heap,
        "folder": str(bench.folder),
        "partitions": PARTITIONS,
        "end": events.end,
    }
    seen = bench.attempt(query, side, program.module, work, SECONDS, python)
    if seen is not None:
        rows = sum(len(events.of(kind)) + PARTITIONS * len(events.closing(kind)) for kind in kinds)
        note(bench, query, side, rows, seen, judged(bench, query, output, answer))


def judged(bench: Bench, query: str, output: str, answer: pa.Table) -> str | None:
    return difference(parsed(bench.values_of(output), answer.schema), answer, oracle.KEYS.get(query, ()))


def note(bench: Bench, query: str, side: str, rows: int, seen: Seen, wrong: str | None) -> None:
    """A run that is wrong scores nothing."""
    if wrong is not None:
        bench.reasons[query][side] = f"the answer was wrong: {wrong}"
        print(f"{query}: {side}: WRONG: {wrong}", file=sys.stderr, flush=True)
        return
    bench.add(query, side, rows, seen.said.get("seconds", seen.seconds), seen)
