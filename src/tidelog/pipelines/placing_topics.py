"""Where derived topics go: entered in the catalog, made, and refused where the code that wrote them was another one.

    new         generation 1, by its own name
    as it was   the live generation goes on; one of a version that kept no code takes the code that is there now
    changed     refused, with what has changed in words, and `tidelog rebuild`; or gone on with, where that was asked
                for (`tidelog run --go-on TOPIC`): the catalog keeps the offsets of the change

Rules (docs/decisions/derived_topics_have_generations.md):
- To go on from here is for queries whose state does not rest on what has changed.
- A generation that is being put in place, and is not whole yet, is written by nobody but that rebuild.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.control import catalog, derived, marks
from tidelog.control.catalog import Catalog, find_derived
from tidelog.control.derived import CodeChange, Derived, TopicGeneration
from tidelog.errors import UsageError, ViewChanged
from tidelog.pipelines.app import VIEW, Input
from tidelog.pipelines.fingerprints import said_difference
from tidelog.pipelines.going_on import why_not
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.placing import (
    INTERNAL,
    Target,
    ensure_topic,
    first_of,
    generations_read,
    is_there,
    lost_of,
    partitions_of,
    topic_name,
    topic_target,
    topics_of,
)

COMPACT = {"cleanup.policy": "compact"}


class How(NamedTuple):
    """What Spark's plan tells of a topic, and what the user has said."""

    keyed: bool  # whether rows replace each other by key
    state: str = ""  # what its state rests on (`going_on.py`)
    goes_on: bool = False  # whether other code is to go on from here
    by_batches: bool = False  # it is written by batches, each of which stands for itself


def place_topic(cluster: Cluster, graph: Graph, node: Node, checkpoints: str, how: How) -> Target:
    """The live generation."""
    known = catalog.read_catalog(cluster)
    entry = own_entry(known, graph, node)
    made = code_now(graph, node, known, how)
    current = made if entry is None else entry.current
    target = topic_target(graph, node, checkpoints, current)
    check_topic(graph, node, target, known, is_there=is_there(cluster, target.topic))
    if entry is not None:
        _check_whole(cluster, node, current)
    change = None if entry is None else change_of(cluster, node, current, made, how)
    after = topic_now(graph, node, entry, made, change)
    if after.current.reads != made.reads and marks.read_mark(cluster, current.sink) is None:
        after = derived.refreshed(after, made.reads)  # it has read nothing yet
    ensure_topic(cluster, current.topic, partitions_of(cluster, graph, node), configs_of(node, keyed=how.keyed))
    if after != entry and not _write(cluster, graph, node, entry, after):
        return place_topic(cluster, graph, node, checkpoints, how)
    return topic_target(graph, node, checkpoints, after.current)


def own_entry(known: Catalog, graph: Graph, node: Node) -> Derived | None:
    """None where it is not in the catalog, or was another app's."""
    found = find_derived(known, node.name)
    return found if found is not None and found.app == graph.app.name else None


def code_now(graph: Graph, node: Node, known: Catalog, how: How) -> TopicGeneration:
    """As one that begins now would be."""
    made = replace(first_of(graph, node), keyed=how.keyed, state=how.state, reads=generations_read(known, node))
    return replace(made, fingerprint=node.fingerprint, code=dict(node.parts))


def configs_of(node: Node, *, keyed: bool) -> dict[str, str]:
    return {**(COMPACT if keyed else {}), **node.output.configs}


def change_of(
    cluster: Cluster, node: Node, current: TopicGeneration, made: TopicGeneration, how: How
) -> CodeChange | None:
    """Where other code goes on, if it is other code, and may; refused where it may not."""
    if not current.fingerprint or node.is_code_of(current):
        return None
    why = None if how.by_batches else why_not(current, made)
    if why is not None or not (how.goes_on or how.by_batches):
        raise ViewChanged(f"{node.output.place}: {_said_change(node, current, why)}")
    mark = marks.read_mark(cluster, current.sink)
    ends = {} if mark is None else {at: end for at, end in mark.ends.items() if at.topic == current.topic}
    return CodeChange(ends, current.fingerprint, current.code, int(time.time() * 1000))


