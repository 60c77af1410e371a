"""`tidelog queues [list|describe]`: share groups, and where their records are."""

from __future__ import annotations

from argparse import Namespace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.terminal import paint, show_each, show_json, show_table

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster

EXAMPLES = """\
  tidelog queues                        every share group: how much is left, in flight, redelivered, delayed, dead
  tidelog queues 'mail*' --json
  tidelog queues describe mailers       its members, and each partition
"""
DEAD_LETTERS = "errors.deadletterqueue.topic.name"
FIGURES = ("in_flight", "redelivered", "delayed", "dying")


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser("queues", "List and describe share groups.", EXAMPLES, parent=reach)
    actions = command.actions(made)
    listing = actions.add_parser(
        "list", parents=[reach], help="share groups and where their records are (the default)", description="List them."
    )
    listing.add_argument("pattern", nargs="?", metavar="PATTERN", help="only names that match, such as 'mail*'")
    command.add_json(listing)
    describe = actions.add_parser(
        "describe", parents=[reach], help="members and partitions", description="Show share groups in full."
    )
    describe.add_argument("names", nargs="+", metavar="GROUP", help="which")
    command.add_json(describe)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments, default="list")
    with command.connect(options) as cluster:
        return {"list": list_queues, "describe": describe}[options.action](cluster, options)


def list_queues(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import groups

    listed = [one.group for one in groups.list_all(cluster) if one.kind == "share"]
    named = [name for name in listed if not options.pattern or fnmatchcase(name, options.pattern)]
    found = [summary(cluster, name) for name in named]
    if options.json:
        show_json(found)
    elif found:
        show_table(list(found[0]), [tuple(one.values()) for one in found])
    else:
        print("no share groups")
    return 0


def summary(cluster: Cluster, name: str) -> dict[str, Any]:
    """What the broker does not tell, because it is not ours or has just begun, is None."""
    from tidelog.client.admin import share_groups

    group, offsets = share_groups.describe(cluster, name), share_groups.offsets(cluster, name)
    lags = [one.lag for one in offsets if one.lag is not None]
    told = figures(cluster).get(name, {})
    return {
        "group": name,
        "state": group.state,
        "members": len(group.members),
        "left": sum(lags) if lags else None,
        **{key.replace("_", " "): told.get(key) for key in FIGURES[:3]},
        "dead": dead(cluster, name),
    }


def figures(cluster: Cluster) -> dict[str, dict[str, int]]:
    from tidelog.control.status import read_status

    reports = [one.figures.get("queues", {}) for one in read_status(cluster) if one.kind == "broker"]
    return reports[0] if reports else {}


def dead(cluster: Cluster, name: str) -> int | None:
    """How many letters its dead-letter topic has; None where it has no such topic."""
    from tidelog.client.admin import configs
    from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
    from tidelog.errors import BrokerError

    try:
        own = {one.name: one.value for one in configs.describe(cluster, configs.GROUP, name)}
        topic = own.get(DEAD_LETTERS)
        if not topic:
            return None
        partitions = cluster.partitions(topic)
        starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
        ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    except BrokerError:
        return None
    return sum(ends[at].offset - starts[at].offset for at in partitions)


def describe(cluster: Cluster, options: Namespace) -> int:
    described = [description(cluster, name) for name in options.names]
    return show_each(described, show_description, as_json=options.json)


def description(cluster: Cluster, name: str) -> dict[str, Any]:
    from tidelog.client.admin import share_groups

    group = share_groups.describe(cluster, name)
    return {
        **summary(cluster, name),
        "clients": [
            {"member": one.member_id, "client": one.client_id, "host": one.host, "partitions": len(one.assigned)}
            for one in group.members
        ],
        "partitions": [
            {"topic": one.at.topic, "partition": one.at.partition, "start": one.start, "left": one.lag}
            for one in share_groups.offsets(cluster, name)
        ],
    }


def show_description(one: dict[str, Any]) -> None:
    print(f"{paint(one['group'], 'bold')}  {one['state']}")
    for key in ("left", "in flight", "redelivered", "delayed", "dead"):
        print(f"{key:<12}{'-' if one[key] is None else one[key]}")
    for rows in (one["partitions"], one["clients"]):
        if rows:
            print()
            show_table(list(rows[0]), [tuple(row.values()) for row in rows])
