"""`tidelog rebuild`: a view from the start of its inputs, beside the old one, then the switch.

    building    its query runs into the new generation's topic, under supervision; the old one goes on as it was
    caught up   the new one's last mark has read what the old one's last mark had when it was looked at
    switching   a run that writes the old one is told to pause, and the new one reads what that had read; then its own
                query is stopped after its micro-batch, and the catalog's record says "live", at that mark's ends
    showing     appliers show it, each in the transaction that reaches these ends; a store that nobody applies to gets
                an applier of this process for so long
    done        whoever runs the app goes on with the new generation and its checkpoint (`handover.py`)

Rules:
- The old one is at rest when the switch is made, and the new one has read no less: rows never go back to what they
  were, and a feed that goes on from "live" tells nothing again. What was built before is told to nobody.
- "At rest" is what the run tells; one that does not pause in time ends the rebuild. The old sink's transactional id is
  taken before its last mark is read, and no mark may have come when the new one has caught up, and again right before
  the catalog's record is written: else somebody is at work who tells nobody, a run that has just been started say, and
  the rebuild ends too. Of what comes within that one write, rows may go back for as long as the next one takes.
- The query is stopped before the switch, so that whoever goes on with its checkpoint never meets another driver.
- At every point but the switch the old generation is the view. Whoever ends this process, and however, loses nothing:
  the same command goes on with what is being built, and first clears up: a run that was left paused by a kill in the
  middle of a switch goes on (by `tidelog resume APP.VIEW`, too), status of who is no more is taken away.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tidelog.client.cluster import Cluster
from tidelog.clock import rest
from tidelog.control import status
from tidelog.control.catalog import Catalog, Editor, View, find_view, read_catalog
from tidelog.control.marks import Ends
from tidelog.control.urls import redacted
from tidelog.errors import UsageError
from tidelog.pipelines import generations
from tidelog.pipelines.app import VIEW
from tidelog.pipelines.appliers import appliers_of
from tidelog.pipelines.background import Background
from tidelog.pipelines.building_aside import LOOK_EVERY_S, Begun, BuildingAside, clear_up, is_kept
from tidelog.pipelines.catching_up import is_applied, is_shown
from tidelog.pipelines.collisions import check_settled
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.placing import (
    Target,
    generations_read,
    partitions_of,
    place_questions,
    stores_of,
    topic_name,
    view_target,
)
from tidelog.pipelines.running import Settings
from tidelog.pipelines.view_readers import check_readers, of_others
from tidelog.pipelines.view_topic import check_result, declaration_of
from tidelog.views.stores.opening import name_of

if TYPE_CHECKING:
    from tidelog.schema.declaration import Declaration


# Beginning ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BegunView(Begun):
    view: View


def begin(
    cluster: Cluster,
    graph: Graph,
    node: Node,
    declared: Declaration,
    settings: Settings,
    *,
    again: bool,
    with_readers: bool = False,
) -> BegunView:
    """The catalog says that a generation is being built; its topics are there."""
    editor = Editor(cluster, node.name)
    known = read_catalog(cluster)
    before = _checked(editor.view(), known, graph, node, with_readers=with_readers)
    assert before.current is not None
    building, partitions = before.building, partitions_of(cluster, graph, node)
    code = node.fingerprint if building is None or not node.is_code_of(building) else building.fingerprint
    kept = building is None or is_kept(cluster, known, view_target(graph, node, before, building, settings.checkpoints))
    way = generations.way_of(before, declared, code, again=again, kept=kept)
    reads = generations_read(known, node)
    after = generations.begun(before, way, declared, node.fingerprint, partitions, code=node.parts, reads=reads)
    built = generations.write_begun(cluster, editor, before, after)
    return BegunView(view_target(graph, node, after, built, settings.checkpoints), way, before.current.sink, after)


def check_begin(known: Catalog, graph: Graph, node: Node, *, again: bool, with_readers: bool) -> None:
    """What the catalog tells of a rebuild before Spark has planned it."""
    found = known.get((VIEW, node.name))
    view = _checked(found if isinstance(found, View) else None, known, graph, node, with_readers=with_readers)
    building = view.building
    if building is not None:
        code = building.fingerprint if node.is_code_of(building) else node.fingerprint
        generations.way_of(view, building.declared, code, again=again, kept=True)


def _checked(view: View | None, known: Catalog, graph: Graph, node: Node, *, with_readers: bool) -> View:
    if view is None or view.current is None:
        raise UsageError(f"view {node.name} is not in the catalog; `tidelog run` declares it, and builds it first")
    if view.app != graph.app.name:
        raise UsageError(f"{node.output.place}: view {node.name!r} belongs to app {view.app}; call it otherwise")
    outputs = [one.name for one in graph.nodes]
    check_readers(known, view, app=graph.app.name, outputs=outputs, rebuilt=with_readers)
    return view


# Running --------------------------------------------------------------------------------------------------------------


class Rebuild(BuildingAside):
    """Of a view."""

    def begin(self, *, again: bool = False, with_readers: bool = False) -> BegunView:
        frame = self._reader.result(self.node)
        check_result(self.node.output, frame)
        check_settled(self.node.output, frame)
        declared = declaration_of(self.node.output, frame.schema)
        self._check_folder()
        if self.node.asked:
            place_questions(self._cluster, self._reader.graph, self.node)
        how = {"again": again, "with_readers": with_readers}
        begun = begin(self._cluster, self._reader.graph, self.node, declared, self._settings, **how)
        clear_up(self._cluster, begun.target.part)
        self._say(begun.way.value, view=self.node.name, generation=begun.target.generation, topic=begun.target.topic)
        return begun

    def switch(self, begun: Begun, ends: Ends) -> View:
        number, inputs = begun.target.generation, [topic_name(one) for one in self.node.reads]
        check = partial(self._check_fenced, begun)
        view = generations.switch(
            self._cluster, self.node.name, number, ends, inputs=inputs, stores=self._stores(), check=check
        )
        self._switched = True
        self._say("switched", view=view.name, generation=begun.target.generation)
        return view

    def _stores(self) -> tuple[str, ...] | None:
        """None: the catalog's stay. A rebuild that is started in another folder than the run would name a file there,
        which nobody applies to once this process has ended.
        """
        output = self.node.output
        if self._settings.store_by_folder and not output.stores:
            return None
        return stores_of(self._reader.graph, output, self._settings.store)

    def show(self, begun: Begun, view: View, patience_s: float) -> list[str]:
        """Waits until the stores show it; those that do not in time are returned."""
        waiting = list(view.stores)
        appliers: Background | None = None
        deadline = time.monotonic() + patience_s
        try:
            while waiting and not self.stopping.is_set() and time.monotonic() < deadline:
                # Asked again and again: a run that was killed has told a moment ago that it applies.
                appliers = appliers or self._appliers(begun.target, view)
                reports = status.read_status(self._cluster)
                waiting = [
                    url for url in waiting if not is_shown(reports, view.name, name_of(url), begun.target.generation)
                ]
                rest(self.stopping, LOOK_EVERY_S)
        finally:
            if appliers is not None:
                appliers.stop()
        return waiting

    def drop_old(self, *, at_once: bool) -> list[int]:
        """Generations that are older than the horizon; all that are old, where that was asked for."""
        view = find_view(self._cluster, self.node.name)
        if at_once:
            gone = generations.drop(self._cluster, view.name, {one.number for one in generations.old_ones(view)})
        else:
            gone = generations.drop_outlived(self._cluster, view, int(time.time() * 1000))
        return [one.number for one in gone]

    def left(self) -> list[str]:
        """Who reads the view in another app: they are stopped there, until that rebuilds them."""
        known = read_catalog(self._cluster)
        view = known.get((VIEW, self.node.name))
        return of_others(known, view, self._reader.graph.app.name) if isinstance(view, View) else []

    def _appliers(self, target: Target, view: View) -> Background | None:
        reports, now_ms = status.read_status(self._cluster), int(time.time() * 1000)
        alone = tuple(url for url in view.stores if not is_applied(reports, view.name, name_of(url), now_ms))
        parts = appliers_of(replace(target, stores=alone), self._settings)
        return Background(f"{target.app}.{target.sink}", parts, self._settings, self._say) if parts else None


def said(stores: Iterable[str]) -> str:
    return ", ".join(map(redacted, stores))
