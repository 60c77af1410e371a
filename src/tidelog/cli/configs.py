"""`tidelog configs [describe|alter] topic|broker|group NAME`: settings, where each comes from, and changing them."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli import suggestions
from tidelog.cli.terminal import show_json, show_table
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster

EXAMPLES = """\
  tidelog configs describe topic orders            what differs from the defaults
  tidelog configs describe broker --all            every setting of the broker
  tidelog configs describe topic orders --key retention.ms
  tidelog configs alter topic orders --set retention.ms=86400000 --unset segment.bytes
"""

KINDS = ("topic", "broker", "group")
VALUE_WIDTH = 60


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser(
        "configs", "Show and change the settings of topics, brokers and groups.", EXAMPLES, parent=reach
    )
    actions = command.actions(made)
    describe = actions.add_parser("describe", parents=[reach], help="show settings", description="Show settings.")
    alter = actions.add_parser("alter", parents=[reach], help="change settings", description="Change settings.")
    for each in (describe, alter):
        each.add_argument("kind", choices=KINDS, metavar="KIND", help=f"of what: {', '.join(KINDS)}")
        each.add_argument(
            "name",
            nargs="?",
            metavar="NAME",
            help="the topic, the group, or the broker's node id (default: the only broker)",
        )
    describe.add_argument("--all", action="store_true", help="defaults too")
    describe.add_argument("--key", metavar="KEY", action="append", help="only this setting (may be repeated)")
    command.add_json(describe)
    command.add_set(alter, "a new value")
    alter.add_argument(
        "--unset", metavar="KEY", action="append", default=[], help="back to the default (may be repeated)"
    )
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    if options.kind == "broker" and options.name is not None and not options.name.isdecimal():
        raise UsageError(
            f"configs: {options.name!r} is not a broker's node id; it is a number, or left out for the only broker"
        )
    with command.connect(options) as cluster:
        name = options.name if options.name is not None else only_broker(cluster, options.kind)
        with suggestions.misspelt(cluster, [name] if options.kind == "topic" else ()):
            return (describe if options.action == "describe" else alter)(cluster, name, options)


def only_broker(cluster: Cluster, kind: str) -> str:
    if kind != "broker":
        raise UsageError(f"configs: which {kind}? name it")
    cluster.retry(lambda: cluster.ask_metadata(()))
    if len(cluster.nodes) != 1:
        raise UsageError(f"configs: which broker? brokers are {', '.join(map(str, sorted(cluster.nodes)))}")
    return str(next(iter(cluster.nodes)))


def describe(cluster: Cluster, name: str, options: Namespace) -> int:
    from tidelog.client.admin import configs

    found = configs.describe(cluster, configs.KINDS[options.kind], name, keys=options.key)
    command.check_known(options.key or (), {one.name for one in found}, options.kind, name)
    shown = [one for one in found if options.all or options.key or not one.is_default]
    if options.json:
        show_json(
            {
                one.name: {"value": one.value, "source": one.source, "read_only": one.read_only, "type": one.type}
                for one in shown
            }
        )
    elif shown:
        rows = [(one.name, "(hidden)" if one.sensitive else shortened(one.value or ""), one.source) for one in shown]
        show_table(("setting", "value", "source"), rows)
    else:
        print("all settings are defaults; --all shows them")
    return 0


def shortened(value: str) -> str:
    return value if len(value) <= VALUE_WIDTH else value[: VALUE_WIDTH - 1] + "…"


def alter(cluster: Cluster, name: str, options: Namespace) -> int:
    from tidelog.client.admin import configs

    if not (options.set or options.unset):
        raise UsageError("configs alter: nothing to change; give --set or --unset")
    command.check_unset(cluster, options.kind, name, options.unset)
    configs.alter(cluster, configs.KINDS[options.kind], name, set=dict(options.set), delete=options.unset)
    print(f"{options.kind} {name} is changed")
    return 0
