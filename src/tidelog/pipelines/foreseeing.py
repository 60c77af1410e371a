"""What `tidelog run` will find, as far as the app's file and the catalog tell it: before Spark is started.

    refused     a topic that is only read and is not there; a view or a topic that belongs to another app; a table that
                begins with a view that is not in the catalog
    changed     outputs that will not run, with what mends them: other code than built them, a topic that has lost
                records, one that reads such an output, or another generation than is live

Nothing is made, and nothing is written. What rests on columns is told when Spark has planned them: whether an output
has merely grown (`--grown`), or may go on with other code (`--go-on`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.control.catalog import Catalog, Generation, View, read_catalog
from tidelog.control.derived import Derived
from tidelog.errors import UsageError, ViewChanged
from tidelog.pipelines.app import VIEW
from tidelog.pipelines.changed_views import (
    as_catalogued,
    entry_of,
    waits_for,
    why_it_waits,
    why_left_behind,
    with_command,
)
from tidelog.pipelines.fingerprints import said_difference
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.placing import Target, check_built, check_inputs, is_there, near_name
from tidelog.pipelines.placing_topics import check_as_written, check_topic
from tidelog.pipelines.running import Settings


class Foreseen(NamedTuple):
    """`target` is as it was placed before, or, where it `is_there` not, as it would be."""

    target: Target
    is_there: bool


def foreseen(cluster: Cluster, graph: Graph, settings: Settings) -> list[Foreseen]:
    """Every output, in the order in which they read each other; `changed` says which cannot be run."""
    known = read_catalog(cluster)
    check_inputs_there(cluster, known, graph)
    ahead: list[Foreseen] = []
    for node in graph.nodes:
        found = entry_of(known, graph, node)
        target = as_catalogued(graph, node, found, settings.checkpoints)
        _check_owned(cluster, known, graph, target)
        before = [one.target for one in ahead]
        if (read := waits_for(node, before)) is not None:
            told: str | None = why_it_waits(node, read, found, has_changed=waits_for(read, before) is None)
        else:
            told = None if found is None else _why_not(cluster, node, found, target, settings)
        ahead.append(Foreseen(replace(target, changed=told), found is not None))
    return ahead


def check_inputs_there(cluster: Cluster, known: Catalog, graph: Graph) -> None:
    """What is only read: topics, and views that tables begin with."""
    check_inputs(cluster, graph, graph.nodes)
    _check_seeds(known, graph)


def _check_owned(cluster: Cluster, known: Catalog, graph: Graph, target: Target) -> None:
    node = target.node
    if node.output.kind != VIEW:
        check_topic(graph, node, target, known, is_there=is_there(cluster, target.topic))
        return
    found = known.get((VIEW, node.name))
    if isinstance(found, View) and found.generations and found.app != graph.app.name:
        raise UsageError(f"{node.output.place}: view {node.name!r} belongs to app {found.app}; call it otherwise")


def _check_seeds(known: Catalog, graph: Graph) -> None:
    """Views of others that tables begin with."""
    views = sorted(name for kind, name in known if kind == VIEW)
    for one in graph.inputs:
        own = any(node.name == one.topic for node in graph.nodes)
        if one.start_from is not None and one.topic not in views and not own:
            near = near_name(one.topic, views)
            raise UsageError(
                f"{one.place}: table {one.name!r} begins with view {one.topic!r}, which is not in the catalog"
                f"{'' if near is None else f'; did you mean {near!r}?'}"
            )


def _why_not(cluster: Cluster, node: Node, found: View | Derived, target: Target, settings: Settings) -> str | None:
    try:
        if isinstance(found, Derived):
            check_as_written(cluster, node, found.current, goes_on=node.name in settings.go_on)
        elif found.current is not None:
            _check_as_built(node, found.current, grows=node.name in settings.grown)
            check_built(cluster, node, found.current)
    except ViewChanged as error:
        return with_command(node, error)
    return why_left_behind(cluster, target)


def _check_as_built(node: Node, built: Generation, *, grows: bool) -> None:
    if grows or node.is_code_of(built):
        return
    what = said_difference(built.code, node.parts) or "what computes it has changed"
    raise ViewChanged(
        f"{node.output.place}: view {node.name} is declared otherwise than generation {built.number} was built"
        f" ({what}); `tidelog rebuild {node.name} --app FILE` builds a new one beside it; or, if columns at its end are"
        f" all that is new, and its query keeps no state, start once with --grown {node.name}"
    )
