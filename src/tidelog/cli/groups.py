"""`tidelog groups [list|describe|delete]`: who reads, and how far behind."""

from __future__ import annotations

from argparse import Namespace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.terminal import confirm, paint, show_each, show_json, show_table, size_text, span_text
from tidelog.errors import BrokerError, UsageError

if TYPE_CHECKING:
    from tidelog.client.admin.groups import GroupDescription
    from tidelog.client.cluster import Cluster
    from tidelog.control.lag import Unread

EXAMPLES = """\
  tidelog groups                        every group, its state and its lag
  tidelog groups describe billing       members, lag by partition, and the time left until retention takes it
  tidelog groups delete billing --yes
  tidelog reset billing orders --to earliest      (see `tidelog reset --help`)
"""


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser("groups", "List, describe and delete consumer groups.", EXAMPLES, parent=reach)
    actions = command.actions(made)
    listing = actions.add_parser(
        "list", parents=[reach], help="groups with their lag (the default)", description="List groups."
    )
    listing.add_argument("pattern", nargs="?", metavar="PATTERN", help="only names that match, such as 'bill*'")
    listing.add_argument("--quiet", action="store_true", help="names only")
    command.add_json(listing)
    describe = actions.add_parser(
        "describe", parents=[reach], help="members and lag by partition", description="Show groups in full."
    )
    describe.add_argument("names", nargs="+", metavar="GROUP", help="which")
    command.add_json(describe)
    delete = actions.add_parser(
        "delete", parents=[reach], help="delete groups", description="Delete groups and their offsets."
    )
    delete.add_argument("names", nargs="+", metavar="GROUP", help="which")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments, default="list")
    action = {"list": list_groups, "describe": describe, "delete": delete}[options.action]
    with command.connect(options) as cluster:
        return action(cluster, options)


def list_groups(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import groups
    from tidelog.control import lag

    listed = [one for one in groups.list_all(cluster) if not options.pattern or fnmatchcase(one.group, options.pattern)]
    if options.quiet:
        print("\n".join(one.group for one in listed), end="\n" if listed else "")
        return 0
    held = {one.group: groups.committed(cluster, one.group) for one in listed}
    unread = lag.behind(cluster, {group: {at: one.offset for at, one in held[group].items()} for group in held})
    found = [{"group": one.group, "kind": one.kind, "state": one.state, **totals(unread[one.group])} for one in listed]
    if options.json:
        show_json(found)
    elif found:
        show_groups(found)
    else:
        print("no groups")
    return 0


def totals(unread: list[Unread]) -> dict[str, int | None]:
    behind = [one.records for one in unread if one.records is not None]
    return {
        "topics": len({one.at.topic for one in unread}),
        "partitions": len(unread),
        "lag": sum(behind) if behind else None,
        "lost": sum(one.lost for one in unread),
    }


def show_groups(found: list[dict[str, Any]]) -> None:
    """What was lost has a column only where something was."""
    lost = any(one["lost"] for one in found)
    names = [name for name in found[0] if lost or name != "lost"]
    show_table(names, [tuple(one[name] for name in names) for one in found])


def describe(cluster: Cluster, options: Namespace) -> int:
    from tidelog.control import lag

    described = []
    for name in options.names:
        group = found(cluster, name)
        described.append(description(group, lag.of_group(cluster, name)))
    return show_each(described, show_description, as_json=options.json)


def found(cluster: Cluster, name: str) -> GroupDescription:
    from tidelog.cli.suggestions import missing_group
    from tidelog.client.admin import groups
    from tidelog.wire.error_code import ErrorCode

    try:
        return groups.describe(cluster, name)
    except BrokerError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        raise missing_group(cluster, name) from error


def description(group: GroupDescription, unread: list[Unread]) -> dict[str, Any]:
    reader = {at: member.client_id for member in group.members for at in member.assigned}
    partitions = {
        one.at: {
            "committed": one.committed,
            "end": one.end,
            "lag": one.records,
            "bytes": one.bytes,
            "age_ms": one.age_ms,
            "left_ms": one.left_ms,
            "lost": one.lost,
            "client": reader.get(one.at),
        }
        for one in unread
    }
    for at, client in reader.items():
        nothing = dict.fromkeys(("committed", "end", "lag", "bytes", "age_ms", "left_ms"))
        partitions.setdefault(at, {**nothing, "lost": 0, "client": client})
    return {
        "group": group.group,
        "kind": group.kind,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": [str(at) for at in member.assigned],
            }
            for member in group.members
        ],
        "partitions": [{"topic": at.topic, "partition": at.partition, **partitions[at]} for at in sorted(partitions)],
    }


def show_description(one: dict[str, Any]) -> None:
    print(f"{paint(one['group'], 'bold')}  {one['state']}  {paint(one['kind'], 'dim')}")
    print(f"coordinator  {one['coordinator']}" + (f"    assignor  {one['assignor']}" if one["assignor"] else ""))
    if one["partitions"]:
        print()
        show_partitions(one["partitions"])
    if one["members"]:
        print()
        rows = [(m["client"], m["host"], m["member"], m["instance"], len(m["partitions"])) for m in one["members"]]
        show_table(("client", "host", "member", "instance", "partitions"), rows)


def show_partitions(partitions: list[dict[str, Any]]) -> None:
    """What was lost has a column only where something was."""
    plain = ("topic", "partition", "committed", "end", "lag")
    lost = ("lost",) if any(line["lost"] for line in partitions) else ()
    rows = [
        (
            *(line[name] for name in plain),
            size_text(line["bytes"]) if line["bytes"] is not None else None,
            span_text(line["age_ms"]) if line["age_ms"] is not None else None,
            span_text(line["left_ms"]) if line["left_ms"] is not None else None,
            *(line[name] for name in lost),
            line["client"],
        )
        for line in partitions
    ]
    show_table((*plain, "bytes", "age", "time left", *lost, "client"), rows)


def delete(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import groups

    for name in options.names:
        if not options.yes and not confirm(f"delete group {name} and its offsets?"):
            raise UsageError(f"group {name} was not deleted; say --yes to delete without being asked")
        groups.delete(cluster, name)
        print(f"{name} is deleted")
    return 0
