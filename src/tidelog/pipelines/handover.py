"""What a run does when an output that it writes is switched to another generation, by a rebuild elsewhere.

    same code      its query of the old generation is stopped, and goes on as the new one's, from the checkpoint that
                   the rebuild left: `<checkpoints>/<app>/V.v<n>`, so both have been given one folder
    other code     its query is stopped for good: what this run computes is not what the output is any more
    who reads it   is stopped for good, until it is rebuilt itself: what it reads is written no more (`view_readers.py`)
    in place       while a derived topic's new generation is put into its topic, one that is paused for that waits; one
                   that is not is stopped for good, with the command that ends it

A query of a generation that is not live writes what nobody reads. The rebuild has stopped its own query before the
switch, so the new generation has one driver at any time; if it had two, the sink's transactional id would fence one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.offsets import LATEST, READ_COMMITTED, list_offsets
from tidelog.control.catalog import CATALOG, Catalog, Generation, View, read_catalog
from tidelog.control.derived import Derived, TopicGeneration
from tidelog.control.marks import read_mark
from tidelog.errors import ViewChanged
from tidelog.parts.part import Fault
from tidelog.pipelines.faults import fault_of
from tidelog.pipelines.graph import Graph
from tidelog.pipelines.placing import Target, topic_target, view_target
from tidelog.pipelines.view_readers import IN_PLACE, command_of, left_behind, reads_rebuilt


class Moved(NamedTuple):
    """A part is to go on as this, or has failed for good."""

    part: str
    to: Target | Fault
    waits: bool = False  # one that is paused stays so: it is not over yet


def moved(graph: Graph, target: Target, entry: View | Derived, checkpoints: str) -> Target | Fault | None:
    """None where it is the live generation that the target is of."""
    node, current = target.node, entry.current
    if current is None or current.number <= target.generation:
        return None
    if isinstance(current, TopicGeneration) and current.aside:
        return Fault(
            f"generation {current.number} of topic {entry.name} is not whole: a rebuild in place was interrupted;"
            f" `{command_of(node)} {IN_PLACE}` ends it",
            final=True,
        )
    if node.is_code_of(current):
        if isinstance(entry, View) and isinstance(current, Generation):
            return view_target(graph, node, entry, current, checkpoints)
        assert isinstance(current, TopicGeneration)
        return topic_target(graph, node, checkpoints, current)
    return Fault(
        f"{node.output.kind} {entry.name} is generation {current.number} by now, which other code has built, and this"
        f" run has the code of generation {target.generation}; start `tidelog run` with the new code",
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
            entry = self._known.get((target.node.output.kind, target.node.name))
            found = None if entry is None else moved(self._graph, target, entry, self._checkpoints)
            waits = isinstance(found, Fault) and isinstance(entry, Derived) and bool(entry.current.aside)
            found = found or self._left_behind(target)
            if found is not None:
                yield Moved(target.part, found, waits)

    def _left_behind(self, target: Target) -> Fault | None:
        if not reads_rebuilt(target, self._known):
            return None
        told = left_behind(target, read_mark(self._cluster, target.sink), self._known)
        # As a start would tell it that finds the same: it is told once.
        return None if told is None else fault_of(ViewChanged(told), told, target.node.output.place.file)
