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

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.client.cluster import Cluster
from tidelog.client.offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from tidelog.client.transactions import Transactions
from tidelog.clock import rest
from tidelog.control import status
from tidelog.control.health import AT_WORK, FAILED, SILENT_MS, age_of, said_silence, told_state
from tidelog.control.marks import Ends, end_of_marks, read_mark, transactional_id_of
from tidelog.control.urls import redacted
from tidelog.errors import PipelineFailed, UsageError
from tidelog.parts.part import APP, Say
from tidelog.pipelines import generations
from tidelog.pipelines.app import VIEW, Input, Output
from tidelog.pipelines.appliers import appliers_of
from tidelog.pipelines.background import Background
from tidelog.pipelines.catching_up import (
    Done,
    Pace,
    Round,
    aim_of,
    is_applied,
    is_close,
    is_reached,
    is_run,
    is_shown,
    other_folder,
    report_of,
)
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.inputs import Reader
from tidelog.pipelines.observed import Observed
from tidelog.pipelines.parts import QUERY, QueryPart
from tidelog.pipelines.placing import (
    Target,
    is_view,
    partitions_of,
    place_questions,
    stores_of,
    topic_name,
    topic_of_view,
    view_target,
)
from tidelog.pipelines.running import Settings
from tidelog.pipelines.view_readers import check_readers, of_others
from tidelog.pipelines.view_topic import check_result, declaration_of
from tidelog.views.catalog import Editor, View, find_view, read_catalog
from tidelog.views.stores.opening import name_of

if TYPE_CHECKING:
    from tidelog.pipelines.generations import Way
    from tidelog.views.declaration import Declaration

LOOK_EVERY_S = 0.2
PAUSED_WITHIN_S = 60.0  # a micro-batch may take as long
SEEN_WITHIN_S = 10.0
FOR_A_SWITCH: Mapping[str, Any] = {"by": "rebuild"}  # in a pause: not somebody's who has reasons of their own


# Beginning ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begun:
    view: View
    target: Target
    way: Way
    old: str  # the sink of the generation that is live


def begin(
    cluster: Cluster,
    graph: Graph,
    node: Node,
    declared: Declaration,
    settings: Settings,
    *,
    again: bool,
    with_readers: bool = False,
) -> Begun:
    """The catalog says that a generation is being built; its topics are there."""
    editor = Editor(cluster, node.name)
    before = editor.view()
    if before is None or before.current is None:
        raise UsageError(f"view {node.name} is not in the catalog; `tidelog run` declares it, and builds it first")
    if before.app != graph.app.name:
        raise UsageError(f"{node.output.place}: view {node.name!r} belongs to app {before.app}; call it otherwise")
    outputs = [one.name for one in graph.nodes]
    check_readers(read_catalog(cluster), before, app=graph.app.name, outputs=outputs, rebuilt=with_readers)
    code = node.fingerprint_as("" if before.building is None else before.building.fingerprint)
    way = generations.way_of(before, declared, code, again=again, kept=_is_kept(cluster, graph, node, before, settings))
    after = generations.begun(before, way, declared, node.fingerprint, partitions_of(cluster, graph, node))
    built = generations.write_begun(cluster, editor, before, after)
    return Begun(after, view_target(graph, node, after, built, settings.checkpoints), way, before.current.sink)


def _is_kept(cluster: Cluster, graph: Graph, node: Node, view: View, settings: Settings) -> bool:
    from tidelog.spark.query_log import query_id_of

    if view.building is None:
        return True
    mark = read_mark(cluster, view.building.sink)
    checkpoint = view_target(graph, node, view, view.building, settings.checkpoints).checkpoint
    try:
        return mark is None or query_id_of(checkpoint) == mark.query_id
    except UsageError:  # there is none
        return False


def clear_up(cluster: Cluster, part: str) -> None:
    """What a rebuild that was killed has left: a run's query that is paused, and parts that are gone in the status."""
    for one in status.Commands(cluster).first():
        if one[:3] == (QUERY, part, status.PAUSE) and one.arguments == FOR_A_SWITCH:
            status.send_command(cluster, QUERY, part, status.RESUME)
    for told in status.read_status(cluster):
        of, _, number = told.name.rpartition(".v")
        if told.kind in (APP, QUERY) and of == part and number.isdigit():
            status.take_away(cluster, told.kind, told.name)


# Running --------------------------------------------------------------------------------------------------------------


