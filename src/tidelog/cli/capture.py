"""`tidelog capture run|check|snapshot|status|remove`: a database's tables become topics.

`run` goes on until SIGTERM or Ctrl-C, and ends with 0 then; with 1 when another capture of its name began.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.main import FAILED, OK
from tidelog.cli.terminal import ProgressLine, confirm, paint, rows_line, show_json, show_table
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from tidelog.capture.settings import CaptureSettings

EXAMPLES = """\
  tidelog capture run sqlite:///shop.db --prefix shop                every table, to topics shop.main.TABLE
  tidelog capture run 'postgresql://app:${PASSWORD}@db/shop' --prefix shop --tables public.orders 'public.item*'
  tidelog capture check sqlite:///shop.db                            what is missing, and what mends it
  tidelog capture status                                             how far each capture is
  tidelog capture snapshot shop --tables main.orders                 read a table again while changes flow
  tidelog capture snapshot shop --pause                              and --resume, --stop
  tidelog capture run 'postgresql://app:${PASSWORD}@db/shop' --prefix shop --method triggers    no right to replicate
  tidelog capture run sqlite:///shop.db --prefix shop --registry http://127.0.0.1:8642    values in Avro
  tidelog capture remove sqlite:///shop.db --prefix shop             take triggers, slot or publication away

