"""Generations of a derived topic as a rebuild moves them, without Spark: begun, gone on with, switched, in place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.app.driven import committed, make_topic
from pipelines.app.test_in_place import generations, last_rows, written
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.control import marks
from tidelog.control.catalog import find_derived, read_catalog
from tidelog.control.derived import Derived
from tidelog.control.marks import Mark, Sources
from tidelog.control.owner import Owner
from tidelog.errors import UsageError, ViewChanged
from tidelog.pipelines.app import App
from tidelog.pipelines.graph import Graph, graph_of
from tidelog.pipelines.placing_topics import How, place_topic
from tidelog.pipelines.rebuilding_topics import BegunTopic, RebuildTopic
from tidelog.pipelines.running import Settings
from tidelog.testing.broker import TestBroker

PLAIN = How(keyed=False)


def shop(keep: str) -> Graph:
    """Other code for another text."""
    app = App("shop")
    app.stream("orders", value="id long")
    app.topic("big", key="id")(lambda orders: orders.where(keep))
    return graph_of(app)


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        make_topic(cluster, "orders", 2)
        yield cluster


def rebuild_of(cluster: Cluster, folder: Path, keep: str) -> RebuildTopic:
    graph = shop(keep)
    reader: Any = SimpleNamespace(graph=graph)
    settings, how = Settings("", str(folder)), {"say": lambda *_, **__: None, "tell": lambda _: None}
    return RebuildTopic(cluster, reader, graph.node("big"), settings, **how)


def begun(made: RebuildTopic, *, is_in_place: bool = False, again: bool = False) -> BegunTopic:
    return made._begin(PLAIN, again=again, with_readers=False, is_in_place=is_in_place)


def run(cluster: Cluster, folder: Path, keep: str, how: How = PLAIN) -> str:
    """As `tidelog run` places it; the sink."""
    graph = shop(keep)
    return place_topic(cluster, graph, graph.node("big"), str(folder), how).sink


def build(cluster: Cluster, one: BegunTopic, rows: dict[str, str | None]) -> dict[Any, int]:
    """As its query writes it."""
    written(cluster, one.target.topic, rows, number=one.target.generation)
    places = dict.fromkeys(cluster.partitions(one.target.topic), LATEST)
    ends = {at: found.offset for at, found in list_offsets(cluster, places).items()}
    owner = Owner(cluster, marks.transactional_id_of(one.target.sink))
    owner.begin()
    with owner.transaction() as outgoing:
        mark = Mark(one.target.sink, "q", 0, Sources(), ends, 1)
        outgoing.send(marks.partition_of_marks(one.target.sink), [(*marks.encode(mark), (), 1)])
    return ends


def entry(cluster: Cluster) -> Derived:
    found = find_derived(read_catalog(cluster), "big")
    assert found is not None
    return found


@proves("dt.1", "dt.2", "dt.10")
def test_a_run_goes_on_with_what_was_switched_to_and_other_code_is_refused_or_asked_for(
    ours: Cluster, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="topic big is not in the catalog; `tidelog run` declares it"):
        begun(rebuild_of(ours, tmp_path, "id > 1"))
    assert run(ours, tmp_path, "id > 1") == run(ours, tmp_path, "id > 1") == "shop.big"
    with pytest.raises(ViewChanged, match=r"generation 1 was written \(changed: constant keep\).*--go-on big` goes on"):
        run(ours, tmp_path, "id > 2")
    made = rebuild_of(ours, tmp_path, "id > 2")
    one = begun(made)
    assert (one.target.topic, one.old) == ("big.v2", "shop.big") and run(ours, tmp_path, "id > 1") == "shop.big"
    made.switch(one, build(ours, one, {"a": "1"}))
    assert run(ours, tmp_path, "id > 2") == "shop.big.v2" and entry(ours).topic == "big.v2"
    with pytest.raises(ViewChanged, match="generation 2 was written"):
        run(ours, tmp_path, "id > 1")
    assert run(ours, tmp_path, "id > 1", How(keyed=False, goes_on=True)) == "shop.big.v2"
    ends = {at: at.partition for at in ours.partitions("big.v2")}
    assert [was.ends for was in entry(ours).current.changes] == [ends], "the catalog keeps where the code changed"
    with pytest.raises(ViewChanged, match="cannot go on from here: its query keeps state"):
        run(ours, tmp_path, "id > 3", How(keyed=False, state="s1", goes_on=True))
    assert run(ours, tmp_path, "id > 3", How(keyed=False, by_batches=True)) == "shop.big.v2"
    assert made.drop_old(at_once=False) == [] and made.drop_old(at_once=True) == [1]
    assert {"big"} & set(topics.names(ours)) == set()


@proves("dt.5", "dt.8")
@pytest.mark.parametrize("keep", ["id > 2", "id > 3"], ids=["the same code", "other code"])
def test_what_was_interrupted_after_its_switch_is_ended_first(ours: Cluster, tmp_path: Path, keep: str) -> None:
    run(ours, tmp_path, "id > 1")
    written(ours, "big", {"a": "1", "bb": "2"})
    made = rebuild_of(ours, tmp_path, "id > 2")
    one = begun(made, is_in_place=True)
    made.switch(one, build(ours, one, {"a": "10", "bb": "20"}))
    with pytest.raises(ViewChanged, match="generation 2 of topic big is being put in place"):
        run(ours, tmp_path, "id > 2")
    again = rebuild_of(ours, tmp_path, keep)
    with pytest.raises(UsageError, match="is not whole; end that first"):
        begun(again)
    two = begun(again, is_in_place=True)
    if keep == "id > 2":
        assert two.is_switched and two.target.generation == 2
        again.place(again.switch(two, {}))
    else:
        assert not two.is_switched and two.target.generation == 3, "what was left is ended, and this code begins"
        again.place(again.switch(two, build(ours, two, {"a": "100", "bb": "200"})))
    live = entry(ours)
    assert (live.live, live.topic, live.current.aside) == (two.target.generation, "big", "")
    assert {number for told in generations(ours).values() for number in told} == {two.target.generation}
    assert last_rows(ours, "big") == (
        {b"a": b"10", b"bb": b"20"} if keep == "id > 2" else {b"a": b"100", b"bb": b"200"}
    )
    assert {name for name in topics.names(ours) if name.startswith("big")} == {"big"}
    assert run(ours, tmp_path, keep) == live.sink and len(committed(ours, "big")) == 2


@proves("dt.2")
def test_a_rebuild_goes_on_with_what_it_left_and_is_not_mixed_with_another_way(ours: Cluster, tmp_path: Path) -> None:
    run(ours, tmp_path, "id > 1")
    make_topic(ours, "big.v2", 1)
    written(ours, "big.v2", {"aa": "somebody else's"})
    assert begun(rebuild_of(ours, tmp_path, "id > 2")).target.topic == "big.v3", "the name before is somebody else's"
    assert begun(rebuild_of(ours, tmp_path, "id > 2")).target.topic == "big.v3"
    with pytest.raises(UsageError, match="is being built by other code"):
        begun(rebuild_of(ours, tmp_path, "id > 3"))
    with pytest.raises(UsageError, match="is being built beside the old one; go on in that way"):
        begun(rebuild_of(ours, tmp_path, "id > 2"), is_in_place=True)
    assert begun(rebuild_of(ours, tmp_path, "id > 3"), again=True).target.topic == "big.v4"
    assert "big.v3" not in topics.names(ours) and entry(ours).topic == "big"
