"""`tidelog quotas [list|set|remove]`: how much users and client ids may use."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli.terminal import show_json, show_table
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster

EXAMPLES = """\
  tidelog quotas set --user alice --producer-byte-rate 1000000
  tidelog quotas set --user-default --consumer-byte-rate 5000000      each user without a quota of its own
  tidelog quotas set --user alice --client-id batch --request-percentage 20
  tidelog quotas remove --user alice
"""

KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
KINDS = ("user", "client-id")


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser("quotas", "How much users and client ids may use.", EXAMPLES, parent=reach)
    actions = command.actions(made)
    listed = actions.add_parser("list", parents=[reach], help="quotas (the default)")
    command.add_json(listed)
    change = actions.add_parser("set", parents=[reach], help="give somebody a quota")
    remove = actions.add_parser("remove", parents=[reach], help="take somebody's quotas back")
    for each in (change, remove):
        for kind in KINDS:
            each.add_argument(f"--{kind}", metavar="NAME", help=f"whom: this {kind}")
            each.add_argument(
                f"--{kind}-default", action="store_true", help=f"whom: every {kind} without one of its own"
            )
    for key in KEYS:
        unit = "percent of the broker's loop" if key == "request_percentage" else "bytes a second"
        change.add_argument(f"--{key.replace('_', '-')}", metavar="N", type=above_zero, help=unit)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments, default="list")
    with command.connect(options) as cluster:
        return show(cluster, options) if options.action == "list" else alter(cluster, options)


def show(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import access

    found = access.quotas(cluster)
    if options.json:
        show_json([{"entity": dict(one.entity), "values": dict(one.values)} for one in found])
    elif found:
        rows = [(named(one.entity), *(number(one.values.get(key)) for key in KEYS)) for one in found]
        show_table(("for", *KEYS), rows)
    else:
        print("no quotas")
    return 0


def alter(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import access

    entity = entity_of(options)
    if options.action == "set":
        values: dict[str, float | None] = {key: getattr(options, key) for key in KEYS if getattr(options, key)}
        if not values:
            raise UsageError(f"quotas set: give one of {', '.join('--' + key.replace('_', '-') for key in KEYS)}")
    else:
        kept = next((one.values for one in access.quotas(cluster) if one.entity == entity), None)
        if kept is None:
            raise UsageError(f"{named(entity)} does not have quotas; `tidelog quotas` lists all")
        values = dict.fromkeys(kept)
    access.alter_quotas(cluster, entity, values)
    print(f"the quotas of {named(entity)} are {'set' if options.action == 'set' else 'gone'}")
    return 0


def entity_of(options: Namespace) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for kind in KINDS:
        attribute = kind.replace("-", "_")
        name, default = getattr(options, attribute), getattr(options, f"{attribute}_default")
        if name is not None and default:
            raise UsageError(f"quotas: --{kind} or --{kind}-default, not both")
        if name is not None or default:
            entity[kind] = name
    if not entity:
        raise UsageError("quotas: for whom? give --user, --client-id or both, by name or as -default")
    return entity


def named(entity: Mapping[str, str | None]) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity.items())


def number(value: float | None) -> int | float | None:
    return int(value) if value is not None and value == int(value) else value


def above_zero(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return value
