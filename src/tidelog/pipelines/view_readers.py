"""Who reads a view or a derived topic, and what becomes of them when that is rebuilt. Pure.

A query that reads one reads the topic of one generation. The next one's rows do not continue those: keys may be gone
without a delete, and offsets begin anew. So nobody can follow:

    of this app        is rebuilt after the one that it reads (`chain_of`): from the start of the new generation
    who is left        is stopped, with what mends it (`left_behind`): its last mark tells which topics it has read
    who names a topic  that is an old generation's, as an input of another app may, is stopped, and told the new name

Where a derived topic was rebuilt in place, its topic has the same name: who reads it as a table goes on, and who reads
rows that came again is known by the generation that it was begun with (`reads`).
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from pathlib import Path

from tidelog.control.catalog import Catalog, View
from tidelog.control.derived import FIRST, Derived, is_begun_anew
from tidelog.control.marks import Mark
from tidelog.errors import UsageError
from tidelog.pipelines.app import VIEW, Input, Output
from tidelog.pipelines.graph import Graph, Node
from tidelog.pipelines.placing import Target, derived_read, is_view, topic_name

WITH_READERS = "--with-readers"
IN_PLACE = "--in-place --yes"


# As the catalog has them ----------------------------------------------------------------------------------------------


def readers_of(known: Catalog, view: View | Derived, *, app: str, outputs: Collection[str]) -> list[View | Derived]:
    """Who reads its topics. `outputs` are those that the app has now; what it has no more does not."""
    read = {view.name, *(one.topic for one in view.generations)}
    every = [one for _, one in sorted(known.items(), key=lambda item: item[0])]
    return [
        one
        for one in every
        if read & set(one.inputs) and one.name != view.name and (one.app != app or one.name in outputs)
    ]


def check_readers(known: Catalog, view: View | Derived, *, app: str, outputs: Collection[str], rebuilt: bool) -> None:
    """`rebuilt`: those of this app are rebuilt after it, and those of others will be stopped."""
    found = readers_of(known, view, app=app, outputs=outputs)
    if found and not rebuilt:
        raise UsageError(
            f"{', '.join(_named(one, app) for one in found)} reads {_kind(view)} {view.name}, generation {view.live},"
            f" and could not follow to another; {WITH_READERS} rebuilds what reads it after it"
        )


def _kind(one: View | Derived) -> str:
    return "view" if isinstance(one, View) else "topic"


def _named(one: View | Derived, app: str) -> str:
    named = f"{_kind(one)} {one.name}"
    return named if one.app == app else f"{named} of app {one.app}"


def of_others(known: Catalog, view: View | Derived, app: str) -> list[str]:
    """Readers that another app has, by name."""
    return [_named(one, app) for one in readers_of(known, view, app=app, outputs=())]


# As the app has them --------------------------------------------------------------------------------------------------


def chain_of(known: Catalog, graph: Graph, node: Node) -> list[Node]:
    """The output, and those that read it or each other, in the order in which they are rebuilt. Those that nobody has
    run yet have read nothing, and are left out.
    """
    run = [one for one in graph.nodes if (one.output.kind, one.name) in known]
    members = {node.name: node}
    while more := {one.name: one for one in run if one.name not in members and _read_by(one, members.values())}:
        members |= more
    chain: list[Node] = []
    while left := [one for one in members.values() if one not in chain]:
        free = [one for one in left if not _read_by(one, left)]  # a table that is a view is in no order of the graph's
        chain.append((free or left)[0])
    return chain


def _read_by(node: Node, outputs: Iterable[Node]) -> Node | None:
    """The first of these that it reads."""
    read = {topic_name(one) for one in node.reads if isinstance(one, Output) or is_view(one)}
    return next((one for one in outputs if one.name in read), None)


# A query --------------------------------------------------------------------------------------------------------------


def left_behind(target: Target, mark: Mark | None, known: Catalog) -> str | None:
    """Why it cannot go on with what it has read until now; None if it can."""
    node = target.node
    plain = {one.topic for one in node.reads if isinstance(one, Input) and not is_view(one)}
    topics = set() if mark is None else {at.topic for at in mark.sources.offsets} - plain
    for read in node.reads:
        entry = derived_read(known, read)
        told = None if entry is None else _why_not_its(target, read, entry, topics, is_new=mark is None)
        if told is not None:
            return told
    for read in filter(is_view, node.reads):
        view = known.get((VIEW, topic_name(read)))
        if not isinstance(view, View) or view.current is None:
            continue
        old = sorted(topic for topic in topics - {view.current.topic} if _is_generation(topic, view.name))
        if old:
            return (
                f"{node.output.place}: {node.output.kind} {node.name} has read {old[-1]}, and generation {view.live} of"
                f" view {view.name} is live; `{command_of(node)}` builds it from that one"
            )
    return None


def _why_not_its(target: Target, read: Input | Output, entry: Derived, topics: set[str], *, is_new: bool) -> str | None:
    """Of a derived topic that was switched. `topics` are those that were read and are no plain input's."""
    node = target.node
    said, live = (
        f"{node.output.place}: {node.output.kind} {node.name}",
        f"generation {entry.live} of topic {entry.name}",
    )
    if isinstance(read, Input) and read.topic != entry.topic:
        return (
            f"{said} reads topic {read.topic} by {read.kind} {read.name!r} ({read.place}), which nobody writes any"
            f" more: {live} of app {entry.app} is live, in topic {entry.topic}; declare topic={entry.topic!r}, then"
            f" `{command_of(node)}`"
        )
    names = (one for one in topics - {entry.topic} if one == entry.name or _is_generation(one, entry.name))
    if isinstance(read, Output) and (old := sorted(names)):
        return (
            f"{said} has read {old[-1]}, and {live} is live, in topic {entry.topic}; `{command_of(node)}` builds it"
            " from that one"
        )
    if not is_new and is_begun_anew(entry, target.reads.get(entry.name, FIRST)):
        return (
            f"{said} has read an older generation of topic {entry.topic}, and {live} is live, whose rows came again"
            f" behind those; `{command_of(node)}` builds it from these"
        )
    return None


def reads_rebuilt(target: Target, known: Catalog) -> bool:
    """Whether it reads what has ever been switched: only then can it be left behind."""
    views = [known.get((VIEW, topic_name(read))) for read in target.node.reads if is_view(read)]
    entries = [*views, *(derived_read(known, read) for read in target.node.reads)]
    return any(one is not None and (one.live or 0) > 1 for one in entries)


def _is_generation(topic: str, view: str) -> bool:
    name, _, number = topic.rpartition(".v")
    return name == view and number.isdigit()


def command_of(node: Node) -> str:
    """That rebuilds it, as it would be written here."""
    return f"tidelog rebuild {node.name} --app {file_of(node)}"


def file_of(node: Node) -> str:
    file = Path(node.output.place.file)
    near = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return shlex.quote(str(near))
