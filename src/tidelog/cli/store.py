"""`tidelog store run|access`: the owners of an event store's partitions, and who may write to it."""

from __future__ import annotations

from argparse import Namespace

from tidelog.cli import options as command
from tidelog.cli.acls import COLUMNS, row
from tidelog.cli.main import OK
from tidelog.cli.terminal import show_json, show_table
from tidelog.errors import UsageError

EXAMPLES = """\
  tidelog store run shop:seats                         the EventStore `seats` of module shop, until Ctrl-C
  tidelog store run shop.py                            the one EventStore of a file; as many processes as you like
  tidelog store access seats --owner shop --sender web           the rules that keep others out
  tidelog store access seats --owner shop --sender web --apply   and makes them
"""


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser("store", "Run an event store.", EXAMPLES, parent=reach)
    actions = command.actions(made)
    what = "own partitions of a store: decide commands, write events, answer"
    running = actions.add_parser("run", parents=[reach], help=what, description=f"{what[0].upper()}{what[1:]}.")
    running.add_argument("store", metavar="MODULE:STORE", help="an EventStore; or FILE.py, FILE.py:STORE")
    running.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    what = "the access rules of a store, where people log in"
    access = actions.add_parser("access", parents=[reach], help=what, description=f"{what[0].upper()}{what[1:]}.")
    access.add_argument("store", metavar="STORE", help="its name")
    access.add_argument("--owner", metavar="USER", action="append", default=[], help="who runs it (repeatable)")
    access.add_argument("--sender", metavar="USER", action="append", default=[], help="who sends commands (repeatable)")
    access.add_argument("--apply", action="store_true", help="make the rules")
    command.add_json(access)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    return {"run": _run, "access": access}[options.action](options)


def _run(options: Namespace) -> int:
    import logging
    import os

    from tidelog.cli.run import say_in
    from tidelog.logger import Logger
    from tidelog.parts.running import run_part
    from tidelog.process import stop_on_signals, when_parent_ends
    from tidelog.sourcing.finding_store import find_store

    logging.basicConfig(format="tidelog: %(message)s", level=logging.WARNING)
    store = find_store(options.store)
    bootstrap = options.bootstrap or os.environ.get("TIDELOG_BOOTSTRAP")
    if bootstrap:
        store.reach(bootstrap, command.security(options))
    stopping = stop_on_signals()
    if options.with_parent:
        when_parent_ends(stopping.set)
    with store.connect() as cluster:
        cluster.is_tidelog()  # an address that is wrong is told at once; later a broker that is away is waited for
        print(f"store {store.name} runs", flush=True)
        return run_part(store, cluster, say=say_in(Logger(json=False)), stopping=stopping)


def access(options: Namespace) -> int:
    from tidelog.client.admin.access import create_acls
    from tidelog.sourcing.access_rules import rules
    from tidelog.sourcing.store_topics import StoreTopics, checked_name

    if not options.owner and not options.sender:
        raise UsageError("store access: say who runs it by --owner USER, and who sends commands by --sender USER")
    found = rules(StoreTopics(checked_name(options.store)), owners=options.owner, senders=options.sender)
    if options.json:
        show_json([dict(zip(COLUMNS, row(rule), strict=True)) for rule in found])
    else:
        show_table(COLUMNS, [row(rule) for rule in found])
    if options.apply:
        with command.connect(options) as cluster:
            create_acls(cluster, found)
        print(f"{len(found)} rules made")
    return OK
