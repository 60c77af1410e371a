"""What depends on what in an app: in which order it runs, what would go round in a circle, and pictures of it. Pure.

topic  orders              stream: read by big_orders and revenue
node   big_orders, view .. one query each; it reads inputs and other outputs by their topics
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Protocol

from tidelog.control.urls import redacted
from tidelog.errors import UsageError
from tidelog.pipelines.app import QUESTIONS, VIEW, App, Input, Output, check_sql, parameter
from tidelog.pipelines.fingerprints import code_of
from tidelog.pipelines.input_columns import check_input
from tidelog.pipelines.sql_query import SqlQuery

NO_NOTES: Mapping[str, Sequence[str]] = {}


class Built(Protocol):
    """What the catalog keeps of the code that has built something."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def code(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class Node:
    """One query."""

    output: Output
    reads: tuple[Input | Output, ...]  # in the order of the function's parameters, questions left out
    asked: bool = False  # it takes questions
    fingerprint: str = ""  # of the code that this process runs
    older: frozenset[str] = frozenset()  # what older versions called the same
    parts: Mapping[str, str] = field(default_factory=dict)  # a digest of each part of that code

    def is_code_of(self, built: Built) -> bool:
        """Whether this code is what built it, maybe by an older version: also where rows may come later now."""
        known = {self.fingerprint, *self.older}
        return built.fingerprint in known or (bool(built.code) and built.code == self.parts)

    @property
    def name(self) -> str:
        return self.output.name


@dataclass(frozen=True, slots=True)
class Graph:
    app: App
    nodes: tuple[Node, ...]  # what is read stands before who reads it

    def node(self, name: str) -> Node:
        for one in self.nodes:
            if name in (one.name, parameter(one.name)):
                return one
        raise UsageError(f"app {self.app.name} has no output {name!r}; {_near(name, [n.name for n in self.nodes])}")

    def only(self, names: Sequence[str]) -> Graph:
        """These alone: what they read is taken to be written by another run."""
        wanted = {self.node(name).name for name in names}
        return Graph(self.app, tuple(one for one in self.nodes if one.name in wanted)) if names else self

    @property
    def inputs(self) -> list[Input]:
        """Those that are read, each once."""
        read = {one.name: one for node in self.nodes for one in node.reads if isinstance(one, Input)}
        return list(read.values())

    @property
    def all(self) -> list[Input | Output]:
        return [*self.inputs, *(node.output for node in self.nodes)]

    def readers(self, output: Output) -> list[Node]:
        return [one for one in self.nodes if output in one.reads]


def graph_of(app: App) -> Graph:
    if not app.outputs:
        raise UsageError(f"{app.place}: app {app.name} has neither views nor topics; declare one by @app.view(...)")
    for one in app.inputs.values():
        check_input(one)
    nodes = {name: _node(app, output) for name, output in app.outputs.items()}
    return Graph(app, tuple(_ordered(nodes)))


def _node(app: App, output: Output) -> Node:
    """The fingerprint is taken once, when the file has just been loaded: it is of the file's text, and one that is
    edited while its app runs would be taken for the code that runs.
    """
    reads = _reads(app, output)
    check_sql(output, reads)
    if output.name not in app.fingerprints:
        app.fingerprints[output.name] = code_of(output, list(reads))
    return Node(output, reads, _is_asked(app, output), *app.fingerprints[output.name])


def _is_asked(app: App, output: Output) -> bool:
    declared = {**app.inputs, **app.outputs}
    return not isinstance(output.function, SqlQuery) and QUESTIONS in output.parameters and QUESTIONS not in declared


def _reads(app: App, output: Output) -> tuple[Input | Output, ...]:
    known: dict[str, Input | Output] = {**app.inputs, **app.outputs}
    query = output.function if isinstance(output.function, SqlQuery) else None
    names = [name for name in output.parameters if name != QUESTIONS or name in known or query is not None]
    for name in names:
        if name not in known:
            place = output.place if query is None else query.place_of(name)
            raise UsageError(
                f"{place}: {output.kind} {output.name!r} reads {name!r}, which is not declared;"
                f" {_near(name, list(known))}"
            )
    return tuple(known[name] for name in names)


def _ordered(nodes: dict[str, Node]) -> list[Node]:
    done: dict[str, Node] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = [*path[path.index(name) :], name]
            at = nodes[name].output
            told = " reads ".join(nodes[one].name for one in circle)
            raise UsageError(f"{at.place}: {told}: a circle, which never begins; let one of them read a stream instead")
        if name in done:
            return
        for read in nodes[name].reads:
            if isinstance(read, Output):
                visit(parameter(read.name), (*path, name))
        done[name] = nodes[name]

    for name in nodes:
        visit(name, ())
    return list(done.values())


def _near(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known)) or 'none'}"


# Pictures -------------------------------------------------------------------------------------------------------------


def as_text(graph: Graph, notes: Mapping[str, Sequence[str]] = NO_NOTES) -> str:
    """`notes` are lines more, by output."""
    lines = [f"app {graph.app.name}", ""]
    lines += [f"{one.kind:<7}{one.name}{_of_topic(one)}  {one.place}" for one in graph.inputs]
    for node in graph.nodes:
        one = node.output
        by = f" by {', '.join(one.key)}" if one.key else ""
        lines += ["", f"{one.kind:<7}{one.name}{by}  {one.place}"]
        by_sql = " by SQL" if isinstance(one.function, SqlQuery) else ""
        lines += [f"       reads {', '.join(read.name for read in node.reads)}{by_sql}"]
        lines += [f"       order {one.order}: {_compared(node)}"] if one.order is not None else []
        lines += [f"       answers questions: tidelog ask {one.name} KEY"] if node.asked else []
        if one.kind == VIEW and one.stores:
            lines += [f"       stores {', '.join(map(redacted, one.stores))}"]
        lines += [f"       fingerprint {node.fingerprint}"]
        lines += [f"       {note}" for note in notes.get(one.name, ())]
    return "\n".join(lines)


def _compared(node: Node) -> str:
    """What only a run can see, by its checkpoint, is said as what it depends on."""
    if node.asked or node.output.mode is not None:
        return "rows of one micro-batch are compared"
    anew = "is rebuilt" if node.output.kind == VIEW else "is written by another name"
    return f"all rows are compared; where its checkpoint is from before that, those of one micro-batch until it {anew}"


def _of_topic(one: Input) -> str:
    return "" if one.topic == one.name else f" (topic {one.topic})"


def as_mermaid(graph: Graph) -> str:
    lines = ["flowchart LR"]
    for one in graph.all:
        left, right = ("[(", ")]") if one.kind == VIEW else ("[", "]") if isinstance(one, Output) else ("([", "])")
        lines.append(f'  {parameter(one.name)}{left}"{one.name}"{right}')
    lines += [f"  {parameter(read)} --> {parameter(name)}" for read, name in _arrows(graph)]
    return "\n".join(lines)


def as_dot(graph: Graph) -> str:
    lines = [f'digraph "{graph.app.name}" {{', "  rankdir=LR"]
    for one in graph.all:
        shape = "cylinder" if one.kind == VIEW else "box" if isinstance(one, Output) else "ellipse"
        lines.append(f'  "{one.name}" [shape={shape}]')
    lines += [f'  "{read}" -> "{name}"' for read, name in _arrows(graph)]
    return "\n".join([*lines, "}"])


def _arrows(graph: Graph) -> list[tuple[str, str]]:
    return [(read.name, node.name) for node in graph.nodes for read in node.reads]
