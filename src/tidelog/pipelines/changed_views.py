"""A run in which some views have changed: those are failed from the beginning, with what mends them; the others run.

- A view whose declaration or code is not what its live generation was built from is not written. Its appliers run, so
  that its store goes on serving, and follows the rebuild; when that has switched, by the same code, the run's query
  goes on with it (`handover.py`).
- What reads such a view is not run either: its function is of the new columns, and what it would read has the old ones.
  Nothing of it is placed: one that is new would stand in the catalog as a reader, and so in the way of the rebuild.
- What has read another generation of a view than the one that is live is not run: it is rebuilt after that
  (`view_readers.py`).
- Where nothing is left to run, the first reason ends the run, as any other mistake does at the start.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.client.cluster import Cluster
from tidelog.control.marks import read_mark
from tidelog.errors import ViewChanged
from tidelog.pipelines.app import VIEW
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.inputs import Reader
from tidelog.pipelines.placing import Target, topic_target, view_target
from tidelog.pipelines.running import Settings, placed
from tidelog.pipelines.view_readers import WITH_READERS, command_of, left_behind, reads_rebuilt
from tidelog.views.catalog import Catalog, Derived, View, find_view, read_catalog

FILE = "--app FILE"  # as errors have it that do not know the file


def prepare_run(cluster: Cluster, reader: Reader, settings: Settings) -> list[Target]:
    """Every output that can run placed, in the order in which they read each other; `changed` says which cannot."""
    targets: list[Target] = []
    for node in reader.graph.nodes:
        targets.append(_target(cluster, reader, node, settings, targets))
    if all(one.changed is not None for one in targets):
        raise ViewChanged(targets[0].changed)
    return targets


def _target(cluster: Cluster, reader: Reader, node: Node, settings: Settings, before: list[Target]) -> Target:
    graph, checkpoints = reader.graph, settings.checkpoints
    if (read := _waits_for(node, before)) is not None:
        found = _entry(read_catalog(cluster), graph, node)
        told = _reason(node, read, found, has_changed=_waits_for(read, before) is None)
        return replace(_as_catalogued(graph, node, found, checkpoints), changed=told)
    try:
        made = placed(cluster, reader, node, settings)
    except ViewChanged as error:
        return _as_it_is(cluster, graph, node, checkpoints, error)
    return replace(made, changed=_why_left_behind(cluster, made))


def _why_left_behind(cluster: Cluster, made: Target) -> str | None:
    known = read_catalog(cluster)
    return left_behind(made, read_mark(cluster, made.sink), known) if reads_rebuilt(made, known) else None


# Who waits for a changed view -----------------------------------------------------------------------------------------


def _waits_for(node: Node, before: list[Target]) -> Node | None:
    """What it reads and is not run: that has changed, or waits itself."""
    return next((one.node for one in before if one.changed is not None and one.node.output in node.reads), None)


def _entry(known: Catalog, graph: Graph, node: Node) -> View | Derived | None:
    found = known.get((node.output.kind, node.name))
    return found if found is not None and found.app == graph.app.name else None


def _as_catalogued(graph: Graph, node: Node, found: View | Derived | None, checkpoints: str) -> Target:
    """As it was placed before. A view that never was has no generation yet, and no store."""
    if isinstance(found, View) and found.current is not None:
        return view_target(graph, node, found, found.current, checkpoints)
    return topic_target(graph, node, checkpoints)


def _reason(node: Node, read: Node, found: View | Derived | None, *, has_changed: bool) -> str:
    one, why = read.output, "has changed and" if has_changed else "waits itself and"
    said = f"{node.output.place}: {node.output.kind} {node.name} reads {one.kind} {one.name}, which {why} is not run"
    if not has_changed:
        return f"{said}; mend that first, then start this run again"
    if found is None or one.name not in found.inputs:
        return f"{said}; rebuild {one.name}, then start this run again"
    if node.output.kind == VIEW:
        return f"{said}; `{command_of(read)} {WITH_READERS}` rebuilds both"
    return (
        f"{said}; a view is not rebuilt while a derived topic reads it, which is never built anew: take {node.name} out"
        f" of the app, rebuild {one.name}, and put it back by another name"
    )


# The changed view -----------------------------------------------------------------------------------------------------


def _as_it_is(cluster: Cluster, graph: Graph, node: Node, checkpoints: str, error: ViewChanged) -> Target:
    view = find_view(cluster, node.name)
    if view.current is None:
        raise error
    told = str(error).replace(f"tidelog rebuild {node.name} {FILE}", command_of(node))
    return replace(view_target(graph, node, view, view.current, checkpoints), changed=told)
