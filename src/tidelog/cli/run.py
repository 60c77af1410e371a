"""`tidelog run APP`: what an app declares, run together and kept running; or, with --batch, once over history."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.app_settings import add_app, add_running, settings_of
from tidelog.cli.main import OK
from tidelog.cli.terminal import STARTING_SPARK, count_text, show_json, show_table, warn
from tidelog.errors import DataFolderError, TidelogError, UsageError
from tidelog.logger import Logger, hear
from tidelog.process import stop_on_signals, when_parent_ends
from tidelog.spark.class_archive import ABOUT_MB, SWITCH

if TYPE_CHECKING:
    from threading import Event

    from tidelog.client.cluster import Cluster
    from tidelog.parts.part import Say
    from tidelog.pipelines.graph import Graph
    from tidelog.pipelines.inputs import Span
    from tidelog.pipelines.placing import Target
    from tidelog.pipelines.running import Settings
    from tidelog.spark.class_archive import Making

ROWS = 20
HTTP_LISTENER = "tidelog.http.listener"
EXAMPLES = """\
  tidelog run shop.py
  tidelog run shop.py --only revenue --trigger "1 second"
  tidelog run shop.py --standby                        beside a run: takes its place when that has ended
  tidelog run shop.py --master spark://host:7077 --checkpoints hdfs://host/checkpoints
  tidelog run shop.py --batch --from 2026-01-01 --to 2026-02-01 --only revenue --show
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "run",
        "Run an app: its queries on Spark, and the appliers of its views.",
        EXAMPLES,
        parent=command.connection_options(),
    )
    add_app(made)
    add_running(made)
    made.add_argument(
        "--grown",
        metavar="VIEW",
        action="append",
        default=[],
        help="this view's new columns are all that has changed in it, so it goes on (repeatable)",
    )
    made.add_argument(
        "--go-on",
        metavar="TOPIC",
        action="append",
        default=[],
        help="this derived topic's new code goes on from where the old one was: what is there stays (repeatable)",
    )
    made.add_argument("--standby", action="store_true", help="wait for as long as another run has one of the outputs")
    made.add_argument("--batch", action="store_true", help="once, over history, with the same functions")
    made.add_argument("--from", dest="begin", metavar="TIME", help="of history: records from this time on (ISO 8601)")
    made.add_argument("--to", dest="end", metavar="TIME", help="of history: records before this time")
    made.add_argument("--show", action="store_true", help="with --batch: show the rows, write nothing")
    made.add_argument("--limit", type=command.positive, default=ROWS, metavar="N", help=f"rows to show ({ROWS})")
    made.add_argument("--log-format", choices=("text", "json"), default="text", help="of its log (default: text)")
    made.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    if not options.batch and (options.begin or options.end or options.show):
        raise UsageError("run: --from, --to and --show are about history; add --batch")
    if options.batch and options.standby:
        raise UsageError("run: --standby is for a run that goes on, and --batch ends by itself; leave one of them out")
    from tidelog.pipelines.graph import graph_of
    from tidelog.pipelines.loading import load_app

    app = load_app(options.app)
    graph = graph_of(app).only(options.only)
    settings = settings_of(options, app)
    return _batch(graph, settings, options) if options.batch else _run(graph, settings, options)


