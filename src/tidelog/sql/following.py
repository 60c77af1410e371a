"""A filter that goes on: rows of a topic as they are committed, each asked by the same question.

checked    only what needs one row at a time can be followed (`statement.why_not_followed`); anything else is
           refused by its reason before a record is read
waiting    the topic has no record from which its fields could be known: the first one is waited for
following  each answer of the broker is one small table, over which DuckDB asks the question again
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.client.consumer import Consumer
from tidelog.errors import UsageError
from tidelog.sql.reading import Connect, fetch, runs_of
from tidelog.sql.session import Asking, Question, new_engine, parse
from tidelog.sql.span import END, Span, find_starts
from tidelog.sql.statement import why_not_followed
from tidelog.sql.topic import Batches, TopicTable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from tidelog.client.cluster import Cluster
    from tidelog.sql.c_stream import ArrowBatch

WAIT_MS = 500

Rows = tuple[list[str], list[Sequence[Any]]]


def check_followed(query: str, asking: Asking) -> None:
    engine = new_engine()
    try:
        statement = parse(engine, query)
        reason = why_not_followed(statement, lambda functions: functions & _aggregates(engine))
    finally:
        engine.close()
    if reason is None and asking.latest:
        reason = "the latest of a key is known only at an end"
    if reason is None and asking.end != END:
        reason = "it is to end somewhere"
    if reason is not None:
        raise UsageError(f"this cannot be followed: {reason}; a SELECT with a WHERE over one topic can")


def _aggregates(engine: DuckDBPyConnection) -> set[str]:
    asked = "select distinct function_name from duckdb_functions() where function_type = 'aggregate'"
    return {str(name) for (name,) in engine.execute(asked).fetchall()}


def follow(query: str, connect: Connect, asking: Asking) -> Iterator[Rows]:
    """Names of columns and some rows, again and again. Ends only by being left."""
    check_followed(query, asking)
    came: list[ArrowBatch] = []

    def scan(topic: TopicTable, names: tuple[str, ...]) -> Callable[[], Iterator[ArrowBatch]]:
        return lambda: iter(came)

    question = Question(query, connect, asking, scan)
    try:
        if not question.topics:
            raise UsageError("this cannot be followed: a view is not a topic; subscribe to its changes instead")
        with connect() as cluster:
            name, committed = question.topics[0][0].span.topic, asking.options.committed
            span = find_starts(cluster, name, asking.start, committed=committed)
            if question.empty:
                _wait(cluster, find_starts(cluster, name, asking.start, committed=committed), committed)
                question.close()
                question = Question(query, connect, asking, scan)
            yield from _answers(question, cluster, span, came)
    finally:
        question.close()


def _wait(cluster: Cluster, span: Span, committed: bool) -> None:
    consumer = Consumer(cluster, max_wait_ms=WAIT_MS, read_committed=committed)
    consumer.assign(span.starts)
    while not any(True for fetched in fetch(consumer, span) for _ in runs_of(fetched)):
        pass


def _answers(question: Question, cluster: Cluster, span: Span, came: list[ArrowBatch]) -> Iterator[Rows]:
    topic, names = question.topics[0]
    consumer = Consumer(cluster, max_wait_ms=WAIT_MS, read_committed=topic.options.committed, prefetch=True)
    consumer.assign(span.starts)
    while True:
        for fetched in fetch(consumer, span):
            batches = Batches(topic, names)
            came[:] = [batches.batch(run) for run in runs_of(fetched)]
            columns, rows = question.rows()
            yield columns, list(rows)
            batches.warn()
