"""A run in which some views have changed: those are failed from the beginning, with what mends them; the others run.

- A view whose declaration or code is not what its live generation was built from is not written. Its appliers run, so
  that its store goes on serving, and follows the rebuild; when that has switched, by the same code, the run's query
  goes on with it (`handover.py`).
- What reads such a view is not run either: its function is of the new columns, and what it would read has the old ones.
- Where nothing is left to run, the first reason ends the run, as any other mistake does at the start.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from tidelog.client.cluster import Cluster
from tidelog.errors import ViewChanged
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.inputs import Reader
from tidelog.pipelines.placing import Target, view_target
from tidelog.pipelines.running import Settings, placed
from tidelog.views.catalog import find_view

FILE = "--app FILE"  # as errors have it that do not know the file


def prepare_run(cluster: Cluster, reader: Reader, settings: Settings) -> list[Target]:
    """Every output placed, in the order in which they read each other; `changed` says which of them cannot run."""
    targets: list[Target] = []
    for node in reader.graph.nodes:
        targets.append(_target(cluster, reader, node, settings, targets))
    if all(one.changed is not None for one in targets):
        raise ViewChanged(targets[0].changed)
    return targets


def _target(cluster: Cluster, reader: Reader, node: Node, settings: Settings, before: list[Target]) -> Target:
    try:
        target = placed(cluster, reader, node, settings)
    except ViewChanged as error:
        return _as_it_is(cluster, reader.graph, node, settings.checkpoints, error)
    return replace(target, changed=_waits_for(node, before))


def _waits_for(node: Node, before: list[Target]) -> str | None:
    for one in before:
        if one.changed is not None and one.node.output in node.reads:
            output = node.output
            return (
                f"{output.place}: {output.kind} {node.name} reads {one.node.output.kind} {one.node.name}, which has"
                f" changed and is not run; a view is not rebuilt while another reads it: take {node.name} out of the"
                f" app, rebuild {one.node.name}, and put it back"
            )
    return None


def _as_it_is(cluster: Cluster, graph: Graph, node: Node, checkpoints: str, error: ViewChanged) -> Target:
    view = find_view(cluster, node.name)
    if view.current is None:
        raise error
    told = str(error).replace(f"tidelog rebuild {node.name} {FILE}", _command(node))
    return replace(view_target(graph, node, view, view.current, checkpoints), changed=told)


def _command(node: Node) -> str:
    file = Path(node.output.place.file)
    near = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return f"tidelog rebuild {node.name} --app {shlex.quote(str(near))}"