${NAME} in a URL is taken from the environment, and is never shown or kept.
"""
METHODS = ("log", "triggers")
MODES = ("initial", "initial_only", "always", "no_data", "when_needed")


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser("capture", "Turn a database's changes into topics.", EXAMPLES, parent=reach)
    actions = command.actions(made)

    def action(name: str, what: str) -> ArgumentParser:
        return actions.add_parser(name, parents=[reach], help=what, description=f"{what[0].upper()}{what[1:]}.")

    running = action("run", "capture until it is stopped")
    _add_source(running, prefix_needed=True)
    _add_run(running)
    check = action("check", "say what a database lacks to be captured, and what mends it")
    _add_source(check, prefix_needed=False)
    command.add_json(check)
    snapshot = action("snapshot", "read tables again while changes flow")
    snapshot.add_argument("name", metavar="NAME", help="which capture")
    snapshot.add_argument("--tables", metavar="TABLE", nargs="+", default=[], help="schema.table")
    ways = snapshot.add_mutually_exclusive_group()
    ways.add_argument("--pause", action="store_true", help="the one that is under way rests")
    ways.add_argument("--resume", action="store_true", help="and goes on")
    ways.add_argument("--stop", action="store_true", help="and ends, for these tables or for all")
    status = action("status", "how far each capture is (the default)")
    status.add_argument("name", metavar="NAME", nargs="?", help="only this one")
    command.add_json(status)
    gone = action("remove", "take away what a capture made in the database, and its progress; topics stay")
    _add_source(gone, prefix_needed=False)
    gone.add_argument("--yes", action="store_true", help="do not ask")
    return made


def _add_source(added: ArgumentParser, *, prefix_needed: bool) -> None:
    added.add_argument("url", metavar="URL", help="sqlite:///FILE, postgresql://..., mysql://..., mariadb://...")
    added.add_argument("--prefix", metavar="PREFIX", required=prefix_needed, help="topics are PREFIX.SCHEMA.TABLE")
    added.add_argument("--name", metavar="NAME", help="its identity: slot, progress, transactional id (the prefix)")
    added.add_argument(
        "--tables", metavar="PATTERN", nargs="+", default=["*"], help="schema.table, with * for any (default: all)"
    )
    added.add_argument(
        "--method", choices=METHODS, help="by the database's log, or by triggers (the log, where there is one)"
    )
    added.add_argument(
        "--accept-cascades",
        action="store_true",
        help="MariaDB, MySQL: capture tables whose rows foreign keys change unseen",
    )


def _add_run(added: ArgumentParser) -> None:
    added.add_argument("--snapshot", choices=MODES, default="initial", help="when rows are read first (initial)")
    added.add_argument("--envelope", choices=("debezium", "row"), default="debezium", help="what a value is (debezium)")
    added.add_argument("--schemas", action="store_true", help="keys and values with their Connect schemas")
    added.add_argument("--registry", metavar="URL", help="a schema registry: values are Avro, their schemas go there")
    added.add_argument("--format", choices=("json", "avro", "json-schema"), help="of keys and values (json; avro)")
    added.add_argument("--registry-login", metavar="VARIABLE", help="which environment variable has its USER:PASSWORD")
    added.add_argument("--no-tombstones", action="store_true", help="no null value behind a delete")
    added.add_argument("--exclude", metavar="COLUMN", nargs="+", default=[], help="schema.table.column to leave out")
    added.add_argument("--mask", metavar="COLUMN", nargs="+", default=[], help="schema.table.column to hide")
    added.add_argument("--partitions", metavar="N", type=command.positive, default=1, help="of new topics (1)")
    added.add_argument("--compact", action="store_true", help="new topics keep the newest row by key only")
    added.add_argument("--transactions", action="store_true", help="BEGIN and END of each, to PREFIX.transaction")
    added.add_argument("--schema-changes", action="store_true", help="changed tables, to the topic PREFIX")
    added.add_argument(
        "--heartbeat", metavar="SECONDS", type=command.seconds, default=0.0, help="when idle, to a topic"
    )
    added.add_argument("--dead-letters", metavar="TOPIC", help="for rows that are too large for their topic")
    added.add_argument("--outbox", metavar="TABLE", help="whose rows are messages, to PREFIX.aggregatetype")
    added.add_argument(
        "--alarm-bytes",
        metavar="N",
        type=command.positive,
        default=10 << 30,
        help="warn when the database keeps more of its log for this capture (10 GiB)",
    )
    added.add_argument("--once", action="store_true", help="end when all that was there is captured")


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments, default="status")
    action = {"run": _run, "check": check, "snapshot": snapshot, "status": status, "remove": remove}
    return action[options.action](options)


def settings_of(options: Namespace) -> CaptureSettings:
    from tidelog.capture.settings import CaptureSettings

    more: dict[str, Any] = {}
    if options.action == "run":
        more = {
            "snapshot": options.snapshot,
            "envelope": options.envelope,
            "schemas": options.schemas,
            "registry": options.registry,
            "format": options.format or "",
            "registry_login": options.registry_login,
            "tombstones": not options.no_tombstones,
            "exclude": tuple(options.exclude),
            "mask": tuple(options.mask),
            "partitions": options.partitions,
            "compact": options.compact,
            "transactions": options.transactions,
            "schema_changes": options.schema_changes,
            "heartbeat_s": options.heartbeat,
            "dead_letters": options.dead_letters,
            "outbox": options.outbox,
            "alarm_bytes": options.alarm_bytes,
        }
    prefix = options.prefix or options.name or "capture"
    return CaptureSettings(
        url=options.url,
        prefix=prefix,
        name=options.name or "",
        tables=tuple(options.tables),
        method=options.method,
        accept_cascades=options.accept_cascades,
        **more,
    )


def _run(options: Namespace) -> int:
    import logging
    import os

    from tidelog.capture.checking import findings
    from tidelog.capture.running import Capture
    from tidelog.control.urls import redacted

    logging.basicConfig(format="tidelog: %(message)s", level=logging.WARNING)
    settings = settings_of(options)
    bootstrap = options.bootstrap or os.environ.get("TIDELOG_BOOTSTRAP") or command.DEFAULT_BOOTSTRAP
    with command.connect(options) as cluster:
        cluster.is_tidelog()  # an address that is wrong is told at once; later a broker that is away is waited for
    findings(settings)  # and so is that of the database; what is wrong with it the capture says
    with ProgressLine("snapshot", rows_line, stays=True) as shown:
        capture = Capture(
            settings,
            bootstrap=bootstrap,
            security=command.security(options),
            timeout_s=options.timeout,
            shown=shown,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: capture.stop())
        print(f"{redacted(settings.url)} is captured as {settings.known_as}", flush=True)
        capture.catch_up() if options.once else capture.run()
    return OK


def check(options: Namespace) -> int:
    from tidelog.capture.checking import findings

    found = findings(settings_of(options))
    if options.json:
        show_json([one._asdict() for one in found])
    colours = {"error": "red", "warning": "yellow", "ok": "green"}
    for one in [] if options.json else found:
        print(f"{paint(one.severity, colours[one.severity])}: {one.what}")
        if one.remedy:
            print(f"    {one.remedy}")
    return FAILED if any(one.severity == "error" for one in found) else OK


def snapshot(options: Namespace) -> int:
    from tidelog.capture.chunking import EXECUTE, ask_for_snapshot

    what = next((one for one in ("pause", "resume", "stop") if getattr(options, one)), EXECUTE)
    with command.connect(options) as cluster:
        ask_for_snapshot(cluster, options.name, options.tables, what)
    done = f"read {', '.join(options.tables)} again" if what == EXECUTE else f"{what} its snapshot"
    print(f"{options.name} is told to {done}")
    return OK


def status(options: Namespace) -> int:
    from tidelog.capture.checking import told

    with command.connect(options) as cluster:
        found = [one for one in told(cluster) if options.name in (None, one["name"])]
    if options.name is not None and not found:
        raise UsageError(f"no capture is called {options.name!r}; `tidelog capture status` lists them")
    if options.json:
        show_json(found)
    elif found:
        header = ("name", "state", "tables", "rows out", "lag s", "position", "snapshot", "error")
        rows = [[one[name] for name in ("name", "state", "tables", "rows_out", "lag_s")] for one in found]
        more = [[_position(one["position"]), _cell(one["snapshot"]), one["error"] or one["warning"]] for one in found]
        show_table(header, [[*a, *b] for a, b in zip(rows, more, strict=True)])
    else:
        print("no captures")
    return OK


def remove(options: Namespace) -> int:
    from tidelog.capture.checking import remove as remove_capture
    from tidelog.control.urls import redacted

    settings = settings_of(options)
    if options.prefix is None and options.name is None:
        raise UsageError("capture remove: say which capture by --name, or --prefix if it has no name of its own")
    question = f"remove capture {settings.known_as} from {redacted(settings.url)}, and its progress?"
    if not options.yes and not confirm(question):
        raise UsageError("capture remove: nothing was removed; say --yes")
    with command.connect(options) as cluster:
        for line in remove_capture(cluster, settings):
            print(line)
    return OK


def _position(position: Any) -> str | None:
    """As it is waited for: `tidelog wait VIEW --after NAME@POSITION`."""
    from tidelog.control.positions import text_of

    return None if position is None else text_of(position) or _cell(position)


def _cell(value: Any) -> str | None:
    import json

    return None if value is None else value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
