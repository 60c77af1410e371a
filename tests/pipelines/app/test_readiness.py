"""When a run is ready: its queries have worked, and its stores show its views."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from proving import proves
from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Mark, Sources
from tidelog.errors import Disconnected
from tidelog.pipelines.readiness import Readiness
from tidelog.views.changes import Stretch
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import Store
from views.applying import until
from views.writing import REVENUE

AT = TopicPartition("revenue.v1", 0)
MARK = Mark("revenue.v1", "q", 0, Sources(), {AT: 0}, 0)


def target_of(name: str, *stores: str) -> Any:
    return SimpleNamespace(node=SimpleNamespace(name=name), stores=stores)


def query_of(target: Any, *, has_worked: bool) -> Any:
    return SimpleNamespace(target=target, has_worked=lambda: has_worked)


@proves("P3", "eo.19")
def test_a_run_is_ready_when_each_query_has_worked_and_each_store_shows_its_view(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two")]
    tried: list[str] = []

    def opened(target: Any, url: str) -> Store:
        tried.append(url)
        if len(tried) == 1:
            raise Disconnected("a store that is not there at first")
        return open_store(url, target.node.name)

    view, topic = target_of("revenue", *urls), target_of("big-orders")
    readiness = Readiness([view, topic], opened, threading.Event())
    assert readiness.is_ready([query_of(topic, has_worked=True)]), "a topic has no store"
    assert not readiness.is_ready([query_of(topic, has_worked=False)])
    for url in urls:
        with closing(open_store(url, "revenue")) as store:
            store.prepare(1, REVENUE)
            assert not readiness.is_ready([query_of(view, has_worked=True)]), "it is prepared, and not shown"
            store.apply(1, Stretch([], {AT: 0}, MARK), before={}, show=True)
    until(lambda: readiness.is_ready([query_of(view, has_worked=True), query_of(topic, has_worked=True)]))
    assert not readiness.is_ready([query_of(view, has_worked=False)])


@proves("P3")
def test_nobody_looks_at_stores_any_more_once_a_run_stops(tmp_path: Path) -> None:
    stopping = threading.Event()
    view = target_of("revenue", f"sqlite:///{tmp_path}/views.db")
    readiness = Readiness([view], lambda target, url: open_store(url, target.node.name), stopping)
    stopping.set()
    until(lambda: not any(one.name == "tidelog-ready" for one in threading.enumerate()))
    assert readiness.is_ready([]), "nothing is at work"
