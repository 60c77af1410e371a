"""Nexmark in SQL, as streams, over a restart: each view equals the answer of the benchmark's oracle."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.app.driven import Driven, make_topic
from pipelines.app.nexmark_sql_app import nexmark
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.testing.broker import TestBroker

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from bench.pipelines import nexmark as events
from bench.pipelines import oracle
from bench.pipelines.checking import difference, parsed

EVENTS = events.Events(60_000)  # a minute: six windows of ten seconds, and sessions that end in between
QUERIES = ("q3", "q5", "q7", "q8", "q9", "q11", "q18", "q20")


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


def write(cluster: Cluster, kind: str, begin: int, end: int | None) -> None:
    """Events from one number to another; with the last come those that close what is open."""
    rows = EVENTS.of(kind)
    tables = [rows.slice(begin, None if end is None else end - begin), *([EVENTS.closing(kind)] if end is None else [])]
    with Producer(cluster) as producer:
        for table in tables:
            times = table["dateTime"].to_pylist()
            for number, (value, at) in enumerate(zip(events.to_json(table).to_pylist(), times, strict=True)):
                for partition in (number % 2,) if table is tables[0] else (0, 1):
                    producer.send(kind, value, partition=partition, timestamp=at)


@proves("P1", "P2", "P8")
@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_of_nexmark_in_sql_gives_the_oracles_answer_over_a_restart(
    query: str, spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    for kind in events.KINDS:
        make_topic(ours, kind, 2)
    run = Driven(nexmark(), spark, ours, tidelog_broker.bootstrap, tmp_path)
    halves = {kind: EVENTS.rows_of(kind) // 2 for kind in oracle.READS[query]}
    for kind, half in halves.items():
        write(ours, kind, 0, half)
    run.step(query)
    for kind, half in halves.items():
        write(ours, kind, half, None)
    run.step(query)
    answer = oracle.answer(query, EVENTS)
    rows = [json.dumps(row).encode() for row in run.said(query, run.view(query)).values()]
    assert difference(parsed(rows, answer.schema), answer, ()) is None
    assert len(answer) > 5
