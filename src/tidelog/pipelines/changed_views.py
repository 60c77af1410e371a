"""A run in which some outputs have changed: those are failed from the beginning, with what mends them; the others run.

- A view whose declaration or code is not what its live generation was built from is not written; nor is a derived
  topic, unless its new code is to go on from here (`placing_topics.py`). A view's appliers run, so that its store goes
  on serving, and follows the rebuild; when that has switched, by the same code, the run's query goes on with it
  (`handover.py`).
- What reads such an output is not run either: its function is of the new columns, and what it would read has the old
  ones. Nothing of it is placed: one that is new would stand in the catalog as a reader, in the way of the rebuild.
- What has read another generation of an output than the one that is live is not run: it is rebuilt after that
  (`view_readers.py`).
- Where nothing is left to run, the first reason ends the run, as any other mistake does at the start.
- What the app's file and the catalog tell of this is told before Spark is started (`foreseeing.py`); what rests on
  columns when it has planned them (`prepare_run`). What was foreseen is looked at again then: it may have changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.client.cluster import Cluster
from tidelog.control.catalog import Catalog, View, read_catalog
from tidelog.control.derived import Derived
from tidelog.control.marks import read_mark
from tidelog.errors import ViewChanged
from tidelog.pipelines.analysing import frames_of
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.inputs import Reader
from tidelog.pipelines.placing import Target, topic_target, view_target
from tidelog.pipelines.running import Settings, placed
from tidelog.pipelines.view_readers import WITH_READERS, command_of, file_of, left_behind, reads_rebuilt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE = "--app FILE"  # as errors have it that do not know the file


def prepare_run(cluster: Cluster, reader: Reader, settings: Settings) -> list[Target]:
    """Every output that can run placed, in the order in which they read each other; `changed` says which cannot."""
    frames = frames_of(reader, read_catalog(cluster))
    targets: list[Target] = []
    for node in reader.graph.nodes:
        targets.append(_target(cluster, reader, node, settings, targets, frames.get(node.name)))
    check_any_left(targets)
    return targets


def check_any_left(targets: list[Target]) -> None:
    if all(one.changed is not None for one in targets):
        raise ViewChanged(targets[0].changed)


def _target(
    cluster: Cluster,
    reader: Reader,
    node: Node,
    settings: Settings,
    before: list[Target],
    looked_at: DataFrame | None = None,
) -> Target:
    graph, checkpoints = reader.graph, settings.checkpoints
    if (read := waits_for(node, before)) is not None:
        found = entry_of(read_catalog(cluster), graph, node)
        told = why_it_waits(node, read, found, has_changed=waits_for(read, before) is None)
        return replace(as_catalogued(graph, node, found, checkpoints), changed=told)
    try:
        made = placed(cluster, reader, node, settings, looked_at)
    except ViewChanged as error:
        return _as_it_is(cluster, graph, node, checkpoints, error)
    return replace(made, changed=why_left_behind(cluster, made))


def why_left_behind(cluster: Cluster, made: Target) -> str | None:
    known = read_catalog(cluster)
    return left_behind(made, read_mark(cluster, made.sink), known) if reads_rebuilt(made, known) else None


# Who waits for a changed view -----------------------------------------------------------------------------------------


def waits_for(node: Node, before: list[Target]) -> Node | None:
    """What it reads and is not run: that has changed, or waits itself."""
    return next((one.node for one in before if one.changed is not None and one.node.output in node.reads), None)


def entry_of(known: Catalog, graph: Graph, node: Node) -> View | Derived | None:
    found = known.get((node.output.kind, node.name))
    return found if found is not None and found.app == graph.app.name else None


def as_catalogued(graph: Graph, node: Node, found: View | Derived | None, checkpoints: str) -> Target:
    """As it was placed before. A view that never was has no generation yet, and no store."""
    if isinstance(found, View) and found.current is not None:
        return view_target(graph, node, found, found.current, checkpoints)
    return topic_target(graph, node, checkpoints, found.current if isinstance(found, Derived) else None)


def why_it_waits(node: Node, read: Node, found: View | Derived | None, *, has_changed: bool) -> str:
    one, why = read.output, "has changed and" if has_changed else "waits itself and"
    said = f"{node.output.place}: {node.output.kind} {node.name} reads {one.kind} {one.name}, which {why} is not run"
    if not has_changed:
        return f"{said}; mend that first, then start this run again"
    if found is None or one.name not in found.inputs:
        return f"{said}; rebuild {one.name}, then start this run again"
    return f"{said}; `{command_of(read)} {WITH_READERS}` rebuilds both"


# The changed output ---------------------------------------------------------------------------------------------------


def _as_it_is(cluster: Cluster, graph: Graph, node: Node, checkpoints: str, error: ViewChanged) -> Target:
    found = entry_of(read_catalog(cluster), graph, node)
    if found is None or found.current is None:
        raise error
    return replace(as_catalogued(graph, node, found, checkpoints), changed=with_command(node, error))


def with_command(node: Node, error: ViewChanged) -> str:
    """The error, with commands as they would be written here."""
    told = str(error).replace(f"tidelog rebuild {node.name} {FILE}", command_of(node))
    return told.replace("tidelog run --go-on", f"tidelog run {file_of(node)} --go-on")
