"""An output built aside, while the old generation is written: until it has caught up, and nobody writes the old one.

    building    its query runs into the new generation's topic, under supervision; the old one goes on as it was
    caught up   the new one's last mark has read what the old one's last mark had when it was looked at
    at rest     a run that writes the old one is told to pause, its transactional id is taken, and the new one reads
                what that had read; then its own query is stopped after its micro-batch

Rules are those of `rebuilding.py`, for views and derived topics alike.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidelog.client.cluster import Cluster
from tidelog.client.offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from tidelog.clock import rest
from tidelog.control import status
from tidelog.control.catalog import Catalog
from tidelog.control.derived import FIRST
from tidelog.control.health import AT_WORK, FAILED, SILENT_MS, age_of, said_silence, told_state
from tidelog.control.marks import Ends, end_of_marks, read_mark, transactional_id_of
from tidelog.control.owner import Owner
from tidelog.errors import PipelineFailed, UsageError
from tidelog.parts.part import APP, Say
from tidelog.pipelines.app import Input, Output
from tidelog.pipelines.background import Background
from tidelog.pipelines.catching_up import (
    Done,
    Pace,
    Round,
    aim_of,
    is_close,
    is_reached,
    is_run,
    other_folder,
    report_of,
)
from tidelog.pipelines.graph import Node
from tidelog.pipelines.inputs import Reader
from tidelog.pipelines.observed import Observed
from tidelog.pipelines.parts import QUERY, QueryPart
from tidelog.pipelines.placing import Target, generations_read, is_view, live_topic, topic_name, topic_of_view
from tidelog.pipelines.running import Settings
from tidelog.pipelines.view_readers import left_behind

if TYPE_CHECKING:
    from tidelog.pipelines.generations import Way

LOOK_EVERY_S = 0.2
PAUSED_WITHIN_S = 60.0  # a micro-batch may take as long
SEEN_WITHIN_S = 10.0
FOR_A_SWITCH: Mapping[str, Any] = {"by": "rebuild"}  # in a pause: not somebody's who has reasons of their own


@dataclass(frozen=True, slots=True)
class Begun:
    target: Target
    way: Way
    old: str  # the sink of the generation that is live


def is_kept(cluster: Cluster, known: Catalog, target: Target) -> bool:
    """Whether what is being built can be gone on with: its checkpoint is that of its last mark, or nothing is marked
    yet, and what it has read is live. The next generation's rows do not continue those of the one before.
    """
    from tidelog.spark.query_log import query_id_of

    mark, live = read_mark(cluster, target.sink), generations_read(known, target.node)
    if any(target.reads.get(name, FIRST) != number for name, number in live.items()):
        return False
    if mark is not None and left_behind(target, mark, known) is not None:
        return False
    try:
        return mark is None or query_id_of(target.checkpoint) == mark.query_id
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


class BuildingAside:
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
        part.name = f"{target.part}.v{target.generation}"
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

    def is_run(self) -> bool:
        """Whether somebody runs the app, as far as status tells."""
        now_ms = int(time.time() * 1000)
        return is_run(status.read_status(self._cluster), self._reader.graph.app.name, now_ms)

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
                    f"query {begun.target.part} was asked to pause and has not paused for {PAUSED_WITHIN_S:g} s;"
                    f" {self.node.output.kind} {self.node.name} is as it was; the same command goes on with generation"
                    f" {begun.target.generation} when that micro-batch is over, or its run has ended"
                    f"{self._ahead(begun)}"
                )
            rest(self.stopping, LOOK_EVERY_S)

    def _fence(self, begun: Begun) -> None:
        """What whoever still writes the old one has open, and tells nobody of, is ended: its last mark stands then."""
        if not self.stopping.is_set():
            Owner(self._cluster, transactional_id_of(begun.old)).begin()
            self._old_end = end_of_marks(self._cluster, begun.old)

    def _check_fenced(self, begun: Begun) -> None:
        """A query that finds its id taken takes it back, and writes on."""
        if self._old_end is not None and end_of_marks(self._cluster, begun.old) != self._old_end:
            raise PipelineFailed(
                f"somebody writes {begun.old} who was not seen, or does not pause; {self.node.output.kind}"
                f" {self.node.name} is as it was; end that run, and start this again: it goes on"
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
        if isinstance(read, Output):
            return live_topic(self._cluster, read)
        return topic_of_view(self._cluster, topic_name(read)) if is_view(read) else topic_name(read)


def _offsets(cluster: Cluster, topics: Collection[str], when: int) -> Ends:
    cluster.retry(lambda: cluster.ask_metadata(topics))  # one may have more partitions than before, or others
    places = [at for topic in topics for at in cluster.partitions(topic)]
    found = list_offsets(cluster, dict.fromkeys(places, when), isolation=READ_COMMITTED)
    return {at: one.offset for at, one in found.items()}