class Rebuild:
    """`tell` gets how far it is. `stopping` ends it where it is, to be gone on with."""

    def __init__(
        self,
        cluster: Cluster,
        reader: Reader,
        node: Node,
        settings: Settings,
        *,
        say: Say,
        tell: Callable[[Done], object],
        stopping: threading.Event | None = None,
    ) -> None:
        self.node = node
        self.stopping = stopping or threading.Event()
        self._cluster = cluster
        self._reader = reader
        self._settings = settings
        self._say = say
        self._tell = tell
        self._paused = self._switched = False
        self._old_end: int | None = None  # of the old one's marks, once nobody writes them any more

    def begin(self, *, again: bool = False, with_readers: bool = False) -> Begun:
        frame = self._reader.result(self.node)
        check_result(self.node.output, frame)
        declared = declaration_of(self.node.output, frame.schema)
        self._check_folder()
        if self.node.asked:
            place_questions(self._cluster, self._reader.graph, self.node)
        how = {"again": again, "with_readers": with_readers}
        begun = begin(self._cluster, self._reader.graph, self.node, declared, self._settings, **how)
        clear_up(self._cluster, begun.target.part)
        self._say(begun.way.value, view=self.node.name, generation=begun.target.generation, topic=begun.target.topic)
        return begun

    def _check_folder(self) -> None:
        """A run that goes on with the new generation looks for its checkpoint beside those that it has itself."""
        app, code = self._reader.graph.app.name, self.node.fingerprint
        ours, now_ms = f"{self._settings.checkpoints}/{app}", int(time.time() * 1000)
        reports = status.read_status(self._cluster)
        theirs = other_folder(reports, f"{app}.{self.node.name}", code, ours, now_ms)
        if theirs is not None:
            raise UsageError(
                f"the run of app {app} has its checkpoints in {theirs}, and this would leave one in {ours}, where the"
                f" run would not find it; say --checkpoints {theirs.removesuffix(f'/{app}')}"
            )

    def build(self, begun: Begun) -> Ends | None:
        """Runs the query until it has caught up, and stops it. Ends to switch at; None where it was told to stop."""
        target = replace(begun.target, answers=False)  # questions are for the one that is live
        observed = Observed(target.topic)
        with observed.declared():
            frame = replace(self._reader, sink=target.sink).result(self.node)  # by this thread's cluster
        part = QueryPart(target, lambda _: frame, self._settings.options, self._settings.trigger, observed)
        part.name = f"{begun.target.app}.{begun.target.sink}"
        background = Background(part.name, [part], self._settings, self._say)
        try:
            caught_up = self._catch_up(begun, background)
            if caught_up:
                self._pause(begun)
                self._fence(begun)
                caught_up = self._catch_up(begun, background)
        finally:
            background.stop()
        if not caught_up:
            return None
        self._check_fenced(begun)
        mark = read_mark(self._cluster, begun.target.sink)
        return {} if mark is None else {at: end for at, end in mark.ends.items() if at.topic == begun.target.topic}

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

    def is_run(self) -> bool:
        """Whether somebody runs the app, as far as status tells."""
        now_ms = int(time.time() * 1000)
        return is_run(status.read_status(self._cluster), self._reader.graph.app.name, now_ms)

    def left(self) -> list[str]:
        """Who reads the view in another app: they are stopped there, until that rebuilds them."""
        known = read_catalog(self._cluster)
        view = known.get((VIEW, self.node.name))
        return of_others(known, view, self._reader.graph.app.name) if isinstance(view, View) else []

    # The run that writes the old one

    def _pause(self, begun: Begun) -> None:
        """It is at rest then, where it tells so. One that goes silent after it was told is not: it may be ending."""
        if self._state(begun) not in AT_WORK:
            return
        status.send_command(self._cluster, QUERY, begun.target.part, status.PAUSE, **FOR_A_SWITCH)
        self._paused = True
        deadline = time.monotonic() + PAUSED_WITHIN_S
        while self._state(begun, however_old=True) in AT_WORK and not self.stopping.is_set():
            if time.monotonic() > deadline:
                raise PipelineFailed(
                    f"query {begun.target.part} was asked to pause and has not paused for {PAUSED_WITHIN_S:g} s; view"
                    f" {self.node.name} is as it was; the same command goes on with generation"
                    f" {begun.target.generation} when that micro-batch is over, or its run has ended"
                    f"{self._ahead(begun)}"
                )
            rest(self.stopping, LOOK_EVERY_S)

    def _fence(self, begun: Begun) -> None:
        """What whoever still writes the old one has open, and tells nobody of, is ended: its last mark stands then."""
        if not self.stopping.is_set():
            Transactions(self._cluster, transactional_id_of(begun.old)).start()
            self._old_end = end_of_marks(self._cluster, begun.old)

    def _check_fenced(self, begun: Begun) -> None:
        """A query that finds its id taken takes it back, and writes on."""
        if self._old_end is not None and end_of_marks(self._cluster, begun.old) != self._old_end:
            raise PipelineFailed(
                f"somebody writes {begun.old} who was not seen, or does not pause; view {self.node.name} is as it was;"
                " end that run, and start this again: it goes on"
            )

    def resume(self, begun: Begun) -> None:
        """Whatever has become of the rebuild. After a switch the run is given the time to see it first."""
        if not self._paused:
            return
        deadline = time.monotonic() + (SEEN_WITHIN_S if self._switched else 0.0)
        while time.monotonic() < deadline and not self.stopping.is_set() and self._is_unseen(begun):
            rest(self.stopping, LOOK_EVERY_S)
        status.send_command(self._cluster, QUERY, begun.target.part, status.RESUME)
        self._paused = False

    def _state(self, begun: Begun, *, however_old: bool = False) -> str | None:
        found = self._report(begun, however_old=however_old)
        return None if found is None else told_state(found)

    def _ahead(self, begun: Begun) -> str:
        """What else to do, of one that has told of itself by another clock, or before this one was set back."""
        found, now_ms = self._report(begun, however_old=True) or {}, int(time.time() * 1000)
        if age_of(found, now_ms) > -SILENT_MS:
            return ""
        silence = said_silence(found, now_ms)
        return f"; it {silence}: if its run was killed, start that again, so that it reports its status"

    def _is_unseen(self, begun: Begun) -> bool:
        """Whether the run has yet to find out that there is another generation."""
        found = self._report(begun)
        return found is not None and told_state(found) != FAILED and found.get("generation") != begun.target.generation

    def _report(self, begun: Begun, *, however_old: bool = False) -> Mapping[str, Any] | None:
        reports, now_ms = status.read_status(self._cluster), None if however_old else int(time.time() * 1000)
        return report_of(reports, QUERY, begun.target.part, now_ms)

    # How far

    def _catch_up(self, begun: Begun, background: Background) -> bool:
        topics = [self._topic(one) for one in self.node.reads]
        pace = Pace(_offsets(self._cluster, topics, EARLIEST))
        ends = _offsets(self._cluster, topics, LATEST)
        now = self._round(begun, ends, topics)
        while not self.stopping.is_set():
            new = read_mark(self._cluster, begun.target.sink)
            self._tell(pace.note(new, now.aim.offsets, time.monotonic()))
            if is_reached(now.aim, new):
                if is_close(now, new):
                    return True
                now = self._round(begun, ends, topics)
                continue
            background.check()
            rest(self.stopping, LOOK_EVERY_S)
        return False

    def _round(self, begun: Begun, ends: Ends, topics: Collection[str]) -> Round:
        new = read_mark(self._cluster, begun.target.sink)
        old = read_mark(self._cluster, begun.old, self._old_end)
        aim = aim_of(old, ends, topics, _offsets(self._cluster, topics, LATEST))
        return Round(aim, -1 if new is None else new.batch_id)

    def _topic(self, read: Input | Output) -> str:
        if is_view(read):
            return topic_of_view(self._cluster, topic_name(read))
        return topic_name(read)

    def _appliers(self, target: Target, view: View) -> Background | None:
        reports, now_ms = status.read_status(self._cluster), int(time.time() * 1000)
        alone = tuple(url for url in view.stores if not is_applied(reports, view.name, name_of(url), now_ms))
        parts = appliers_of(replace(target, stores=alone), self._settings)
        return Background(f"{target.app}.{target.sink}", parts, self._settings, self._say) if parts else None


def _offsets(cluster: Cluster, topics: Collection[str], when: int) -> Ends:
    cluster.retry(lambda: cluster.ask_metadata(topics))  # one may have more partitions than before, or others
    places = [at for topic in topics for at in cluster.partitions(topic)]
    found = list_offsets(cluster, dict.fromkeys(places, when), isolation=READ_COMMITTED)
    return {at: one.offset for at, one in found.items()}


def said(stores: Iterable[str]) -> str:
    return ", ".join(map(redacted, stores))
