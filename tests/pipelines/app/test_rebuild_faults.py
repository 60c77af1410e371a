"""A rebuild, and what may have become of its inputs, its folders and who reads the view; without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract import TIMEOUT_S
from parts.plain import Doomed
from pipelines.app.noting_query import NotingQuery
from pipelines.app.test_rebuild_protocol import nothing, ours, rebuild, rebuilding_of, shop
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.control import catalog
from tidelog.control.catalog import find_view
from tidelog.control.marks import Sources
from tidelog.control.status import Reporter, send_command
from tidelog.errors import PipelineFailed, UsageError
from tidelog.parts.children import ChildPart
from tidelog.parts.part import Fault
from tidelog.pipelines import generations
from tidelog.pipelines.background import Background
from tidelog.pipelines.handover import Handover
from tidelog.pipelines.placing import view_target
from tidelog.pipelines.running import Run, Settings
from tidelog.testing.broker import TestBroker
from views.applying import until
from views.writing import ORDERS, Pipeline, declare_view

__all__ = ["ours"]


@proves("E3", "eo.14")
def test_a_rebuild_over_an_input_that_was_made_anew_has_an_aim_that_can_be_reached(
    ours: Cluster, tmp_path: Path
) -> None:
    old = Pipeline(ours, declare_view(ours, "revenue").generations[0])
    old.batch({"tea": 1}, sources=Sources({ORDERS: 1000}))
    topics.delete(ours, "orders")
    topics.create(ours, "orders", partitions=1)
    ours.forget()
    with Producer(ours) as producer:
        for _ in range(3):
            producer.send("orders", b"{}", key=None)
    begun, made = rebuild(ours, tmp_path), rebuilding_of(ours, tmp_path)
    assert made._round(begun, {ORDERS: 3}, ["orders"]).aim.offsets == {ORDERS: 3}


@proves("E3", "F3")
def test_who_writes_the_old_one_after_the_last_look_is_found_out_when_the_record_is_written(
    ours: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pipeline(ours, declare_view(ours, "revenue").generations[0]).batch({"tea": 1})
    begun, made = rebuild(ours, tmp_path), rebuilding_of(ours, tmp_path)
    made._fence(begun)
    made._check_fenced(begun)

    class Slow(catalog.Editor):
        """A run is started, and its query commits, while the switch takes the view's record for itself."""

        def view(self) -> catalog.View | None:
            Pipeline(ours, begun.view.generations[0]).batch({"tea": 2})
            return super().view()

    monkeypatch.setattr(generations, "Editor", Slow)
    with pytest.raises(PipelineFailed, match=r"somebody writes revenue.v1 who was not seen.*: it goes on"):
        made.switch(begun, {})
    assert find_view(ours, "revenue").live == 1, "the old one is the view"


@proves("E3", "F4")
def test_a_rebuild_whose_checkpoint_the_run_would_not_find_is_refused_and_says_which_folder_is_meant(
    ours: Cluster, tmp_path: Path
) -> None:
    """The run's query would be failed for good at the switch, and the view stand still."""
    made, reporter = rebuilding_of(ours, tmp_path), Reporter(ours, "query", "shop.revenue")
    code_of = made.node.fingerprint
    for state, code, folder, is_refused in (
        ("running", code_of, "/opt/checkpoints", True),
        ("failed", code_of, "/opt/checkpoints", True),  # it waits for this rebuild
        ("stopped", code_of, "/opt/checkpoints", False),
        ("running", "other", "/opt/checkpoints", False),  # and will not go on with it
        ("running", code_of, f"{tmp_path}/checkpoints", False),
    ):
        figures = {"state": state, "fingerprint": code, "checkpoint": f"{folder}/shop/revenue.v1"}
        reporter.tell(figures, at_once=True)
        if not is_refused:
            made._check_folder()
            continue
        with pytest.raises(UsageError, match=r"has its checkpoints in /opt/.*; say --checkpoints /opt/checkpoints$"):
            made._check_folder()


@proves("eo.25", "F4")
def test_an_old_generation_takes_the_rows_with_it_that_it_had_from_a_store(ours: Cluster, tmp_path: Path) -> None:
    old = Pipeline(ours, declare_view(ours, "revenue").generations[0])
    seeds = ["__tidelog.seed.revenue.v1.rows", "__tidelog.marks.seed.revenue.v1.rows"]
    others = ["__tidelog.seed.revenue.v2.rows", "__tidelog.marks.seed.revenue.v2.rows"]
    for name in (*seeds, *others):
        topics.create(ours, name, partitions=1)
    old.batch({"tea": 1}, sources=Sources({TopicPartition(name, 0): 1 for name in (seeds[0], others[0])}))
    begun = rebuild(ours, tmp_path)
    generations.switch(ours, "revenue", begun.target.generation, {})
    assert [one.number for one in generations.drop(ours, "revenue", {1})] == [1]
    found = ours.ask_metadata([*seeds, *others]).topics
    assert [found[name].led for name in (*seeds, *others)] == [False, False, True, True]


class Applier(ChildPart):
    """That applies nothing, and notes what it is told."""

    def __init__(self, url: str, calls: list[str]) -> None:
        super().__init__("applier", "shop.revenue", [url], {"view": "revenue"}, reports_as=url)
        self.calls = calls

    def start(self) -> None:
        self.calls.append(f"start {self.command[0]}")

    def look(self) -> Fault | None:
        return None

    def stop(self) -> None:
        self.calls.append(f"stop {self.command[0]}")


@proves("E3", "eo.20", "P3")
def test_a_run_applies_to_the_stores_that_a_rebuild_has_given_the_view(ours: Cluster, tmp_path: Path) -> None:
    """Else nobody would, once the rebuild has ended, and the view stand still where readers are led to."""
    graph, calls, old = shop(), list[str](), "sqlite:///old.db"
    view = declare_view(ours, "revenue", stores=[old])
    target = view_target(graph, graph.node("revenue"), view, view.generations[0], str(tmp_path))
    run = Run(
        "shop",
        [NotingQuery(target), Applier(old, calls)],
        ours,
        nothing,
        handover=Handover(ours, graph, str(tmp_path)),
        appliers=lambda moved: [Applier(url, calls) for url in moved.stores],
    )

    def turn() -> list[str]:
        run._due = dict.fromkeys(run._due, 0.0)
        run._follow(1.0)
        for key in run.parts:
            run.step(key, 1.0)
        return calls

    assert turn() == [f"start {old}"]
    for number, stores in ((2, [old]), (3, ["sqlite:///new.db"])):
        assert rebuild(ours, tmp_path, graph).target.generation == number
        generations.switch(ours, "revenue", number, {}, stores=stores)
        until(lambda number=number: turn() and run.figures(("query", "shop.revenue"))["generation"] == number)
    assert turn() == [f"start {old}", f"stop {old}", "start sqlite:///new.db"]
    assert run.watches["applier", "shop.revenue"].state == "running"


@proves("E3")
def test_a_rebuild_whose_query_is_told_to_stop_ends_and_does_not_wait_for_it(
    tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    part = Doomed("shop.revenue.v2")
    background = Background("shop.revenue.v2", [part], Settings(tidelog_broker.bootstrap, str(tmp_path)), nothing)
    until(lambda: part.calls == ["start"])
    background.check()
    send_command(ours, "query", "shop.revenue.v2", "stop")
    background._thread.join(TIMEOUT_S)
    with pytest.raises(PipelineFailed, match=r"has ended too early \(query shop.revenue.v2 is stopped\); the same"):
        background.check()
    background.stop()
