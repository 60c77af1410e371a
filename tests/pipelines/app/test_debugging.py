"""`tidelog debug`: a micro-batch again, with what it read and the state before it; nothing else is touched."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.app.driven import Driven, make_topic, produce
from proving import proves
from tidelog.cli import debug as command
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.errors import UsageError
from tidelog.pipelines.debugging import find
from tidelog.pipelines.loading import load_app
from tidelog.testing import pipeline_export
from tidelog.testing.broker import TestBroker

pytestmark = pytest.mark.full  # an app has to run first; what is written wrongly: tests/cli/test_debug.py

SECONDS = 300
SHOP = """
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

from tidelog import App

app = App("shop")
app.stream("orders", value="id long, product string, amount double")
app.table("homes", key="user", value="user string, city string")


@F.udf(DoubleType())
def share(amount):
    return 1 / amount


@app.topic("shares", key="id")
def shares(orders):
    return orders.select("id", share("amount").alias("share"))


@app.view("revenue", key="product")
def revenue(orders):
    sums = F.sum("amount").alias("revenue")
    return orders.groupBy("product").agg(sums, F.count("*").alias("orders"))


@app.view("cities", key="user")
def cities(homes):
    return homes
"""
DIVIDED, RETURNED = (SHOP.splitlines().index(f"    {line}") + 1 for line in ("return 1 / amount", "return homes"))
STEPS = (
    ([(0, "tea", 1.5), (1, "cup", 4.0)], [("ada", "Rome"), ("bob", "Oslo")]),
    ([(2, "tea", 2.5), (3, "pot", 9.0)], [("ada", "Bern"), ("eve", "Wien")]),
    ([(4, "pot", 0.0)], [("bob", None)]),
)


class Shop:
    """The app, whose views have run in three micro-batches, and whose topic fails in its first."""

    def __init__(self, spark: SparkSession, bootstrap: str, cluster: Cluster, folder: Path) -> None:
        self.file = folder / "shop.py"
        self.file.write_text(SHOP)
        self.folder = folder
        self.cluster = cluster
        self.others = set(topics.names(cluster))  # of other tests, on the same broker
        self.driven = Driven(load_app(str(self.file)), spark, cluster, bootstrap, folder)
        make_topic(cluster, "orders", 2)
        make_topic(cluster, "homes", 1, {"cleanup.policy": "compact"})
        for orders, homes in STEPS:
            self.order(orders)
            said = [None if city is None else {"user": user, "city": city} for user, city in homes]
            produce(cluster, "homes", said, key=[user for user, _ in homes])
            self.driven.step("revenue", "cities")
        with pytest.raises(Exception, match="ZeroDivisionError"):
            self.driven.step("shares")

    def order(self, rows: list[tuple[int, str, float]]) -> None:
        with Producer(self.cluster) as producer:
            for number, product, amount in rows:
                value = json.dumps({"id": number, "product": product, "amount": amount})
                producer.send("orders", value.encode(), partition=0 if product == "tea" else 1)

    def debug(self, query: str, batch: int, **more: Any) -> int:
        settings = self.driven.settings
        case = find(self.cluster, self.driven.graph, query, batch, settings.checkpoints)
        given = {"app": str(self.file), "stop": False, "export": None, "json": True, "limit": 20} | more
        return command.debug(case, self.driven.reader, Namespace(**given))

    def found(self) -> dict[str, Any]:
        """Every file of every checkpoint, and how much is on every topic."""
        own = set(topics.names(self.cluster)) - self.others
        files = [path for path in Path(self.driven.settings.checkpoints).rglob("*") if path.is_file()]
        digests = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
        return digests | {topic: len(self.driven.records(topic)) for topic in own}


@pytest.fixture(scope="module")
def shop(
    spark: SparkSession, tidelog_session_broker: TestBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    with Cluster(tidelog_session_broker.bootstrap) as cluster:
        yield Shop(spark, tidelog_session_broker.bootstrap, cluster, tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def told(shop: Shop) -> dict[str, Any]:
    """What is said of two micro-batches; beside the app are tests of them then, one with its records in a file."""
    before, found = shop.found(), {}
    with pytest.MonkeyPatch.context() as patch:
        for view, batch, inline in (("revenue", 1, pipeline_export.INLINE_MAX), ("cities", 2, 0)):
            patch.setattr(pipeline_export, "INLINE_MAX", inline)
            with redirect_stdout(io.StringIO()) as said:
                assert shop.debug(view, batch, export=str(shop.folder / f"test_{view}.py")) == 0
            found[view] = json.loads(said.getvalue())
    assert shop.found() == before
    return found


@proves("P1", "F1")
def test_a_micro_batch_is_run_again_with_the_state_before_it(told: dict[str, Any]) -> None:
    revenue, cities = told["revenue"], told["cities"]
    places = [(one["topic"], one["partition"], one["offset"]) for one in revenue["in"]]
    assert places == [("orders", 0, 1), ("orders", 1, 1)]
    assert json.loads(revenue["in"][0]["value"]) == {"id": 2, "product": "tea", "amount": 2.5}
    assert sorted(revenue["out"], key=lambda row: row["product"]) == [
        {"product": "pot", "revenue": 9.0, "orders": 1},
        {"product": "tea", "revenue": 4.0, "orders": 2},
    ], "what came before is counted in, and what came later is not"
    envelopes = [json.loads(one["value"]) for one in revenue["topic"]["records"]]
    assert {(one["after"]["product"], one["source"]["batch"]) for one in envelopes} == {("pot", 1), ("tea", 1)}
    assert [(one["after"], one["updated"]) for one in revenue["state"]] == [(3, 2)]
    assert cities["out"] == [{"_op": "-D", "user": "bob", "city": "Oslo"}]
    assert [(one["name"], one["before"]) for one in cities["state"]] == [("as_changelog", 3)]


@pytest.mark.usefixtures("told")
@proves("P1", "F1")
def test_what_is_exported_of_a_micro_batch_is_a_test_that_passes(shop: Shop) -> None:
    before = shop.found()
    assert (shop.folder / "test_cities.json").exists()
    failing = debugged(shop, "shares", "--batch", "last", "--export", str(shop.folder / "test_shares.py"))
    assert "it fails: " in failing.stdout and "ZeroDivisionError" in failing.stdout
    assert "orders-0@0  " in failing.stdout and f"{shop.file}:{DIVIDED}: " in failing.stdout

    assert shop.found() == before
    words = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(shop.folder), str(shop.folder)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert ran.returncode == 0 and "3 passed" in ran.stdout, ran.stdout


def debugged(shop: Shop, *words: str) -> subprocess.CompletedProcess[str]:
    """As users start it: a process and a Spark session of its own."""
    settings = shop.driven.settings
    given = ["--app", str(shop.file), "--bootstrap", settings.bootstrap, "--checkpoints", settings.checkpoints]
    line = [sys.executable, "-m", "tidelog", "debug", *words, *given, "--memory", "512m"]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, env=dict(os.environ))
    assert ran.returncode == 0, ran.stderr
    return ran


@proves("P1", "F1")
def test_breakpoints_are_in_the_function_and_in_each_step_of_an_operator(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = ["p sorted((row.user, row.city) for row in homes.collect())", "continue"]
    commands += ["p [row['user'] for row in rows.to_pylist()]", "p state.num_rows", "continue"] * 2
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(commands) + "\n"))
    assert shop.debug("cities", 1, stop=True, json=False) == 0
    in_function, _, in_steps = capsys.readouterr().out.partition("micro-batch 1 of view cities")
    assert f"> {shop.file}({RETURNED})cities()" in in_function
    assert "[('ada', 'Bern'), ('eve', 'Wien')]" in in_function
    assert "upserts.py" in in_steps and "ada" in in_steps.partition("(Pdb)")[2]
    assert "+U" in in_steps.partition("step 1 of")[0], "the micro-batch has run before its steps are gone through"


@proves("P1", "F1")
def test_a_micro_batch_that_cannot_be_had_again_is_refused_with_the_reason(shop: Shop, tmp_path: Path) -> None:
    graph, checkpoints = shop.driven.graph, shop.driven.settings.checkpoints
    with pytest.raises(UsageError, match=r"micro-batch 9 does not exist yet; the last in .* is 2"):
        find(shop.cluster, graph, "revenue", 9, checkpoints)
    with pytest.raises(UsageError, match=r"has no generation revenue\.v7; generations are revenue\.v1"):
        find(shop.cluster, graph, "revenue.v7", 1, checkpoints)
    with pytest.raises(UsageError, match="is not a checkpoint of a query that has run"):
        find(shop.cluster, graph, "revenue", 1, str(tmp_path))
    topics.delete_records(shop.cluster, {TopicPartition("orders", 0): 2})
    with pytest.raises(UsageError, match=r"reads orders\[0\] from 1 to 2, and the topic begins at 2 now"):
        find(shop.cluster, graph, "revenue", 1, checkpoints)
