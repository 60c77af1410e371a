"""`tidelog run`: parts together, one's fault no other's, commands, a clean stop; and a driver that is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from against.apache_kafka import die_with_parent
from pipelines.app.driven import Driven, committed, make_topic, produce
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control.catalog import read_catalog
from tidelog.control.status import read_status, send_command
from tidelog.errors import UsageError
from tidelog.pipelines import history
from tidelog.pipelines.app import App
from tidelog.pipelines.inputs import Span
from tidelog.pipelines.running import Run, parts_of, reader_of
from tidelog.testing.broker import TestBroker

pytestmark = pytest.mark.full

PATIENCE_S = 240.0
PROGRAM = Path(__file__).parent.parent.parent.parent / "examples" / "shop_app.py"
ORDERS = "id long, product string, amount double"
OF_OURS = re.compile(r"[\d-]{10}T[\d:.]{12}Z (INFO|WARNING) [^\n]*$|revenue is applied to sqlite://[^\n]*$")  # a line


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        yield cluster


def until(is_so: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"not so after {PATIENCE_S:g} s: {what}"
        time.sleep(0.1)
    return found


def orders(start: int, count: int) -> list[dict[str, Any]]:
    return [{"id": n, "product": f"p{n % 3}", "amount": float(n)} for n in range(start, start + count)]


def status(cluster: Cluster) -> dict[str, dict[str, Any]]:
    return {one.name: one.figures for one in read_status(cluster) if one.kind in ("query", "app")}


def is_tried_again(cluster: Cluster, seen: set[str]) -> bool:
    """Three times; `seen` gets its states since the first fault."""
    told = status(cluster).get("two.fragile", {})
    seen |= {told["state"]} if told.get("restarts") else set()
    return bool(told.get("restarts", 0) > 2)


@proves("P3", "F1")
def test_a_failing_query_is_tried_again_while_others_go_on_and_commands_are_obeyed(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    mended = tmp_path / "mended"
    app = App("two")
    app.stream("orders", value=ORDERS)

    @F.udf("double")
    def fragile(amount: float) -> float:
        if not os.path.exists(mended):  # noqa: PTH110  in a worker, which has no pathlib loaded yet
            raise ConnectionError("not yet")
        return amount

    @F.udf("double")
    def wrong(amount: float) -> float:
        return 1 // (amount - amount)

    app.topic("fragile", key="id")(lambda orders: orders.select("id", fragile("amount").alias("amount")))
    app.topic("wrong", key="id")(lambda orders: orders.select("id", wrong("amount").alias("amount")))
    app.view("counts", key="product")(lambda orders: orders.groupBy("product").count())
    make_topic(ours, "orders")
    driven = Driven(app, spark, ours, tidelog_broker.bootstrap, tmp_path)
    targets = list(driven.targets.values())
    produce(ours, "orders", orders(0, 6))
    with Cluster(tidelog_broker.bootstrap) as cluster:
        reader = reader_of(spark, driven.graph, driven.settings, cluster)  # of the run's thread
        queries = [part for part in parts_of(targets, reader, driven.settings) if part.kind == "query"]
        run = Run("two", queries, cluster, lambda *_, **__: None)
        thread = threading.Thread(target=run.loop)
        thread.start()
        try:
            until(lambda: len(driven.view("counts")) == 3, "the view is filled")
            seen: set[str] = set()
            until(lambda: is_tried_again(ours, seen), "the other is tried again")
            assert seen == {"retrying"}, "in a crash loop it has not worked once, also while it is started again"
            assert "ConnectionError: not yet" in status(ours)["two.fragile"]["error"]["message"]
            mended.touch()
            until(lambda: len(driven.records("fragile")) == 6, "it is mended")
            until(lambda: status(ours)["two.fragile"]["state"] == "running", "it has committed")
            failed = status(ours)["two.wrong"]
            assert (failed["state"], failed["restarts"]) == ("failed", 0), "the same rows give the same error again"
            assert failed["error"]["message"].startswith("ZeroDivisionError: ") and failed["error"]["line"]
            send_command(ours, "query", "two.counts", "pause")
            until(lambda: status(ours)["two.counts"]["state"] == "paused", "it is paused")
            produce(ours, "orders", orders(6, 3))
            until(lambda: len(driven.records("fragile")) == 9, "the other goes on")
            assert sum(row["count"] for row in driven.view("counts").values()) == 6  # type: ignore[misc]
            send_command(ours, "query", "two.counts", "resume")
            until(lambda: driven.view("counts") == driven.batch("counts"), "it goes on where it was")
        finally:
            run.stopping.set()
            thread.join(PATIENCE_S)
    told = status(ours)
    assert (told["two"]["state"], told["two.counts"]["state"]) == ("stopped", "stopped")
    assert (told["two.counts"]["rows_in"], told["two.counts"]["inputs"]) == (9, ["orders"])


@proves("B1")
@pytest.mark.story
def test_the_same_functions_over_history_give_what_the_stream_gives(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def shop(name: str) -> App:
        app = App(name)
        app.stream("orders", value=ORDERS)
        app.topic(f"{name}-big", key="id")(lambda orders: orders.where("amount > 3"))

        @app.view(f"{name}-revenue", key="product")
        def revenue(orders: DataFrame) -> DataFrame:
            return orders.groupBy("product").agg(F.sum("amount").alias("revenue"))

        return app

    make_topic(ours, "orders")
    produce(ours, "orders", orders(0, 10))
    stream = Driven(shop("live"), spark, ours, tidelog_broker.bootstrap, tmp_path)
    stream.step()
    past = Driven(shop("past"), spark, ours, tidelog_broker.bootstrap, tmp_path)
    reader = replace(past.reader, span=Span())
    for _ in range(2):  # the second one finds that it is written
        for target in past.targets.values():
            history.write(ours, reader, target, past.settings.options)
    assert past.view("past-revenue") == stream.view("live-revenue") == stream.batch("live-revenue")
    big = [json.loads(row.value or b"") for _, row in past.records("past-big")]
    assert sorted(row["id"] for row in big) == [4, 5, 6, 7, 8, 9]
    assert stream.batch("live-revenue", Span(end_ms=1)) == {}
    live, known = replace(stream.reader, span=Span()), read_catalog(ours)
    for name in ("view live-revenue", "topic live-big"):
        with pytest.raises(UsageError, match=f"{name} is kept up to date by a query; --show"):
            history.write(ours, live, stream.targets[name.partition(" ")[2]], stream.settings.options)
    elsewhere = replace(stream.settings, store=f"sqlite:///{tmp_path}/elsewhere.db")
    for name in ("live-revenue", "live-big"):
        with pytest.raises(UsageError, match="is kept up to date by a query"):
            list(history.write_all(ours, replace(live, graph=stream.graph.only([name])), elsewhere))
    assert read_catalog(ours) == known, "what is refused has changed nothing: readers find the view's store"
    produce(ours, "orders", orders(10, 2))
    stream.step()
    assert stream.view("live-revenue") == stream.batch("live-revenue"), "and the queries go on"


class Process:
    """`tidelog run` as users start it."""

    def __init__(self, bootstrap: str, folder: Path, *more: str, log: str = "run.log") -> None:
        self.log = folder / log
        words = [sys.executable, "-m", "tidelog", "run", str(PROGRAM), "--bootstrap", bootstrap, "--memory", "512m"]
        words += more
        with self.log.open("ab") as said:
            self.process = subprocess.Popen(words, cwd=folder, stderr=said, stdout=said, preexec_fn=die_with_parent)

    def stop(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def shown_in(folder: Path) -> dict[str, tuple[float, int]]:
    from tidelog.views.stores.opening import open_store
    from tidelog.views.stores.store import Ask

    try:
        store = open_store(f"sqlite:///{folder}/tidelog-views/shop.db", "revenue")
        rows: Any = store.read(Ask()).rows
        store.close()
    except Exception:
        return {}
    return {row["product"]: (row["revenue"], row["orders"]) for row in rows}


def expected(count: int) -> dict[str, tuple[float, int]]:
    rows = orders(0, count)
    names = {row["product"] for row in rows}
    of = {name: [row["amount"] for row in rows if row["product"] == name] for name in names}
    return {name: (sum(amounts), len(amounts)) for name, amounts in of.items()}


def child_of(pid: int, word: str) -> psutil.Process:
    for one in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):  # Spark's workers come and go
            if word in one.cmdline():
                return one
    raise AssertionError(f"none of its processes was started with {word}")


def applier_of(pid: int) -> psutil.Process:
    return child_of(pid, "apply")


@proves("P1", "P3", "F1", "eo.20")
@pytest.mark.story
def test_a_driver_that_is_killed_goes_on_to_the_same_view_and_its_applier_dies_with_it(
    tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    def sums() -> dict[str, tuple[float, int]]:
        return shown_in(tmp_path)

    make_topic(ours, "orders")
    produce(ours, "orders", orders(0, 300))
    first = Process(tidelog_broker.bootstrap, tmp_path)
    try:
        until(lambda: " ready app=shop" in first.log.read_text(), "it is ready")
        assert sums() == expected(300), "what it says can be read is there"
        applier, forks = applier_of(first.process.pid), child_of(first.process.pid, "tidelog.spark.worker_forks")
        workers = forks.children(recursive=True)
        assert len(workers) >= 3, "planners, a daemon, and what that has forked"
        produce(ours, "orders", orders(300, 300))
    finally:
        first.stop(signal.SIGKILL)
    for one in (applier, forks, *workers):
        until(lambda one=one: not one.is_running(), f"it has ended, too: {one}")
    produce(ours, "orders", orders(600, 300))
    second = Process(tidelog_broker.bootstrap, tmp_path)
    try:
        until(lambda: sums() == expected(900), "after the kill: the same as without it")
        until(lambda: (status(ours)["shop.revenue"].get("lag") or {}).get("records") == 0, "it has caught up")
    finally:
        code = second.stop(signal.SIGTERM)
    assert code == 0, second.log.read_text()[-3000:]
    assert status(ours)["shop"]["state"] == "stopped"
    said = second.log.read_text()
    assert [line for line in said.splitlines() if not OF_OURS.match(line)] == [], (
        "neither Spark nor a worker says a word"
    )
    seen: dict[int, int] = {}
    for _, row in committed(ours, "big-orders"):
        number = json.loads(row.value or b"")["id"]
        seen[number] = seen.get(number, 0) + 1
    assert set(seen) == set(range(101, 900)) and set(seen.values()) == {1}, "each once"


@proves("P1", "P3", "eo.20")
def test_a_run_that_stands_by_takes_the_place_of_one_that_is_killed_and_a_third_is_refused(
    tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "orders")
    produce(ours, "orders", orders(0, 300))
    first = Process(tidelog_broker.bootstrap, tmp_path)
    second = None
    try:
        until(lambda: shown_in(tmp_path) == expected(300), "the store has the view")
        second = Process(tidelog_broker.bootstrap, tmp_path, "--standby", log="second.log")
        until(lambda: f"pid={first.process.pid}" in second.log.read_text(), "it says whom it waits for")
        third = Process(tidelog_broker.bootstrap, tmp_path, log="third.log")
        assert third.process.wait(PATIENCE_S) == 1
        assert f"of app shop is run by process {first.process.pid}; stop that first" in third.log.read_text()
        produce(ours, "orders", orders(300, 300))
        first.stop(signal.SIGKILL)
        produce(ours, "orders", orders(600, 300))
        until(lambda: shown_in(tmp_path) == expected(900), "the other goes on, with the same checkpoints and store")
        assert second.stop(signal.SIGTERM) == 0, second.log.read_text()[-3000:]
    finally:
        for one in filter(None, (first, second)):
            one.process.kill()
            one.process.wait()
    seen = [json.loads(row.value or b"")["id"] for _, row in committed(ours, "big-orders")]
    assert sorted(seen) == list(range(101, 900)), "each once"