def check_as_written(cluster: Cluster, node: Node, current: TopicGeneration, *, goes_on: bool) -> None:
    """What the catalog and the log tell of a topic before Spark has planned it. Whether other code may go on, where it
    is to, rests on the plan.
    """
    _check_whole(cluster, node, current)
    if current.fingerprint and not goes_on and not node.is_code_of(current):
        raise ViewChanged(f"{node.output.place}: {_said_change(node, current, None)}")


def _said_change(node: Node, current: TopicGeneration, cannot: str | None) -> str:
    what = said_difference(current.code, node.parts) or "what computes it has changed"
    name = node.name
    or_else = f"; or `tidelog run --go-on {name}` goes on from here with the new code"
    or_else = or_else if cannot is None else f"; it cannot go on from here: {cannot}"
    return (
        f"topic {name} is declared otherwise than generation {current.number} was written ({what}); `tidelog rebuild"
        f" {name} --app FILE` builds a new one beside it{or_else}"
    )


def topic_now(
    graph: Graph, node: Node, before: Derived | None, made: TopicGeneration, change: CodeChange | None
) -> Derived:
    """The topic's record as this run would have it. Pure."""
    inputs = tuple(topic_name(read) for read in node.reads)
    if before is None:
        return derived.new_topic(node.name, graph.app.name, inputs, made)
    return replace(derived.go_on(before, made, change), inputs=inputs)


def _write(cluster: Cluster, graph: Graph, node: Node, entry: Derived | None, after: Derived) -> bool:
    """By the one editor of the app's topics. False where somebody has written it since it was read, a rebuild say."""
    editor = catalog.topics_editor(cluster, graph.app.name)
    if entry is not None and editor.derived(node.name) != entry:
        return False
    editor.write(after)
    return True


def _check_whole(cluster: Cluster, node: Node, current: TopicGeneration) -> None:
    anew = f"`tidelog rebuild {node.name} --app FILE`"
    if current.aside:
        raise ViewChanged(
            f"{node.output.place}: generation {current.number} of topic {node.name} is being put in place; wait for it,"
            f" or, if that was interrupted, {anew} --in-place ends it"
        )
    if (lost := lost_of(cluster, current.topic, current.sink)) is not None:
        raise ViewChanged(f"{node.output.place}: topic {node.name}: {lost}; {anew} builds a new one beside it")


def check_topic(graph: Graph, node: Node, target: Target, known: Catalog, *, is_there: bool) -> None:
    """That neither the topic nor the sink of a derived topic is another's. Pure."""
    where, app = f"{node.output.place}: topic {node.name!r}", graph.app
    if target.topic.startswith(INTERNAL):
        raise UsageError(f"{where} begins with {INTERNAL}, as Tidelog's own do; call it otherwise")
    if any(isinstance(one, Input) and one.topic == target.topic for one in node.reads):
        raise UsageError(f"{where} is read by its own function, which would never end; write to another one")
    views = {name for kind, name in known if kind == catalog.VIEW}
    views |= {one.name for one in app.outputs.values() if one.kind == VIEW}
    for said in (target.topic, target.sink):
        view, _, number = said.rpartition(".v")
        if view in views and number.isdigit():
            raise UsageError(f"{where}: {said} is the name of a generation of view {view!r}; call it otherwise")
    for other in (one for one in known.values() if isinstance(one, Derived) and one.name != node.name):
        if target.topic in topics_of(other):
            raise UsageError(f"{where} is the name of a generation of topic {other.name!r}; call it otherwise")
    entry = known.get((catalog.TOPIC, node.name))
    if isinstance(entry, Derived) and entry.app != app.name and is_there:
        raise UsageError(f"{where} belongs to app {entry.app}; call it otherwise")
