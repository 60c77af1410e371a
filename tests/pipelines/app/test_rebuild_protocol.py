"""A rebuild's steps in the catalog, with a pipeline without Spark: begun, left, gone on with, switched, dropped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipelines.app.noting_query import NotingQuery
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control import catalog
from tidelog.control.catalog import Editor, View, find_view
from tidelog.control.derived import ROWS, Derived, TopicGeneration
from tidelog.control.marks import Sources, topic_of
from tidelog.control.status import Commands, Reporter, read_status, send_command
from tidelog.errors import PipelineFailed, ProducerFenced, UsageError
from tidelog.parts.part import Fault
from tidelog.pipelines import building_aside, generations
from tidelog.pipelines.app import App
from tidelog.pipelines.building_aside import FOR_A_SWITCH, clear_up
from tidelog.pipelines.catching_up import report_of
from tidelog.pipelines.generations import Way, outlived, way_of
from tidelog.pipelines.graph import Graph, graph_of
from tidelog.pipelines.handover import Handover, moved
from tidelog.pipelines.placing import Target, view_target
from tidelog.pipelines.rebuilding import BegunView as Begun
from tidelog.pipelines.rebuilding import Rebuild, begin
from tidelog.pipelines.running import Run, Settings
from tidelog.pipelines.view_readers import readers_of
from tidelog.testing.broker import TestBroker
from tidelog.views import lifecycle
from tidelog.views.feed_reading import FeedReader, Piece, Switched, find, newest
from views.applying import applying, shown, until
from views.writing import REVENUE, Pipeline, declare_view, make_topics

HOUR_MS = 3600 * 1000


def shop(keep: str = "amount > 1") -> Graph:
    app = App("shop")
    app.stream("orders", value="product string, amount long")
    app.view("revenue", key="product")(lambda orders: orders.where(keep))
    return graph_of(app)


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "orders", partitions=1)
        yield cluster


def settings(cluster: Cluster, folder: Path) -> Settings:
    return Settings("", str(folder / "checkpoints"), store=f"sqlite:///{folder}/views.db")


def nothing(*_: object, **__: object) -> None:
    pass


def rebuild(cluster: Cluster, folder: Path, graph: Graph | None = None, *, again: bool = False) -> Begun:
    graph = graph or shop()
    return begin(cluster, graph, graph.node("revenue"), REVENUE, settings(cluster, folder), again=again)


def pipeline_of(cluster: Cluster, begun: Begun, query_id: str = "new") -> Pipeline:
    return Pipeline(cluster, begun.view.generations[-1], query_id=query_id)


def checkpoint_of(begun: Begun, query_id: str) -> None:
    folder = Path(begun.target.checkpoint)
    folder.mkdir(parents=True)
    (folder / "metadata").write_text(f'{{"id":"{query_id}"}}')


# Begun, and left at every point ---------------------------------------------------------------------------------------


@proves("E3", "eo.14")
def test_a_rebuild_that_ended_before_its_first_micro_batch_is_gone_on_with(ours: Cluster, tmp_path: Path) -> None:
    declare_view(ours, "revenue")
    first = rebuild(ours, tmp_path)
    assert (first.way, first.target.topic, first.old) == (Way.BEGIN, "revenue.v2", "revenue.v1")
    second = rebuild(ours, tmp_path)
    assert (second.way, second.target.checkpoint) == (Way.CONTINUE, first.target.checkpoint)
    assert find_view(ours, "revenue").live == 1


@proves("E3", "F4", "eo.14")
def test_one_that_was_killed_goes_on_with_its_checkpoint_and_without_it_begins_anew(
    ours: Cluster, tmp_path: Path
) -> None:
    declare_view(ours, "revenue")
    first = rebuild(ours, tmp_path)
    pipeline_of(ours, first, "new").batch({"tea": 1})
    checkpoint_of(first, "new")
    assert rebuild(ours, tmp_path).way is Way.CONTINUE
    (Path(first.target.checkpoint) / "metadata").unlink()
    anew = rebuild(ours, tmp_path)
    assert (anew.way, anew.target.topic) == (Way.ANEW, "revenue.v3")
    assert [one.number for one in find_view(ours, "revenue").generations] == [1, 3]
    left = set(topics.names(ours))
    assert not {"revenue.v2", topic_of("revenue.v2")} & left, "what was given up is gone"


@proves("E3", "dt.4", "eo.25")
@pytest.mark.parametrize("in_place", ["", ROWS], ids=["by name", "in place"])
def test_one_that_has_read_another_generation_of_a_topic_than_is_live_by_now_begins_anew(
    ours: Cluster, tmp_path: Path, in_place: str
) -> None:
    """In place its rows came again behind those that were read: who goes on counts them twice."""
    app = App("shop")
    app.stream("orders", value="product string, amount long")
    app.topic("net", key="product")(lambda orders: orders)
    app.view("sums", key="product")(lambda net: net)
    graph, at = graph_of(app), TopicPartition("net", 0)
    one = TopicGeneration(1, "net", "shop.net", "f", live={})
    entry = Derived("net", "shop", "net", one.sink, ("orders",), 0, (one,))
    topics.create(ours, "net", partitions=1)
    Editor(ours, "net").write(entry)
    declare_view(ours, "sums", inputs=("net",))

    def begun() -> Begun:
        return begin(ours, graph, graph.node("sums"), REVENUE, settings(ours, tmp_path), again=False)

    first = begun()
    pipeline_of(ours, first).batch({"tea": 1}, sources=Sources({at: 1}))
    checkpoint_of(first, "new")
    assert begun().way is Way.CONTINUE
    two = TopicGeneration(2, "net" if in_place else "net.v2", "shop.net.v2", "f", live={}, in_place=in_place)
    topics.ensure(ours, two.topic, partitions=1)
    Editor(ours, "net").write(replace(entry, topic=two.topic, sink=two.sink, generations=(one, two), live=2))
    anew = begun()
    assert (anew.way, anew.target.topic, dict(anew.target.reads)) == (Way.ANEW, "sums.v3", {"net": 2})
    assert begun().way is Way.CONTINUE


@proves("E3", "eo.26")
def test_what_other_code_is_building_is_not_gone_on_with_but_may_be_given_up(ours: Cluster, tmp_path: Path) -> None:
    declare_view(ours, "revenue")
    rebuild(ours, tmp_path)
    other = shop("amount > 2")
    with pytest.raises(UsageError, match=r"generation 2 of view revenue is being built by other code.*--again"):
        rebuild(ours, tmp_path, other)
    assert rebuild(ours, tmp_path, other, again=True).target.topic == "revenue.v3"


@proves("E3")
def test_a_switch_is_made_once_and_not_to_what_was_given_up(ours: Cluster, tmp_path: Path) -> None:
    declare_view(ours, "revenue")
    begun = rebuild(ours, tmp_path)
    mark = pipeline_of(ours, begun).batch({"tea": 1})
    switched = generations.switch(ours, "revenue", 2, mark.ends, inputs=["orders"], stores=["sqlite:///new.db"])
    assert (switched.live, switched.stores) == (2, ("sqlite:///new.db",))
    assert generations.switch(ours, "revenue", 2, {}).current == switched.current, "a second one changes nothing"
    rebuild(ours, tmp_path)
    rebuild(ours, tmp_path, again=True)
    with pytest.raises(UsageError, match="generation 3 of view revenue is not being built"):
        generations.switch(ours, "revenue", 3, {})


@proves("E3")
def test_a_rebuild_from_another_folder_leaves_the_stores_as_the_run_has_them(ours: Cluster, tmp_path: Path) -> None:
    """Readers would be led to a file that nobody applies to any more."""
    before, graph = declare_view(ours, "revenue", stores=["sqlite:////opt/app/tidelog-views/shop.db"]), shop()
    reader, elsewhere = SimpleNamespace(graph=graph), settings(ours, tmp_path / "elsewhere")
    for by_folder, stores in ((True, before.stores), (False, (elsewhere.store,))):
        begun = rebuild(ours, tmp_path, again=True)
        told = replace(elsewhere, store_by_folder=by_folder)
        made = Rebuild(ours, cast("Any", reader), graph.node("revenue"), told, say=nothing, tell=nothing)
        assert made.switch(begun, {}).stores == stores


@proves("E3")
def test_what_a_run_writes_to_the_catalog_during_a_rebuild_is_kept(ours: Cluster, tmp_path: Path) -> None:
    declare_view(ours, "revenue")
    begun = rebuild(ours, tmp_path)
    editor = catalog.Editor(ours, "revenue")  # of a run that starts meanwhile: who began the rebuild is fenced
    view = editor.view()
    assert view is not None
    editor.write(lifecycle.go_on(view, REVENUE, "f1"))
    assert generations.switch(ours, "revenue", begun.target.generation, {}).live == 2


@proves("E3")
def test_a_view_that_nobody_has_run_or_that_belongs_to_others_is_not_rebuilt(ours: Cluster, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not in the catalog; `tidelog run` declares it"):
        rebuild(ours, tmp_path)
    catalog.Editor(ours, "revenue").write(
        lifecycle.begin(lifecycle.new_view("revenue", app="other", inputs=[], stores=[]), REVENUE, "f", 1)
    )
    with pytest.raises(UsageError, match=r"test_rebuild_protocol.py:\d+: view 'revenue' belongs to app other"):
        rebuild(ours, tmp_path)


@proves("eo.25", "E3")
def test_a_view_that_a_pipeline_reads_is_not_rebuilt_and_the_reader_is_named(ours: Cluster, tmp_path: Path) -> None:
    declare_view(ours, "revenue")
    declare_view(ours, "ranking", inputs=("revenue",))
    app = shop().app
    app.view("ranking", key="product")(lambda revenue: revenue)
    with pytest.raises(UsageError, match="view ranking reads view revenue, generation 1, and could not follow"):
        rebuild(ours, tmp_path, graph_of(app))


@proves("eo.25")
def test_readers_are_known_by_the_views_name_and_by_its_topics_and_what_the_app_has_no_more_is_none() -> None:
    view = lifecycle.begin(lifecycle.new_view("revenue", app="shop", inputs=["orders"], stores=[]), REVENUE, "f", 1)
    known: Any = {
        ("topic", "a"): Derived("a", "shop", "a", "shop.a", ("revenue",)),
        ("topic", "b"): Derived("b", "shop", "b", "shop.b", ("revenue",)),
        ("topic", "c"): Derived("c", "other", "c", "other.c", ("revenue.v1",)),
        ("view", "revenue"): view,
    }
    assert [one.name for one in readers_of(known, view, app="shop", outputs=["a", "revenue"])] == ["a", "c"]


@proves("eo.25", "eo.15")
def test_an_old_generation_goes_when_the_next_has_been_live_for_the_horizon() -> None:
    view = lifecycle.begin(lifecycle.new_view("revenue", app="shop", inputs=["orders"], stores=[]), REVENUE, "f", 1)
    view = lifecycle.switch(lifecycle.begin(view, REVENUE, "f", 1), 2, {})
    horizon = REVENUE.horizon_ms
    assert outlived(view, {1: 0, 2: 1000}, 1000 + horizon) == []
    assert [one.number for one in outlived(view, {1: 0, 2: 1000}, 1001 + horizon)] == [1]
    assert outlived(view, {1: 0, 2: None}, 10 * horizon) == [], "its mark is not there yet"


@proves("eo.26")
def test_only_the_same_code_goes_on_with_what_is_being_built() -> None:
    view = lifecycle.begin(lifecycle.new_view("revenue", app="shop", inputs=["orders"], stores=[]), REVENUE, "f", 1)
    assert way_of(view, REVENUE, "f", again=False, kept=True) is Way.BEGIN
    building = lifecycle.begin(view, REVENUE, "g", 1)
    assert way_of(building, REVENUE, "g", again=False, kept=False) is Way.ANEW
    with pytest.raises(UsageError, match="being built by other code"):
        way_of(building, REVENUE, "f", again=False, kept=True)


@proves("E3", "F4")
def test_what_a_killed_rebuild_has_left_is_cleared_up_and_what_somebody_has_paused_stays_so(ours: Cluster) -> None:
    for name in ("shop.revenue", "shop.revenue.v2", "shop.revenues.v2", "shop.revenue.value"):
        Reporter(ours, "query", name).tell({"state": "running"})
    Reporter(ours, "app", "shop.revenue.v2").tell({"state": "running"})
    send_command(ours, "query", "shop.revenue", "pause")
    clear_up(ours, "shop.revenue")
    assert [one.command for one in Commands(ours).first()] == ["pause"], "somebody's own"
    told = {(one.kind, one.name) for one in read_status(ours) if one.kind != "broker"}
    assert told == {("query", name) for name in ("shop.revenue", "shop.revenues.v2", "shop.revenue.value")}
    send_command(ours, "query", "shop.revenue", "pause", **FOR_A_SWITCH)
    clear_up(ours, "shop.revenue")
    assert [one.command for one in Commands(ours).first()] == ["resume"]


def rebuilding_of(cluster: Cluster, folder: Path) -> Rebuild:
    graph = shop()
    reader = cast("Any", SimpleNamespace(graph=graph))
    return Rebuild(cluster, reader, graph.node("revenue"), settings(cluster, folder), say=nothing, tell=nothing)


@proves("E3")
@pytest.mark.parametrize("silent", [False, True], ids=["telling", "silent"])
def test_a_run_that_does_not_pause_in_time_ends_the_rebuild_also_if_it_tells_nothing_any_more(
    ours: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    declare_view(ours, "revenue")
    begun, made = rebuild(ours, tmp_path), rebuilding_of(ours, tmp_path)
    Reporter(ours, "query", begun.target.part).tell({"state": "running"})
    monkeypatch.setattr(building_aside, "PAUSED_WITHIN_S", 0.5)
    if silent:
        later = iter([0])  # its last word is young when the rebuild looks first, and an hour old ever after
        monkeypatch.setattr(
            building_aside,
            "report_of",
            lambda reports, kind, name, now: report_of(reports, kind, name, now and now + next(later, HOUR_MS)),
        )
    with pytest.raises(PipelineFailed, match=r"query shop.revenue was asked to pause and has not.*the same command"):
        made._pause(begun)
    assert find_view(ours, "revenue").live == 1


@proves("E3")
def test_a_run_that_was_killed_before_the_clock_was_set_back_ends_the_rebuild_with_what_to_do(
    ours: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as alive, since its clock may as well be ahead of this one: whoever knows better starts it again."""
    declare_view(ours, "revenue")
    begun, made = rebuild(ours, tmp_path), rebuilding_of(ours, tmp_path)
    Reporter(ours, "query", begun.target.part).tell({"state": "running", "at_ms": time.time() * 1000 + HOUR_MS})
    monkeypatch.setattr(building_aside, "PAUSED_WITHIN_S", 0.5)
    said = r"has not reported since a time that is (59|60) minutes ahead of the clock here: if its run was killed,"
    with pytest.raises(PipelineFailed, match=said):
        made._pause(begun)


