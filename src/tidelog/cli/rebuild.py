"""`tidelog rebuild VIEW --app app.py`: a view from the log, beside the one that serves, then switched to at once."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli.app_settings import add_running, settings_of
from tidelog.cli.main import FAILED, INTERRUPTED, OK
from tidelog.cli.run import say_in
from tidelog.cli.terminal import PROGRESS_EVERY_S, PROGRESS_LINE_EVERY_S, STARTING_SPARK, warn
from tidelog.errors import UsageError
from tidelog.logger import Logger
from tidelog.process import stop_on_signals

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.parts.part import Say
    from tidelog.pipelines.catching_up import Done
    from tidelog.pipelines.graph import Graph, Node
    from tidelog.pipelines.rebuilding import Begun, Rebuild
    from tidelog.pipelines.running import Settings
    from tidelog.views.catalog import View

SHOWN_WITHIN_S = 600.0
BATCH_RECORDS = 250_000
EXAMPLES = """\
  tidelog rebuild revenue --app shop.py                        while `tidelog run shop.py` goes on, or nothing runs
  tidelog rebuild revenue --app shop_v2.py --parallelism 8     new code beside the old; then run that
  tidelog rebuild revenue --app shop.py --with-readers         and then views that read it, one after the other
  tidelog rebuild revenue --app shop.py --drop-old             the old generation goes at once, not after the horizon
  tidelog rebuild revenue --app shop.py --again                what an earlier rebuild left is given up
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "rebuild", "Build a view anew from the log, beside the old one.", EXAMPLES, parent=command.connection_options()
    )
    made.add_argument("view", metavar="VIEW", help="which")
    made.add_argument("--app", metavar="APP", required=True, help="the Python file with your App; FILE:NAME of several")
    made.add_argument("--parallelism", metavar="N", type=command.positive, help="tasks at a time (default: all cores)")
    made.add_argument("--batch-records", metavar="N", type=command.positive, default=BATCH_RECORDS, help=_BATCH)
    made.add_argument("--again", action="store_true", help="begin anew, where an earlier rebuild was not finished")
    made.add_argument("--with-readers", action="store_true", help="and then the app's views that read it, in order")
    made.add_argument("--drop-old", action="store_true", help="the old generation and its topics go at once")
    made.add_argument("--wait", metavar="SECONDS", type=command.seconds, default=SHOWN_WITHIN_S, help=_WAIT)
    add_running(made, only=False)
    made.add_argument("--log-format", choices=("text", "json"), default="text", help="of its log (default: text)")
    return made


_BATCH = f"records of an input that a micro-batch takes at most (default: {BATCH_RECORDS})"
_WAIT = f"how long to wait for the stores to show it (default: {SHOWN_WITHIN_S:g})"


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    from tidelog.pipelines.app import VIEW
    from tidelog.pipelines.graph import graph_of
    from tidelog.pipelines.loading import load_app

    app = load_app(options.app)
    graph = graph_of(app)
    node = graph.node(options.view)
    if node.output.kind != VIEW:
        raise UsageError(f"{node.output.place}: {node.name!r} is a {node.output.kind}; what is rebuilt is a view")
    return _rebuild(graph, node, in_parallel(settings_of(options, app), options.parallelism), options)


def in_parallel(settings: Settings, tasks: int | None) -> Settings:
    """So many tasks read, and so many compute; on a cluster it is the cluster that says how many run at a time."""
    if tasks is None:
        return settings
    spark = {"spark.sql.shuffle.partitions": str(tasks), **settings.spark}
    return replace(settings, master=settings.master or f"local[{tasks}]", spark=spark)


def _rebuild(graph: Graph, node: Node, settings: Settings, options: Namespace) -> int:
    from tidelog.pipelines.placing import check_inputs
    from tidelog.pipelines.rebuilding import Rebuild
    from tidelog.pipelines.running import reader_of, session_of

    log = Logger(json=options.log_format == "json")
    stopping = stop_on_signals()
    with settings.connect() as cluster:
        cluster.any_node()  # before Spark, which takes seconds
        chain = _chain(cluster, graph, node, options)
        check_inputs(cluster, graph, chain)
        log.info(STARTING_SPARK)
        spark = session_of(graph, settings)
        stop_on_signals(stopping)
        try:
            reader = reader_of(spark, graph, settings, cluster)
            limits = {"maxOffsetsPerTrigger": str(options.batch_records)}
            limits |= {"minPartitions": str(options.parallelism)} if options.parallelism else {}
            reader = replace(reader, options={**reader.options, **limits})
            telling = Telling(say_in(log))
            made = [
                Rebuild(cluster, reader, one, settings, say=telling.say, tell=telling, stopping=stopping)
                for one in chain
            ]
            for one in made:
                if (code := _rebuild_one(one, telling, options)) != OK:
                    return code
            return _finish(made, options)
        finally:
            spark.stop()


def _chain(cluster: Cluster, graph: Graph, node: Node, options: Namespace) -> list[Node]:
    from tidelog.pipelines.view_readers import chain_of
    from tidelog.views.catalog import read_catalog

    return chain_of(read_catalog(cluster), graph, node) if options.with_readers else [node]


def _rebuild_one(made: Rebuild, telling: Telling, options: Namespace) -> int:
    begun = made.begin(again=options.again, with_readers=options.with_readers)
    try:
        ends = made.build(begun)
        view = None if ends is None else made.switch(begun, ends)
    finally:
        telling.clear()
        made.resume(begun)
    if view is None:
        name = made.node.name
        warn(f"stopped; {going_on(name, options)} goes on with generation {begun.target.generation} of {name}")
        return INTERRUPTED
    return _show(made, begun, view, options)


def going_on(name: str, options: Namespace) -> str:
    """The command that does not begin anew."""
    if options.with_readers:
        return f"`tidelog rebuild {name} --app {options.app} --with-readers`"
    return "the same command without --again" if options.again else "the same command"


def _show(made: Rebuild, begun: Begun, view: View, options: Namespace) -> int:
    from tidelog.pipelines.rebuilding import said

    name, number = made.node.name, begun.target.generation
    waiting = made.show(begun, view, options.wait)
    if waiting:
        warn(
            f"generation {number} of {name} is live, and {said(waiting)} does not show it yet: is its applier running?"
        )
        return FAILED
    print(f"{name} is generation {number} now, in {said(view.stores)}")
    return OK


def _finish(made: list[Rebuild], options: Namespace) -> int:
    """Old generations go last: who read them has been rebuilt by now."""
    for one in made:
        for gone in one.drop_old(at_once=options.drop_old):
            print(f"generation {gone} of {one.node.name} and its topics are gone")
        for reader in one.left():
            print(f"{reader} has read the old {one.node.name}, and is stopped; rebuild it, too, with that app's file")
    if not made[0].is_run():
        print(f"`tidelog run {options.app}` keeps it up to date from here on")
    return OK


class Telling:
    """How far it is: a line that is written over on a terminal, else one now and then. `say` is for the log."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._not_before = 0.0

    def say(self, event: str, **fields: object) -> None:
        self.clear()
        self._say(event, **fields)

    def clear(self) -> None:
        """What comes next begins a line."""
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __call__(self, done: Done) -> None:
        watched = sys.stderr.isatty()
        if time.monotonic() < self._not_before:
            return
        self._not_before = time.monotonic() + (PROGRESS_EVERY_S if watched else PROGRESS_LINE_EVERY_S)
        print(f"\r\x1b[K{done}" if watched else str(done), end="" if watched else "\n", file=sys.stderr, flush=True)
