"""`tidelog rebuild OUTPUT --app app.py`: a view or a derived topic from the log, beside the one that serves, then
switched to at once.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli.app_settings import add_running, settings_of
from tidelog.cli.main import FAILED, INTERRUPTED, OK
from tidelog.cli.run import say_in
from tidelog.cli.terminal import PROGRESS_EVERY_S, PROGRESS_LINE_EVERY_S, STARTING_SPARK, confirm, warn
from tidelog.errors import UsageError
from tidelog.logger import Logger, hear
from tidelog.process import stop_on_signals

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.control.catalog import View
    from tidelog.parts.part import Say
    from tidelog.pipelines.building_aside import Begun
    from tidelog.pipelines.catching_up import Done
    from tidelog.pipelines.graph import Graph, Node
    from tidelog.pipelines.rebuilding import Rebuild
    from tidelog.pipelines.rebuilding_topics import RebuildTopic
    from tidelog.pipelines.running import Settings

SHOWN_WITHIN_S = 600.0
BATCH_RECORDS = 250_000
EXAMPLES = """\
  tidelog rebuild revenue --app shop.py                        while `tidelog run shop.py` goes on, or nothing runs
  tidelog rebuild revenue --app shop_v2.py --parallelism 8     new code beside the old; then run that
  tidelog rebuild revenue --app shop.py --with-readers         and then what reads it, one after the other
  tidelog rebuild big-orders --app shop_v2.py                  a derived topic: then read big-orders.v2
  tidelog rebuild big-orders --app shop_v2.py --in-place --yes     into the same topic, behind what it has
  tidelog rebuild revenue --app shop.py --drop-old             the old generation goes at once, not after the horizon
  tidelog rebuild revenue --app shop.py --again                what an earlier rebuild left is given up
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "rebuild",
        "Rebuild a view or a derived topic from the log, beside the old one.",
        EXAMPLES,
        parent=command.connection_options(),
    )
    made.add_argument("output", metavar="OUTPUT", help="which view or derived topic")
    made.add_argument("--app", metavar="APP", required=True, help="the Python file with your App; FILE:NAME of several")
    made.add_argument("--parallelism", metavar="N", type=command.positive, help="tasks at a time (default: all cores)")
    made.add_argument("--batch-records", metavar="N", type=command.positive, default=BATCH_RECORDS, help=_BATCH)
    made.add_argument("--again", action="store_true", help="start over, where an earlier rebuild was not finished")
    made.add_argument("--with-readers", action="store_true", help="and then what reads it in the app, in order")
    made.add_argument("--in-place", action="store_true", help=_IN_PLACE)
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--drop-old", action="store_true", help="the old generation and its topics go at once")
    made.add_argument("--wait", metavar="SECONDS", type=command.seconds, default=SHOWN_WITHIN_S, help=_WAIT)
    add_running(made, only=False)
    made.add_argument("--log-format", choices=("text", "json"), default="text", help="of its log (default: text)")
    return made


_BATCH = f"records of an input that a micro-batch takes at most (default: {BATCH_RECORDS})"
_IN_PLACE = "of a derived topic: the same topic has the new generation, behind the old one (needs --yes)"
_WAIT = f"how long to wait for the stores to show it (default: {SHOWN_WITHIN_S:g})"


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    from tidelog.pipelines.app import VIEW
    from tidelog.pipelines.graph import graph_of
    from tidelog.pipelines.loading import load_app

    app = load_app(options.app)
    graph = graph_of(app)
    node = graph.node(options.output)
    options.output = node.name
    if options.in_place:
        check_in_place(node.name, is_view=node.output.kind == VIEW, yes=options.yes)
    return _rebuild(graph, node, in_parallel(settings_of(options, app), options.parallelism), options)


def check_in_place(name: str, *, is_view: bool, yes: bool) -> None:
    if is_view:
        raise UsageError(f"{name} is a view, whose name moves to the new generation by itself; leave out --in-place")
    question = (
        f"put the new generation into topic {name} itself? Where rows have no key of their own, every consumer gets all"
        " rows again, and the old ones are deleted"
    )
    if not yes and not confirm(question):
        raise UsageError(
            f"topic {name} is kept: --in-place writes the difference to it, or, where rows do not replace each other by"
            " key, all rows again, and deletes those before; every consumer of it gets that. Say --yes if that is meant"
        )


def in_parallel(settings: Settings, tasks: int | None) -> Settings:
    """So many tasks read, and so many compute; on a cluster it is the cluster that says how many run at a time."""
    if tasks is None:
        return settings
    spark = {"spark.sql.shuffle.partitions": str(tasks), **settings.spark}
    return replace(settings, master=settings.master or f"local[{tasks}]", spark=spark)


