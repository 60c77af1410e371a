"""`tidelog plan APP`: what an app would run, as text or as a graph, without Spark and without a broker.

    --bootstrap    also what the catalog there tells: what is new, what goes on, what has changed since it was built
    --analyse      also what only Spark can tell: columns, keys, order and lateness; no query is started

`tidelog run` does the same three, in this order, before it runs anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.app_settings import add_app, add_running, settings_of
from tidelog.cli.main import FAILED, OK
from tidelog.cli.terminal import STARTING_SPARK, count_text, show_json, warn
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.pipelines.analysing import Analysed
    from tidelog.pipelines.foreseeing import Foreseen
    from tidelog.pipelines.graph import Graph, Node
    from tidelog.pipelines.running import Settings

EXAMPLES = """\
  tidelog plan shop.py
  tidelog plan shop.py --graph mermaid
  tidelog plan shop.py --graph dot | dot -Tsvg > shop.svg
  tidelog plan shop.py --bootstrap 127.0.0.1:9092      what is new, goes on or has changed since it was built
  tidelog plan shop.py --analyse                       what Spark says of columns, keys and order
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "plan",
        "Show what an app declares: what it reads, in which order it runs.",
        EXAMPLES,
        parent=command.connection_options(),
    )
    add_app(made)
    made.add_argument("--graph", choices=("mermaid", "dot"), help="as a graph, for a page or for Graphviz")
    made.add_argument("--analyse", action="store_true", help="start Spark, and say what only that can tell")
    add_running(made)
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    if options.graph and (options.analyse or options.bootstrap):
        raise UsageError("plan: --graph is a picture of the file; leave --bootstrap and --analyse out")
    from tidelog.pipelines.graph import as_dot, as_mermaid, as_text, graph_of
    from tidelog.pipelines.loading import load_app

    app = load_app(options.app)
    graph = graph_of(app).only(options.only)
    settings = settings_of(options, app)
    ahead = _compared(graph, settings) if options.bootstrap else []
    analysed = _analysed(graph, settings, with_broker=bool(options.bootstrap)) if options.analyse else []
    if options.json:
        show_json([_fields(node, ahead, analysed) for node in graph.nodes])
    elif options.graph:
        print({"mermaid": as_mermaid, "dot": as_dot}[options.graph](graph))
    else:
        print(as_text(graph, {node.name: _notes(node, ahead, analysed) for node in graph.nodes}))
    return FAILED if any(one.target.changed is not None for one in ahead) else OK


# The catalog ----------------------------------------------------------------------------------------------------------


def _compared(graph: Graph, settings: Settings) -> list[Foreseen]:
    from tidelog.pipelines.foreseeing import foreseen
    from tidelog.pipelines.machine import check_machine, check_store_folders
    from tidelog.pipelines.placing import check_stores

    check_stores(graph, settings.store)
    check_machine(graph, settings.checkpoints, settings.spark)
    with settings.connect() as cluster:
        cluster.any_node()
        ahead = foreseen(cluster, graph, settings)
    check_store_folders(graph, [one.target for one in ahead], settings.store, stays=settings.store_unnamed)
    return ahead


# Spark ----------------------------------------------------------------------------------------------------------------


def _analysed(graph: Graph, settings: Settings, *, with_broker: bool) -> list[Analysed]:
    from tidelog.control.catalog import read_catalog
    from tidelog.pipelines.analysing import analyse, without_broker
    from tidelog.pipelines.running import reader_of, session_of

    warn(STARTING_SPARK)
    spark = session_of(graph, settings)
    try:
        if not with_broker:
            return analyse(without_broker(spark, graph), {})
        with settings.connect() as cluster:
            return analyse(reader_of(spark, graph, settings, cluster), read_catalog(cluster))
    finally:
        spark.stop()


# What is shown --------------------------------------------------------------------------------------------------------


def _notes(node: Node, ahead: list[Foreseen], analysed: list[Analysed]) -> list[str]:
    found = [one for one in ahead if one.target.node is node]
    notes = [f"catalog {_standing(one)}" for one in found]
    notes += [f"state in {_partitions(number)}" for one in found if (number := _state_partitions(one)) is not None]
    for one in (one for one in analysed if one.node is node):
        notes.append(f"columns {', '.join(f'{name} {kind}' for name, kind in one.columns)}")
        notes.append(f"rows {one.rows}{'; its query keeps state' if one.state else ''}")
        notes += [f"warning {text}" for text in one.warnings]
    return notes


def _standing(one: Foreseen) -> str:
    target = one.target
    if target.changed is not None:
        return f"would not run: {target.changed}"
    return f"goes on with generation {target.generation}" if one.is_there else "new"


def _state_partitions(one: Foreseen) -> int | None:
    from tidelog.pipelines.micro_batches import state_partitions

    return state_partitions(one.target.checkpoint) if one.is_there else None


def _partitions(number: int) -> str:
    """Its checkpoint keeps it so, whatever the session says later."""
    return f"{count_text(number, 'partition')}: as many tasks; `tidelog rebuild --parallelism N` makes it N"


def _fields(node: Node, ahead: list[Foreseen], analysed: list[Analysed]) -> dict[str, Any]:
    one = node.output
    said: dict[str, Any] = {"name": one.name, "kind": one.kind, "key": list(one.key), "at": str(one.place)}
    said |= {"reads": [read.name for read in node.reads], "fingerprint": node.fingerprint}
    for one_ahead in (found for found in ahead if found.target.node is node):
        target, is_there = one_ahead
        number = target.generation if is_there else None
        said["catalog"] = {"is_there": is_there, "generation": number, "would_not_run": target.changed}
        said["catalog"]["state_partitions"] = _state_partitions(one_ahead)
    for found in (found for found in analysed if found.node is node):
        said["analysed"] = {"columns": dict(found.columns), "rows": found.rows, "keeps_state": found.state}
        said["analysed"]["warnings"] = list(found.warnings)
    return said
