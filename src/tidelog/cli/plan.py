"""`tidelog plan APP`: what an app would run, as text or as a graph, without Spark and without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.app_settings import add_app
from tidelog.cli.main import OK
from tidelog.cli.terminal import show_json

if TYPE_CHECKING:
    from tidelog.pipelines.graph import Node

EXAMPLES = """\
  tidelog plan shop.py
  tidelog plan shop.py --graph mermaid
  tidelog plan shop.py --graph dot | dot -Tsvg > shop.svg
"""


def parser() -> command.Parser:
    made = command.command_parser("plan", "Show what an app declares: what it reads, in which order it runs.", EXAMPLES)
    add_app(made)
    made.add_argument("--graph", choices=("mermaid", "dot"), help="as a graph, for a page or for Graphviz")
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    from tidelog.pipelines.graph import as_dot, as_mermaid, as_text, graph_of
    from tidelog.pipelines.loading import load_app

    graph = graph_of(load_app(options.app))
    if options.json:
        show_json([_fields(node) for node in graph.nodes])
    else:
        print({"mermaid": as_mermaid, "dot": as_dot}.get(options.graph or "", as_text)(graph))
    return OK


def _fields(node: Node) -> dict[str, Any]:
    one = node.output
    said: dict[str, Any] = {"name": one.name, "kind": one.kind, "key": list(one.key), "at": str(one.place)}
    return said | {"reads": [read.name for read in node.reads], "fingerprint": node.fingerprint}