@proves("E3", "F3")
def test_who_writes_the_old_one_and_tells_nobody_is_fenced_and_found_out(ours: Cluster, tmp_path: Path) -> None:
    old = Pipeline(ours, declare_view(ours, "revenue").generations[0])
    old.batch({"tea": 1})
    begun, made = rebuild(ours, tmp_path), rebuilding_of(ours, tmp_path)
    old.owner.begin()
    old.write({"tea": 2})
    made._pause(begun)
    made._fence(begun)
    with pytest.raises(ProducerFenced):
        old.owner.commit()
    made._check_fenced(begun)
    Pipeline(ours, begun.view.generations[0]).batch({"tea": 3})
    with pytest.raises(PipelineFailed, match=r"somebody writes revenue.v1 who was not seen.*end that run"):
        made._check_fenced(begun)


# What readers see -----------------------------------------------------------------------------------------------------


@proves("E3", "eo.25", "eo.23")
def test_an_effect_that_counts_changes_does_not_move_when_the_view_is_rebuilt(ours: Cluster, tmp_path: Path) -> None:
    old = Pipeline(ours, declare_view(ours, "revenue").generations[-1], query_id="old")
    fired: list[tuple[Any, Any]] = []
    switches = 0
    view, catalog_from = find(ours, "revenue")
    reader = FeedReader(ours, view, newest(ours, view), catalog_from=catalog_from, wait_ms=20)

    def follow() -> None:
        nonlocal switches
        for _ in range(4):
            piece = reader.step()
            if isinstance(piece, Piece):
                fired.extend((one.key, (one.after or {}).get("revenue")) for one in piece.changes)
            switches += isinstance(piece, Switched)

    for number in range(3):
        old.batch({"tea": number, "cup": number})
        follow()
    before = list(fired)
    assert len(before) == 6
    begun = rebuild(ours, tmp_path)
    new = pipeline_of(ours, begun)
    for number in range(3):
        mark = new.batch({"tea": number, "cup": number})
    follow()
    generations.switch(ours, "revenue", 2, mark.ends)
    follow()
    assert (fired, switches) == (before, 1), "all of it was told before, and nothing is told again"
    new.batch({"tea": 7})
    follow()
    assert fired == [*before, (("tea",), 7)]


