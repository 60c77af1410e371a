"""Who reads a view, and what becomes of them when it is rebuilt. Pure.

A query that reads a view reads the topic of one generation. The next one's rows do not continue those: keys may be gone
without a delete, and offsets begin anew. So nobody can follow:

    a view             is rebuilt after the one that it reads (`chain_of`): from the start of the new generation
    a derived topic    has no generations, and is called otherwise
    who is left        is stopped, with what mends it (`left_behind`): its last mark tells which topics it has read
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from pathlib import Path

from tidelog.control.marks import Mark
from tidelog.errors import UsageError
from tidelog.pipelines.app import VIEW, Input
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.placing import Target, is_view, topic_name
from tidelog.views.catalog import Catalog, Derived, View

WITH_READERS = "--with-readers"


# As the catalog has them ----------------------------------------------------------------------------------------------


def readers_of(known: Catalog, view: View, *, app: str, outputs: Collection[str]) -> list[View | Derived]:
    """Who reads a view's topics. `outputs` are those that the app has now; what it has no more does not."""
    read = {view.name, *(one.topic for one in view.generations)}
    every = [one for _, one in sorted(known.items(), key=lambda item: item[0])]
    return [
        one
        for one in every
        if read & set(one.inputs) and one.name != view.name and (one.app != app or one.name in outputs)
    ]


def check_readers(known: Catalog, view: View, *, app: str, outputs: Collection[str], rebuilt: bool) -> None:
    """`rebuilt`: those of this app are rebuilt after it, and those of others will be stopped."""
    found = readers_of(known, view, app=app, outputs=outputs)
    if found and not rebuilt:
        raise UsageError(
            f"{', '.join(_named(one, app) for one in found)} reads view {view.name}, generation {view.live}, and could"
            f" not follow to another; {WITH_READERS} rebuilds views that read it after it"
        )


def _named(one: View | Derived, app: str) -> str:
    kind = "view" if isinstance(one, View) else "topic"
    return f"{kind} {one.name}" if one.app == app else f"{kind} {one.name} of app {one.app}"


def of_others(known: Catalog, view: View, app: str) -> list[str]:
    """Readers that another app has, by name."""
    return [_named(one, app) for one in readers_of(known, view, app=app, outputs=())]


# As the app has them --------------------------------------------------------------------------------------------------


def chain_of(known: Catalog, graph: Graph, node: Node) -> list[Node]:
    """The view, and views that read it or each other, in the order in which they are rebuilt. Those that nobody has run
    yet have read nothing, and are left out.
    """
    run = [one for one in graph.nodes if (one.output.kind, one.name) in known]
    members = {node.name: node}
    while more := {one.name: one for one in run if one.name not in members and _read_by(one, members.values())}:
        _check_views(more.values(), members.values(), node)
        members |= more
    chain: list[Node] = []
    while left := [one for one in members.values() if one not in chain]:
        free = [one for one in left if not _read_by(one, left)]  # a table that is a view is in no order of the graph's
        chain.append((free or left)[0])
    return chain


def _read_by(node: Node, views: Iterable[Node]) -> Node | None:
    """The first of these that it reads."""
    read = {topic_name(one) for one in node.reads if is_view(one)}
    return next((view for view in views if view.name in read), None)


def _check_views(found: Iterable[Node], read: Collection[Node], node: Node) -> None:
    for one in found:
        view = _read_by(one, read)
        if view is not None and one.output.kind != VIEW:
            raise UsageError(
                f"{one.output.place}: topic {one.name} reads view {view.name}, and is never built anew; take it out of"
                f" the app, rebuild {node.name}, and put it back by another name"
            )


# A query --------------------------------------------------------------------------------------------------------------


def left_behind(target: Target, mark: Mark | None, known: Catalog) -> str | None:
    """Why it cannot go on with what it has read until now; None if it can."""
    node = target.node
    plain = {one.topic for one in node.reads if isinstance(one, Input) and not is_view(one)}
    topics = set() if mark is None else {at.topic for at in mark.sources.offsets} - plain
    for read in filter(is_view, node.reads):
        view = known.get((VIEW, topic_name(read)))
        if not isinstance(view, View) or view.current is None:
            continue
        old = sorted(topic for topic in topics - {view.current.topic} if _is_generation(topic, view.name))
        if old:
            anew = f"`{command_of(node)}` builds it from that one" if target.generation else "call it otherwise"
            return (
                f"{node.output.place}: {node.output.kind} {node.name} has read {old[-1]}, and generation {view.live} of"
                f" view {view.name} is live; {anew}"
            )
    return None


def reads_rebuilt(target: Target, known: Catalog) -> bool:
    """Whether it reads a view that has ever been switched: only then can it be left behind."""
    views = (known.get((VIEW, topic_name(read))) for read in target.node.reads if is_view(read))
    return any(isinstance(view, View) and (view.live or 0) > 1 for view in views)


def _is_generation(topic: str, view: str) -> bool:
    name, _, number = topic.rpartition(".v")
    return name == view and number.isdigit()


def command_of(node: Node) -> str:
    """That rebuilds it, as it would be written here."""
    file = Path(node.output.place.file)
    near = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return f"tidelog rebuild {node.name} --app {shlex.quote(str(near))}"