def _run(graph: Graph, settings: Settings, options: Namespace) -> int:
    from functools import partial

    from tidelog.control.starting import tell_starting
    from tidelog.pipelines.appliers import appliers_of, opened
    from tidelog.pipelines.changed_views import prepare_run
    from tidelog.pipelines.handover import Handover
    from tidelog.pipelines.machine import check_machine
    from tidelog.pipelines.placing import check_stores
    from tidelog.pipelines.readiness import Readiness
    from tidelog.pipelines.running import Run, parts_of, reader_of, session_of, stop_session

    check_stores(graph, settings.store)
    check_machine(graph, settings.checkpoints, settings.spark)
    log = Logger(json=options.log_format == "json")
    hear(log)
    stopping = stop_on_signals()
    if options.with_parent:
        when_parent_ends(stopping.set)
    with ExitStack() as ending:
        look_ahead(graph, settings, log)  # before Spark, which takes seconds
        hold_outputs(graph, settings, log, stopping, ending, standby=options.standby)
        if stopping.is_set():
            return OK
        cluster = ending.enter_context(settings.connect())
        warn_of_another(log, cluster, graph)
        log.info(STARTING_SPARK)
        with tell_starting(cluster, graph.app.name, new_views(cluster, graph)):
            spark = session_of(graph, settings)
        made: Run | None = None
        try:
            if stopping.is_set():
                return OK
            reader = reader_of(spark, graph, settings, cluster)
            with tell_starting(cluster, graph.app.name, new_views(cluster, graph)):
                targets = prepare_run(cluster, reader, settings)
            handover = Handover(cluster, graph, settings.checkpoints)
            parts, appliers = parts_of(targets, reader, settings), partial(appliers_of, settings=settings)
            readiness = Readiness(targets, partial(opened, settings=settings), stopping)

            def tell_ready() -> None:
                log.info("ready", app=graph.app.name, queries=len(targets), bootstrap=settings.bootstrap)
                tell_views(log, graph, targets, settings, http_of(cluster))

            made = Run(graph.app.name, parts, cluster, say_in(log), stopping, handover, appliers, readiness, tell_ready)
            return made.loop()
        except Exception:
            if not stopping.is_set():
                raise
            return OK  # the same signal has ended Spark before it was of use
        finally:
            with suppress(Exception):  # it may be gone
                tell_archive(log, stop_session(spark, was_ready=made is not None and made.was_ready))


def tell_archive(log: Logger, making: Making | None) -> None:
    """What is left behind, in whose folder, how large, and how to have none."""
    if making is not None:
        event = "an archive of Spark's classes is made in the background, by which the next start is shorter"
        log.info(event, path=making.archive, about_mb=ABOUT_MB, not_by=f"{SWITCH}=off")


def new_views(cluster: Cluster, graph: Graph) -> list[str]:
    """Those that the catalog does not have yet, so that readers would be told that there are none."""
    from tidelog.control.catalog import read_catalog
    from tidelog.pipelines.app import VIEW

    catalog = read_catalog(cluster)
    return [node.name for node in graph.nodes if node.output.kind == VIEW and (VIEW, node.name) not in catalog]


def look_ahead(graph: Graph, settings: Settings, log: Logger) -> None:
    """What the app's file and the catalog tell. A mistake ends the run; what has changed does not run, and is told."""
    from tidelog.pipelines.changed_views import check_any_left
    from tidelog.pipelines.foreseeing import foreseen
    from tidelog.pipelines.machine import check_store_folders

    with settings.connect() as cluster:
        cluster.any_node()
        targets = [one.target for one in foreseen(cluster, graph, settings)]
    check_any_left(targets)
    check_store_folders(graph, targets, settings.store, stays=settings.store_unnamed)
    for one in targets:
        if one.changed is not None:
            log.warning(f"{one.node.output.kind} {one.node.name} will not run", reason=one.changed)


def hold_outputs(
    graph: Graph, settings: Settings, log: Logger, stopping: Event, ending: ExitStack, *, standby: bool
) -> None:
    """Nobody else on this machine runs them until this process ends. With `standby` it is waited for, or for a stop."""
    from tidelog.pipelines.locks import OutputLocks, local_folder

    folder, name = local_folder(settings.checkpoints), graph.app.name
    if folder is None:
        if standby:
            where = settings.checkpoints
            raise UsageError(f"run: --standby needs checkpoints on this machine, and they are in {where}; leave it out")
        return
    locks = OutputLocks(folder / name, [node.name for node in graph.nodes])
    ending.callback(locks.release)
    if (holder := locks.take()) is None:
        if not locks.are_kept:
            log.warning("the folder of checkpoints does not support locks: a second run is not refused", folder=folder)
        return
    if not standby:
        raise DataFolderError(
            f"{holder.output} of app {name} is run by {holder}; stop that first, or give --standby to wait for its end"
        )
    waits = f"stands by: app {name} is run by another process"
    if locks.wait(stopping, lambda holder: log.info(waits, output=holder.output, pid=holder.pid)):
        look_ahead(graph, settings, log)  # it may be long since the first look


def warn_of_another(log: Logger, cluster: Cluster, graph: Graph) -> None:
    """Two runs of one output fence each other again and again. It is not refused: one that was killed a moment ago has
    told the same, and may be what this one is started for.
    """
    from tidelog.control.status import read_status
    from tidelog.pipelines.catching_up import heard_run

    name, outputs = graph.app.name, [node.name for node in graph.nodes]
    try:
        heard = heard_run(read_status(cluster), name, outputs, int(time.time() * 1000))
    except TidelogError:  # not for this user: reports are notes
        return
    if heard is not None:
        event = f"app {name} may be run by another process: if that is alive, stop it first"
        log.warning(event, pid=heard.pid, heard_s_ago=heard.seconds)


