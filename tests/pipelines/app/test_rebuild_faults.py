"""A rebuild, and what may have become of its inputs, its folders and who reads the view; without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.app.test_rebuild_protocol import ours, rebuild, rebuilding_of
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.marks import Sources
from tidelog.client.producer import Producer
from tidelog.client.status import Reporter
from tidelog.errors import PipelineFailed, UsageError
from tidelog.pipelines import generations
from tidelog.views import catalog
from tidelog.views.catalog import find_view
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
    with pytest.raises(PipelineFailed, match=r"somebody writes revenue.v1 who was not seen.*start this again: it goes on"):
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
    declare_view(ours, "revenue")
    begun = rebuild(ours, tmp_path)
    seeds = ["__tidelog.seed.revenue.v1.rows", "__tidelog.marks.seed.revenue.v1.rows"]
    others = ["__tidelog.seed.revenue.v2.rows", "__tidelog.seed.revenue.v11.rows", "__tidelog.marks.seed.revenue.v2.rows"]
    for name in (*seeds, *others):
        topics.create(ours, name, partitions=1)
    generations.switch(ours, "revenue", begun.target.generation, {})
    assert [one.number for one in generations.drop(ours, "revenue", {1})] == [1]
    left = set(topics.names(ours))
    assert left.isdisjoint(seeds) and left >= {*others, begun.target.topic}
