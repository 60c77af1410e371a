"""`tidelog access APP`: the access rules of an app, where people log in; of an event store, `tidelog store access`."""

from __future__ import annotations

from tidelog.cli import options as command
from tidelog.cli.acls import tell
from tidelog.cli.app_settings import add_app
from tidelog.errors import UsageError

EXAMPLES = """\
  tidelog access shop.py --owner shop --reader web           the rules for who runs it, and for who reads what it makes
  tidelog access shop.py --owner shop --reader web --apply   and makes them
  tidelog access shop.py --reader web --only revenue         of one output
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "access", "The access rules of an app, where people log in.", EXAMPLES, parent=command.connection_options()
    )
    add_app(made)
    made.add_argument("--only", metavar="NAME", action="append", default=[], help="only this output (repeatable)")
    what = "who runs it, by `run`, `rebuild` and `apply` (repeatable)"
    made.add_argument("--owner", metavar="USER", action="append", default=[], help=what)
    what = "who reads its views and topics, waits for them, and sees its status (repeatable)"
    made.add_argument("--reader", metavar="USER", action="append", default=[], help=what)
    made.add_argument("--apply", action="store_true", help="make the rules")
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    if not (options.owner or options.reader):
        raise UsageError("access: say who runs the app by --owner USER, and who reads what it makes by --reader USER")
    from tidelog.pipelines.access_rules import rules
    from tidelog.pipelines.graph import graph_of
    from tidelog.pipelines.loading import load_app

    graph = graph_of(load_app(options.app)).only(options.only)
    return tell(options, rules(graph, owners=options.owner, readers=options.reader))