def tell_views(log: Logger, graph: Graph, targets: list[Target], settings: Settings, served: str | None) -> None:
    """Where each is read, and which stay in other stores than this run would have given them."""
    from tidelog.pipelines.placing import stays_elsewhere, stores_of

    for target in (one for one in targets if one.stores):
        view = target.node.name
        log.info(f"view {view}", rows=rows_at(served, view))  # a kind of its own: none is left out for haste
        if settings.store_unnamed and stays_elsewhere(graph, target, settings.store):
            default = stores_of(graph, target.node.output, settings.store)
            told = {"stores": " ".join(target.stores), "default": " ".join(default), "moved_by": "--store URL"}
            log.info(f"view {view} stays where it is", **told)


def say_in(log: Logger) -> Say:
    """A run's events as log lines: a part that has failed is an error, or, where it is tried again, a warning."""

    def say(event: str, **fields: object) -> None:
        if event != "failed":
            log.info(event, **fields)
        elif fields.get("again_in_s") is None:
            log.error(event, **fields)
        else:
            log.warning(event, **fields)

    return say


def http_of(cluster: Cluster) -> str | None:
    """Where the broker serves HTTP, as far as its settings tell: a port that it chose itself they do not."""
    from tidelog.client.admin import configs
    from tidelog.config import http_listener

    try:
        node = str(min(cluster.ask_metadata([]).nodes))
        found = configs.describe(cluster, configs.BROKER, node, keys=[HTTP_LISTENER])
        said = next((one.value for one in found if one.name == HTTP_LISTENER), None)
        where = None if said in (None, "-") else http_listener(str(said))
    except TidelogError:  # of another kind, or not for this user: then it is not said
        return None
    if where is None or not where.port:
        return None
    host = where.host if where.host not in ("", "0.0.0.0", "::") else cluster.bootstrap[0].host
    return f"{where.scheme or 'http'}://{f'[{host}]' if ':' in host else host}:{where.port}"


def rows_at(served: str | None, view: str) -> str:
    """How a view is read: by its address, or, where HTTP is off, by the command."""
    return f"tidelog views rows {view}" if served is None else f"{served}/views/{view}"


def _batch(graph: Graph, settings: Settings, options: Namespace) -> int:
    from dataclasses import replace

    from tidelog.control.catalog import read_catalog
    from tidelog.pipelines import history
    from tidelog.pipelines.foreseeing import check_inputs_there
    from tidelog.pipelines.running import reader_of, session_of

    span = span_of(options)
    with settings.connect() as cluster:
        cluster.any_node()
        check_inputs_there(cluster, read_catalog(cluster), graph)  # before Spark, which takes seconds
        if not options.show:
            history.check_owners(cluster, graph)
        warn(STARTING_SPARK)
        spark = session_of(graph, settings)
        try:
            reader = replace(reader_of(spark, graph, settings, cluster), span=span)
            if options.show:
                for node in graph.nodes:
                    rows = history.shown(history.rows_of(reader, node), node.output.key, options.limit)
                    _show(node.name, rows, options)
                return OK
            for target, name in history.write_all(cluster, reader, settings):
                print(f"{target.node.name} is written to {target.topic} as {name}")
        finally:
            spark.stop()
    return OK


def _show(name: str, rows: list[dict[str, Any]], options: Namespace) -> None:
    if options.json:
        show_json({"output": name, "rows": rows})
        return
    print(f"{name}: {count_text(len(rows), 'row')}" if rows else f"{name}: no rows", file=sys.stderr)
    if rows:
        show_table(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows])


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, int) else str(value)


def span_of(options: Namespace) -> Span:
    from tidelog.pipelines.inputs import Span

    found = Span(_time(options.begin, "--from"), _time(options.end, "--to"))
    if found.begin_ms is not None and found.end_ms is not None and found.begin_ms >= found.end_ms:
        raise UsageError(f"run: --from {options.begin} is not before --to {options.end}")
    return found


def _time(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"run: {option} is {text!r}; write a time like 2026-01-31 or 2026-01-31T12:00:00Z") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
