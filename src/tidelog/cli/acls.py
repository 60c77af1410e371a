"""`tidelog acls [list|add|remove]`: who may do what. Rules are Kafka's; the broker has authorizer.class.name set."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli.terminal import confirm, show_json, show_table
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.client.admin.access import Acl, AclFilter
    from tidelog.client.cluster import Cluster

EXAMPLES = """\
  tidelog acls add --user alice --topic orders --operation write
  tidelog acls add --user bob --topic orders --group billing --operation read
  tidelog acls add --user ci --topic test- --prefixed --operation all
  tidelog acls list --topic orders                     the rules that count for the topic
  tidelog acls remove --user bob --topic orders
"""

ANYBODY = "*"
KINDS = ("topic", "group", "transactional-id")


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser("acls", "Who may do what.", EXAMPLES, parent=reach)
    actions = command.actions(made)
    listed = actions.add_parser("list", parents=[reach], help="rules (the default)")
    command.add_json(listed)
    add = actions.add_parser("add", parents=[reach], help="allow or deny something")
    remove = actions.add_parser("remove", parents=[reach], help="take rules back")
    remove.add_argument("--yes", action="store_true", help="do not ask")
    for each in (listed, add, remove):
        each.add_argument("--user", metavar="NAME", help="whom the rule is for; * is everybody")
        each.add_argument("--host", metavar="ADDRESS", help="from where (default: everywhere)")
        for kind in KINDS:
            each.add_argument(f"--{kind}", metavar="NAME", action="append", default=[], help=f"a {kind}; * is all")
        each.add_argument("--cluster", action="store_true", help="the cluster itself")
        each.add_argument("--prefixed", action="store_true", help="names are beginnings of names")
        each.add_argument("--operation", metavar="OPERATION", action="append", default=[], help="read, write, all, ...")
        each.add_argument("--deny", action="store_true", help="deny in place of allow")
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments, default="list")
    with command.connect(options) as cluster:
        return {"list": show, "add": add, "remove": remove}[options.action](cluster, options)


def show(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import access

    found = [acl for wanted in filters(options, access.MATCH) for acl in access.acls(cluster, wanted)]
    if options.json:
        show_json([dict(zip(COLUMNS, row(acl), strict=True)) for acl in dict.fromkeys(found)])
    elif found:
        show_table(COLUMNS, [row(acl) for acl in dict.fromkeys(found)])
    else:
        print("no rules")
    return 0


COLUMNS = ("permission", "principal", "host", "operation", "resource", "pattern", "name")


def row(acl: Acl) -> tuple[str, ...]:
    from tidelog.client.admin import access

    def word(table: dict[str, int], number: int) -> str:
        return next((name for name, one in table.items() if one == number), str(number))

    return (
        word(access.PERMISSIONS, acl.permission),
        acl.principal,
        acl.host,
        word(access.OPERATIONS, acl.operation),
        word(access.RESOURCES, acl.resource),
        word(access.PATTERNS, acl.pattern),
        acl.name,
    )


def add(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import access

    named = resources(options)
    if not (options.user and named and options.operation):
        raise UsageError("acls add: give --user, what it is about (--topic, --group, ...) and --operation")
    pattern = access.PREFIXED if options.prefixed else access.LITERAL
    permission = access.PERMISSIONS["deny" if options.deny else "allow"]
    made = [
        access.Acl(kind, pattern, name, f"User:{options.user}", options.host or ANYBODY, operation, permission)
        for kind, name in named
        for operation in operations(options)
    ]
    access.create_acls(cluster, made)
    print(f"{len(made)} rule{'s' if len(made) > 1 else ''} added")
    return 0


def remove(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import access

    wanted = filters(options, access.PREFIXED if options.prefixed else access.LITERAL)
    found = [acl for one in wanted for acl in access.acls(cluster, one)]
    if not found:
        raise UsageError("acls remove: no rule fits; `tidelog acls` lists them")
    if not options.yes:
        show_table(COLUMNS, [row(acl) for acl in found])
        if not confirm(f"remove {len(found)} rules?"):
            raise UsageError("nothing is removed; say --yes to remove without being asked")
    print(f"{sum(access.delete_acls(cluster, one) for one in wanted)} rules removed")
    return 0


def tell(options: Namespace, rules: Sequence[Acl]) -> int:
    """What is to be allowed: shown, and made where --apply says so."""
    from tidelog.client.admin import access

    if options.json:
        show_json([dict(zip(COLUMNS, row(rule), strict=True)) for rule in rules])
    else:
        show_table(COLUMNS, [row(rule) for rule in rules])
    if options.apply:
        with command.connect(options) as cluster:
            access.create_acls(cluster, list(rules))
        print(f"{len(rules)} rules made", file=sys.stderr if options.json else sys.stdout)
    return 0


def resources(options: Namespace) -> list[tuple[int, str]]:
    from tidelog.client.admin import access

    named = [(access.RESOURCES[kind], name) for kind in KINDS for name in getattr(options, kind.replace("-", "_"))]
    return named + ([(access.RESOURCES["cluster"], access.CLUSTER_NAME)] if options.cluster else [])


def operations(options: Namespace) -> list[int]:
    from tidelog.client.admin import access
    from tidelog.config import nearest

    for name in options.operation:
        if name.lower() not in access.OPERATIONS:
            advice = nearest(name.lower(), access.OPERATIONS, f"operations are {', '.join(access.OPERATIONS)}")
            raise UsageError(f"acls: {name!r} is not an operation; {advice}")
    return [access.OPERATIONS[name.lower()] for name in options.operation]


def filters(options: Namespace, pattern: int) -> list[AclFilter]:
    from tidelog.client.admin import access

    principal = f"User:{options.user}" if options.user else None
    permission = access.PERMISSIONS["deny"] if options.deny else access.ANY
    named: list[tuple[int, str | None]] = [*resources(options)] or [(access.ANY, None)]
    made = []
    for kind, name in named:
        for operation in operations(options) or [access.ANY]:
            kept = pattern if name is not None else access.ANY
            made.append(access.AclFilter(kind, kept, name, principal, options.host, operation, permission))
    return made
