"""A rebuild, and what may have become of its inputs, its folders and who reads the view; without Spark."""

from __future__ import annotations

from pathlib import Path

from pipelines.app.test_rebuild_protocol import ours, rebuild, rebuilding_of
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.marks import Sources
from tidelog.client.producer import Producer
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
