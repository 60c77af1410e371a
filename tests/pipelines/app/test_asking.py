"""Questions to an app's operators on Spark: answered in the micro-batch that reads them, beside its results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.app.driven import Driven, committed, make_topic, produce
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.control.status import Reporter
from tidelog.errors import PipelineStopped, UnknownKey, UsageError
from tidelog.pipelines.app import App
from tidelog.pipelines.operators.aggregates import count
from tidelog.pipelines.operators.aggregates import sum as total
from tidelog.pipelines.operators.changelog import as_changelog
from tidelog.pipelines.operators.joins.join_tables import join_tables
from tidelog.pipelines.operators.windows.tumbling import tumbling
from tidelog.pipelines.queries import Written, start_query
from tidelog.testing.broker import TestBroker
from tidelog.views.asking import Pipeline, ask

PATIENCE_S = 240.0
FOR_LONG_MS = int(time.time() * 1000) + 3_600_000
SALES = "product string, amount long, at timestamp"


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


def sales(name: str) -> App:
    app = App(name)
    app.stream("sales", value=SALES, event_time="at", watermark_delay="0 seconds")

    @app.view(f"{name}-minutes", key=["product", "window_start"])
    def minutes(sales: DataFrame, questions: DataFrame) -> DataFrame:
        windows = tumbling(
            "1 minute", by="product", aggregates={"sold": total("amount"), "times": count()}, questions=questions
        )
        return sales.transform(windows).drop("window_time")

    return app


def sale(product: str, amount: int, at: str) -> dict[str, Any]:
    return {"product": product, "amount": amount, "at": f"2026-01-01T10:{at}Z"}


def put(cluster: Cluster, pipeline: Pipeline, questions: dict[str, str]) -> None:
    with Producer(cluster) as producer:
        for name, text in questions.items():
            producer.send(pipeline.questions, text.encode(), key=name.encode())
        producer.send(pipeline.questions, b"\xff\xfe", key=b"\xff")  # whatever others write there
        producer.send(pipeline.questions, None)


def replies(cluster: Cluster, pipeline: Pipeline) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for _, row in committed(cluster, pipeline.replies):
        found.setdefault((row.key or b"").decode(), []).append(json.loads(row.value or b""))
    return found


@pytest.mark.full
@proves("P6")
def test_questions_are_answered_beside_a_view_which_is_the_one_that_nobody_asks(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "sales", partitions=1)
    driven = Driven(sales("till"), spark, ours, tidelog_broker.bootstrap, tmp_path)
    pipeline = Pipeline("till", "till-minutes")
    target = driven.targets["till-minutes"]
    assert target.declared is not None
    assert [name for name, _ in target.declared.columns] == ["product", "window_start", "window_end", "sold", "times"]
    produce(ours, "sales", [sale("tea", 3, "00:01"), sale("tea", 4, "00:02"), sale("rum", 9, "00:03")])
    wrong = {"no json": "{", "not text": "[[7]]", "two": '["tea", "rum"]', "": '"tea"'}
    put(ours, pipeline, {"q1": '{"product":"tea"}', "q2": '"cup"', **wrong})
    driven.step()
    told = replies(ours, pipeline)
    window = {"window_start": "2026-01-01T10:00:00.000000Z", "window_end": "2026-01-01T10:01:00.000000Z"}
    assert told.pop("q1") == [{"status": "answered", "rows": [{**window, "product": "tea", "sold": 7, "times": 2}]}]
    assert told.pop("q2") == [{"status": "unknown"}]
    assert {name: [one["status"] for one in all_of] for name, all_of in told.items()} == {
        name: ["refused"] for name in wrong if name
    }
    assert driven.view("till-minutes") == {}  # no window is over
    put(ours, pipeline, {"alone": '"rum"'})
    driven.step()  # a micro-batch with nothing but a question
    assert replies(ours, pipeline)["alone"][0]["rows"] == [{**window, "product": "rum", "sold": 9, "times": 1}]
    produce(ours, "sales", [sale("tea", 1, "01:30")])
    put(ours, pipeline, {"with rows": '"tea"'})
    driven.step()
    (answer,) = replies(ours, pipeline)["with rows"]
    assert [(row["window_start"], row["sold"]) for row in answer["rows"]][-1] == ("2026-01-01T10:01:00.000000Z", 1)
    driven.step()
    kept = driven.said("till-minutes", driven.view("till-minutes")).values()
    every = driven.said("till-minutes", driven.batch("till-minutes")).values()
    over = [row for row in every if row["window_start"] < "2026-01-01T10:01"]
    assert sorted(kept, key=str) == sorted(over, key=str)
    assert len(kept) == 2 and all(len(one) == 1 for one in replies(ours, pipeline).values())


@pytest.mark.full
@proves("P6")
def test_a_micro_batch_that_is_done_again_answers_nobody_twice_and_what_is_being_built_nobody(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    app = App("again")
    app.stream("prices", value="item string, price long", record=["offset"])

    @app.topic("again-prices", key="item")
    def prices(prices: DataFrame, questions: DataFrame) -> DataFrame:
        return prices.transform(as_changelog(by=["item"], order="offset", questions=questions))

    make_topic(ours, "prices", partitions=1)
    driven = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    pipeline = Pipeline("again", "again-prices")
    assert list(driven.targets) == ["again-prices"]
    produce(ours, "prices", [{"item": "tea", "price": 1}, {"item": "tea", "price": 2}])
    put(ours, pipeline, {"q": '"tea"'})
    driven.step()
    driven.forget_commits("again-prices")
    driven.step()
    put(ours, pipeline, {"too early": '"tea"'})
    driven.run(replace(driven.targets["again-prices"], answers=False))
    assert replies(ours, pipeline) == {"q": [{"status": "answered", "rows": [{"item": "tea", "price": 2}]}]}
    assert [json.loads(row.value or b"") for _, row in driven.records("again-prices")] == [{"item": "tea", "price": 2}]


@pytest.mark.full
@proves("P6")
def test_many_ask_a_running_pipeline_at_once_and_a_stopped_one_says_so(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    app = App("crowd")
    app.stream("left", value="id string, a long", record=["offset"])
    app.table("names", key="id", value="id string, name string")

    @app.view("crowd-joined", key="id")
    def joined(left: DataFrame, questions: DataFrame, names: DataFrame) -> DataFrame:
        ours = left.transform(as_changelog(by=["id"], order="offset"))
        return ours.transform(join_tables(names, on="id", questions=questions))

    make_topic(ours, "left", partitions=1)
    make_topic(ours, "names", partitions=1)
    driven = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    target, pipeline = driven.targets["crowd-joined"], Pipeline("crowd", "crowd-joined")
    with pytest.raises(PipelineStopped, match="it has never run"):
        ask(ours, pipeline, "0", timeout_s=5)
    produce(ours, "left", [{"id": str(n), "a": n} for n in range(8)])
    produce(ours, "names", [{"id": str(n), "name": f"n{n}"} for n in range(8)], key=[str(n) for n in range(8)])
    frame, written = driven.reader.result(target.node), Written()
    Reporter(ours, "query", pipeline.part).tell({"state": "running", "at_ms": FOR_LONG_MS}, at_once=True)
    trigger = {"processingTime": "100 milliseconds"}
    query = start_query(frame, target, driven.settings.options, trigger=trigger, written=written)
    try:
        query.processAllAvailable()
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(_asking(tidelog_broker.bootstrap, pipeline), [{"id": str(n)} for n in range(8)]))
        assert found == [[{"id": str(n), "a": n, "name": f"n{n}"}] for n in range(8)]
        with pytest.raises(UnknownKey, match='"nobody"'):
            ask(ours, pipeline, "nobody", timeout_s=PATIENCE_S)
        with pytest.raises(UsageError, match="refused the question: the key has 2 values; it is id"):
            ask(ours, pipeline, ["a", "b"], timeout_s=PATIENCE_S)
    finally:
        query.stop()
    assert query.exception() is None


def _asking(bootstrap: str, pipeline: Pipeline) -> Callable[[Any], Any]:
    def one(key: Any) -> Any:
        with Cluster(bootstrap) as cluster:
            return ask(cluster, pipeline, key, timeout_s=PATIENCE_S).rows

    return one


@proves("P6")
@pytest.mark.slow
def test_what_cannot_be_asked_is_refused_where_it_is_declared(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    app = App("deaf")
    app.stream("sales", value=SALES, event_time="at", watermark_delay="0 seconds")
    app.view("deaf-counts", key="product")(lambda sales, questions: sales.groupBy("product").count())
    make_topic(ours, "sales", partitions=1)
    with pytest.raises(UsageError, match=r"names questions, and its rows have no _question.*questions=questions"):
        Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path).targets  # noqa: B018
    with pytest.raises(UsageError, match="takes no questions; name a parameter `questions`"):
        ask(ours, Pipeline("deaf", "deaf-counts"), "tea")
    with pytest.raises(UsageError, match="reads nothing"):
        App("only").view("v", key="k")(lambda questions: questions)