def _rebuild(graph: Graph, node: Node, settings: Settings, options: Namespace) -> int:
    from tidelog.pipelines.app import VIEW
    from tidelog.pipelines.machine import check_machine
    from tidelog.pipelines.placing import check_inputs
    from tidelog.pipelines.rebuilding import Rebuild
    from tidelog.pipelines.rebuilding_topics import RebuildTopic
    from tidelog.pipelines.running import reader_of, session_of

    check_machine(graph, settings.checkpoints, settings.spark)
    log = Logger(json=options.log_format == "json")
    hear(log)
    stopping = stop_on_signals()
    with settings.connect() as cluster:
        cluster.any_node()  # before Spark, which takes seconds
        check_inputs(cluster, graph, [node])
        chain = _chain(cluster, graph, node, options)
        check_inputs(cluster, graph, chain)
        log.info(STARTING_SPARK)
        spark = session_of(graph, settings)
        try:
            reader = reader_of(spark, graph, settings, cluster)
            limits = {"maxOffsetsPerTrigger": str(options.batch_records)}
            limits |= {"minPartitions": str(options.parallelism)} if options.parallelism else {}
            reader = replace(reader, options={**reader.options, **limits})
            telling = Telling(say_in(log))
            made = list[Rebuild | RebuildTopic]()
            for one in chain:
                kind = Rebuild if one.output.kind == VIEW else RebuildTopic
                made.append(kind(cluster, reader, one, settings, say=telling.say, tell=telling, stopping=stopping))
            for each in made:
                if (code := _rebuild_each(each, telling, options)) != OK:
                    return code
            return _finish(made, options)
        finally:
            spark.stop()


def _chain(cluster: Cluster, graph: Graph, node: Node, options: Namespace) -> list[Node]:
    """What is rebuilt, in order. What the catalog has against it is told here, before Spark is started."""
    from tidelog.control.catalog import read_catalog
    from tidelog.pipelines.app import VIEW
    from tidelog.pipelines.rebuilding import check_begin
    from tidelog.pipelines.rebuilding_topics import check_begin_topic
    from tidelog.pipelines.view_readers import chain_of

    known = read_catalog(cluster)
    chain = chain_of(known, graph, node) if options.with_readers else [node]
    for one in chain:
        if one.output.kind == VIEW:
            check_begin(known, graph, one, again=options.again, with_readers=options.with_readers)
        else:
            check_begin_topic(known, graph, one, with_readers=options.with_readers or options.in_place)
    return chain


def _rebuild_each(made: Rebuild | RebuildTopic, telling: Telling, options: Namespace) -> int:
    from tidelog.pipelines.rebuilding import Rebuild

    if isinstance(made, Rebuild):
        return _rebuild_one(made, telling, options)
    return _rebuild_topic(made, telling, options)


def _rebuild_one(made: Rebuild, telling: Telling, options: Namespace) -> int:
    begun = made.begin(again=options.again, with_readers=options.with_readers)
    try:
        ends = made.build(begun)
        view = None if ends is None else made.switch(begun, ends)
    finally:
        telling.clear()
        made.resume(begun)
    return _stopped(made, begun, options) if view is None else _show(made, begun, view, options)


def _rebuild_topic(made: RebuildTopic, telling: Telling, options: Namespace) -> int:
    """In place is for the one that was named: what reads it is read by its own name."""
    is_in_place = options.in_place and made.node.name == options.output
    begun = made.begin(again=options.again, with_readers=options.with_readers, is_in_place=is_in_place)
    try:
        ends = {} if begun.is_switched else made.build(begun)
        entry = None if ends is None else made.place(made.switch(begun, ends))
    finally:
        telling.clear()
        made.resume(begun)
    if entry is None:
        return _stopped(made, begun, options)
    print(f"{entry.name} is generation {entry.live} now, in topic {entry.topic}")
    return OK


def _stopped(made: Rebuild | RebuildTopic, begun: Begun, options: Namespace) -> int:
    name = made.node.name
    warn(f"stopped; {going_on(name, options)} goes on with generation {begun.target.generation} of {name}")
    return INTERRUPTED


def going_on(name: str, options: Namespace) -> str:
    """The command that does not begin anew."""
    if options.with_readers:
        in_place = " --in-place --yes" if options.in_place and name == options.output else ""
        how = f" --with-readers{in_place}"
        return f"`tidelog rebuild {name} --app {options.app}{how}`"
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


def _finish(made: Sequence[Rebuild | RebuildTopic], options: Namespace) -> int:
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
