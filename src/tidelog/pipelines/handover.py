"""What a run does when a view that it writes is switched to another generation, by a rebuild elsewhere.

    same code      its query of the old generation is stopped, and goes on as the new one's, from the checkpoint that
                   the rebuild left: `<checkpoints>/<app>/V.v<n>`, so both have been given one folder
    other code     its query is stopped for good: what this run computes is not what the view is any more
    who reads it   is stopped for good, until it is rebuilt itself: what it reads is written no more (`view_readers.py`)

A query of a generation that is not live writes what nobody reads. The rebuild has stopped its own query before the
switch, so the new generation has one driver at any time; if it had two, the sink's transactional id would fence one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.offsets import LATEST, READ_COMMITTED, list_offsets
from tidelog.control.marks import read_mark
from tidelog.errors import ViewChanged
from tidelog.parts.part import Fault
from tidelog.pipelines.app import VIEW
from tidelog.pipelines.faults import fault_of
from tidelog.pipelines.graph import Graph
from tidelog.pipelines.placing import Target, view_target
from tidelog.pipelines.view_readers import left_behind, reads_rebuilt
from tidelog.views.catalog import CATALOG, Catalog, View, read_catalog


class Moved(NamedTuple):
    """A part is to go on as this, or has failed for good."""

    part: str
    to: Target | Fault


def moved(graph: Graph, target: Target, view: View, checkpoints: str) -> Target | Fault | None:
    """None where it is the live generation that the target is of."""
    current = view.current
    if current is None or current.number <= target.generation:
        return None
    if current.fingerprint == target.node.fingerprint_as(current.fingerprint):
        return view_target(graph, target.node, view, current, checkpoints)
    return Fault(
        f"view {view.name} is generation {current.number} by now, which other code has built, and this run has the code"
        f" of generation {target.generation}; start `tidelog run` with the new code",
        final=True,
    )


class Handover:
    """Looks at the catalog; it is read when something was written there, and every target is compared each time."""

    def __init__(self, cluster: Cluster, graph: Graph, checkpoints: str) -> None:
        self._cluster = cluster
        self._graph = graph
        self._checkpoints = checkpoints
        self._end = -1
        self._known: Catalog = {}

    def look(self, targets: Iterable[Target]) -> Iterator[Moved]:
        end = list_offsets(self._cluster, {CATALOG: LATEST}, isolation=READ_COMMITTED)[CATALOG].offset
        if end != self._end:
            self._known, self._end = read_catalog(self._cluster), end
        for target in targets:
            view = self._known.get((VIEW, target.node.name)) if target.node.output.kind == VIEW else None
            found = moved(self._graph, target, view, self._checkpoints) if isinstance(view, View) else None
            found = found or self._left_behind(target)
            if found is not None:
                yield Moved(target.part, found)

    def _left_behind(self, target: Target) -> Fault | None:
        if not reads_rebuilt(target, self._known):
            return None
        told = left_behind(target, read_mark(self._cluster, target.sink), self._known)
        # As a start would tell it that finds the same: it is told once.
        return None if told is None else fault_of(ViewChanged(told), told, target.node.output.place.file)
