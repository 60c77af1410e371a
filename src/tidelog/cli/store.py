"""`tidelog store run|follow|access`: owners of an event store's partitions, what follows it, who may write to it."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.acls import tell
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.parts.part import Part
    from tidelog.sourcing.effects import Effects
    from tidelog.sourcing.process_manager import ProcessManager
    from tidelog.sourcing.store import EventStore

EXAMPLES = """\
  tidelog store run shop:seats                         the EventStore `seats` of module shop, until Ctrl-C
  tidelog store run shop.py                            the one EventStore of a file; as many processes as you like
  tidelog store follow shop:payment                    a ProcessManager or Effects, until Ctrl-C
  tidelog store follow shop.py --to sqlite:///shop.db  all of a file; read models go to that store
  tidelog store access seats --owner shop --sender web           the rules that keep others out
  tidelog store access seats --owner shop --sender web --apply   and makes them
  tidelog store access seats --follower crm --follows payment    of who runs what follows it
"""


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser("store", "Run an event store.", EXAMPLES, parent=reach)
    actions = command.actions(made)
    what = "own partitions of a store: decide commands, write events, answer"
    running = actions.add_parser("run", parents=[reach], help=what, description=f"{what[0].upper()}{what[1:]}.")
    running.add_argument("store", metavar="MODULE:STORE", help="an EventStore; or FILE.py, FILE.py:STORE")
    running.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    what = "run process managers, effects and read models of a module"
    following = actions.add_parser("follow", parents=[reach], help=what, description=f"{what[0].upper()}{what[1:]}.")
    following.add_argument("module", metavar="MODULE[:NAME]", help="all that it has, or one; or FILE.py, FILE.py:NAME")
    following.add_argument("--to", metavar="URL", help="the store of its read models: sqlite:///FILE, postgresql://...")
    following.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    what = "the access rules of a store, where people log in"
    access = actions.add_parser("access", parents=[reach], help=what, description=f"{what[0].upper()}{what[1:]}.")
    access.add_argument("store", metavar="STORE", help="its name")
    access.add_argument("--owner", metavar="USER", action="append", default=[], help="who runs it (repeatable)")
    access.add_argument("--sender", metavar="USER", action="append", default=[], help="who sends commands (repeatable)")
    what = "who runs what follows it, by `store follow` (repeatable); with --follows"
    access.add_argument("--follower", metavar="USER", action="append", default=[], help=what)
    what = "a process manager, effects or a read model that the followers run (repeatable)"
    access.add_argument("--follows", metavar="NAME", action="append", default=[], help=what)
    access.add_argument("--apply", action="store_true", help="make the rules")
    command.add_json(access)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    return {"run": _run, "follow": _follow, "access": access}[options.action](options)


def _run(options: Namespace) -> int:
    from tidelog.sourcing.finding_store import find_store
    from tidelog.sourcing.store_part import StorePart

    store = find_store(options.store)
    _reach(options, store)
    return _supervise(options, [StorePart(store)], store, f"store {store.name} runs")


def _follow(options: Namespace) -> int:
    from tidelog.sourcing.event_following import FollowerPart
    from tidelog.sourcing.finding_store import find_followers
    from tidelog.sourcing.read_model import ReadModel

    found = find_followers(options.module)
    models = [one.name for one in found if isinstance(one, ReadModel)]
    if models and options.to is None:
        raise UsageError(
            f"store follow: where do the rows of {', '.join(models)} go? say --to URL, as sqlite:///shop.db"
        )
    for one in found:
        _reach(options, one.store if isinstance(one, ReadModel) else one)
    loops = [one.part(options.to) if isinstance(one, ReadModel) else one for one in found]
    said = ", ".join(f"{one.kind} {one.name}" for one in loops)
    said = f"{said} {'runs' if len(loops) == 1 else 'run'}"
    return _supervise(options, [FollowerPart(one) for one in loops], found[0].store, said)


def _reach(options: Namespace, what: EventStore[Any] | ProcessManager | Effects) -> None:
    import os

    bootstrap = options.bootstrap or os.environ.get("TIDELOG_BOOTSTRAP")
    if bootstrap:
        what.reach(bootstrap, command.security(options))


def _supervise(options: Namespace, parts: list[Part], store: EventStore[Any], said: str) -> int:
    """Until it is told to stop. Status is told, and commands are taken (`parts/running.py`)."""
    from tidelog.cli.run import say_in
    from tidelog.logger import Logger, hear
    from tidelog.parts.running import Supervisor
    from tidelog.process import stop_on_signals, when_parent_ends

    log = Logger(json=False)
    hear(log)
    stopping = stop_on_signals()
    if options.with_parent:
        when_parent_ends(stopping.set)
    with store.connect() as cluster:
        cluster.is_tidelog()  # an address that is wrong is told at once; later a broker that is away is waited for
        print(said, flush=True)
        return Supervisor(parts, cluster, say_in(log), stopping).loop()


def access(options: Namespace) -> int:
    from tidelog.sourcing.access_rules import rules
    from tidelog.sourcing.store_topics import StoreTopics, checked_name

    if not (options.owner or options.sender or options.follower):
        raise UsageError(
            "store access: say who runs it by --owner USER, who sends commands by --sender USER, and who runs what"
            " follows it by --follower USER"
        )
    if bool(options.follower) != bool(options.follows):
        raise UsageError("store access: say who follows it by --follower USER, and what he runs by --follows NAME")
    found = rules(
        StoreTopics(checked_name(options.store)),
        owners=options.owner,
        senders=options.sender,
        followers=options.follower,
        follows=options.follows,
    )
    return tell(options, found)