@proves("E3", "eo.24", "eo.19")
def test_a_store_shows_the_old_one_until_the_new_one_is_whole_and_forgets_what_is_dropped(
    tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    old = Pipeline(ours, declare_view(ours, "revenue").generations[-1], query_id="old")
    old.batch({"tea": 1, "cup": 2})
    with applying(tidelog_broker.bootstrap, url):
        until(lambda: shown(url) is not None)
        begun = rebuild(ours, tmp_path)
        make_topics(ours, begun.view.generations[-1])
        new = pipeline_of(ours, begun)
        new.batch({"tea": 10})
        old.batch({"tea": 2})
        until(lambda: (shown(url) or ({},))[0] == {"tea": 2, "cup": 2})
        ends = new.batch({"cup": 20}).ends
        generations.switch(ours, "revenue", 2, ends)
        until(lambda: (shown(url) or ({},))[0] == {"tea": 10, "cup": 20})
        assert [one.number for one in generations.drop(ours, "revenue", {1})] == [1]
        assert "revenue.v1" not in topics.names(ours)
        new.batch({"tea": 11})
        until(lambda: (shown(url) or ({},))[0] == {"tea": 11, "cup": 20})


# The run that wrote the old one ---------------------------------------------------------------------------------------


def target_of(graph: Graph, view: View, number: int) -> Target:
    return view_target(graph, graph.node("revenue"), view, view.generation(number), "/checkpoints")


@proves("E3", "eo.14", "eo.26")
def test_a_run_of_the_same_code_goes_on_with_the_new_generation_and_one_of_other_code_stops() -> None:
    graph = shop()
    code = graph.node("revenue").fingerprint
    view = lifecycle.begin(lifecycle.new_view("revenue", app="shop", inputs=["orders"], stores=[]), REVENUE, code, 1)
    target = target_of(graph, view, 1)
    assert moved(graph, target, view, "/checkpoints") is None
    building = lifecycle.begin(view, REVENUE, code, 1)
    assert moved(graph, target, building, "/checkpoints") is None, "the old one is the view until the switch"
    found = moved(graph, target, lifecycle.switch(building, 2, {}), "/checkpoints")
    assert isinstance(found, Target) and found.checkpoint == "/checkpoints/shop/revenue.v2"
    by_others = lifecycle.switch(lifecycle.begin(view, REVENUE, "other", 1), 2, {})
    fault = moved(graph, target, by_others, "/checkpoints")
    assert isinstance(fault, Fault) and fault.final
    assert "start `tidelog run` with the new code" in fault.message


@proves("E3")
def test_a_run_looks_at_the_catalog_and_moves_its_query_or_ends_it(ours: Cluster, tmp_path: Path) -> None:
    graph = shop()
    declare_view(ours, "revenue")
    target = target_of(graph, find_view(ours, "revenue"), 1)
    part = NotingQuery(target)
    said: list[str] = []
    run = Run(
        "shop", [part], ours, lambda event, **_: said.append(event), handover=Handover(ours, graph, "/checkpoints")
    )

    def turn() -> int:
        run._due = dict.fromkeys(run._due, 0.0)
        run._follow(1.0)
        run.step(("query", "shop.revenue"), 1.0)
        return len(part.calls)

    turn()
    assert part.calls == ["start revenue.v1"]
    begun = rebuild(ours, tmp_path, graph)
    turn()
    generations.switch(ours, "revenue", begun.target.generation, {})
    until(lambda: turn() > 1)  # a record that is committed can be read a moment later
    assert part.calls == ["start revenue.v1", "stop revenue.v1", "start revenue.v2"]
    other = rebuild(ours, tmp_path, shop("amount > 2"))
    generations.switch(ours, "revenue", other.target.generation, {})
    until(lambda: turn() > 3)
    turn()
    assert part.calls[3:] == ["stop revenue.v2"]
    assert run.watches["query", "shop.revenue"].state == "failed"
    assert said.count("failed") == 1, "it is told once"
    send_command(ours, "query", "shop.revenue", "resume")
    run.listen(2.0)
    run._follow(2.0)
    run.step(("query", "shop.revenue"), 2.0)
    assert part.calls[4:] == [], "as a rebuild ends that had told it to pause: the old one is not started again"
