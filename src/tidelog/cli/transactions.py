"""`tidelog transactions [list|describe|abort|hanging]`: what is open, since when, and how to end it."""

from __future__ import annotations

from argparse import Namespace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.terminal import confirm, paint, show_each, show_json, show_table
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.client.admin.transactions import Open, TransactionDescription
    from tidelog.client.cluster import Cluster

EXAMPLES = """\
  tidelog transactions                            every transactional id and its state
  tidelog transactions list --state Ongoing       those that are open now
  tidelog transactions describe payments-1        its producer, its time-out, its partitions
  tidelog transactions abort payments-1 --yes     ends what is open, and fences its producer
  tidelog transactions hanging orders             what holds up readers and never ends
  tidelog transactions hanging orders --abort --yes
"""


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser("transactions", "List, describe and abort transactions.", EXAMPLES, parent=reach)
    actions = command.actions(made)
    listing = actions.add_parser(
        "list", parents=[reach], help="transactional ids (the default)", description="List transactional ids."
    )
    listing.add_argument("pattern", nargs="?", metavar="PATTERN", help="only ids that match, such as 'pay*'")
    listing.add_argument("--state", metavar="STATE", help="only those in this state, such as Ongoing")
    listing.add_argument("--quiet", action="store_true", help="ids only")
    command.add_json(listing)
    describe = actions.add_parser(
        "describe", parents=[reach], help="one id in full", description="Show transactional ids in full."
    )
    describe.add_argument("names", nargs="+", metavar="ID", help="which")
    command.add_json(describe)
    abort = actions.add_parser(
        "abort",
        parents=[reach],
        help="abort what is open, and fence its producer",
        description="Abort the open transactions of transactional ids, and fence their producers.",
    )
    abort.add_argument("names", nargs="+", metavar="ID", help="which")
    abort.add_argument("--yes", action="store_true", help="do not ask")
    hanging = actions.add_parser(
        "hanging",
        parents=[reach],
        help="open in a partition, and known to no coordinator",
        description="Find hanging transactions: they hold up readers of committed records and never end.",
    )
    hanging.add_argument("topics", nargs="+", metavar="TOPIC", help="where to look")
    hanging.add_argument("--abort", action="store_true", help="end them")
    hanging.add_argument("--yes", action="store_true", help="do not ask")
    command.add_json(hanging)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments, default="list")
    action = {"list": list_ids, "describe": describe, "abort": abort, "hanging": hanging}[options.action]
    with command.connect(options) as cluster:
        return action(cluster, options)


def list_ids(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import transactions

    listed = [
        one
        for one in transactions.list_all(cluster, [options.state] if options.state else ())
        if not options.pattern or fnmatchcase(one.transactional_id, options.pattern)
    ]
    if options.quiet:
        print("\n".join(one.transactional_id for one in listed), end="\n" if listed else "")
    elif options.json:
        show_json([{"id": one.transactional_id, "state": one.state, "producer": one.producer_id} for one in listed])
    elif listed:
        show_table(("id", "state", "producer"), [(one.transactional_id, one.state, one.producer_id) for one in listed])
    else:
        print("no transactional ids")
    return 0


def describe(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import transactions

    described = [description(transactions.describe(cluster, name)) for name in options.names]
    return show_each(described, show_description, as_json=options.json)


def show_description(one: dict[str, Any]) -> None:
    print(f"{paint(one['id'], 'bold')}  {one['state']}")
    print(f"producer  {one['producer']} epoch {one['epoch']}    time-out  {one['timeout_ms']} ms")
    if one["started"]:
        print(f"started   {one['started']}")
    for place in one["partitions"]:
        print(f"          {place}")


def description(one: TransactionDescription) -> dict[str, Any]:
    return {
        "id": one.transactional_id,
        "state": one.state,
        "producer": one.producer_id,
        "epoch": one.epoch,
        "timeout_ms": one.timeout_ms,
        "started": time_text(one.started_ms),
        "partitions": [str(at) for at in sorted(one.partitions)],
    }


def time_text(wall_ms: int | None) -> str | None:
    from datetime import UTC, datetime

    return None if wall_ms is None else datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")


def abort(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import transactions

    for name in options.names:
        transactions.describe(cluster, name)  # an id that is not known would come to be
        if not options.yes and not confirm(f"abort what {name} has open, and fence its producer?"):
            raise UsageError(f"{name} was left alone; say --yes to abort without being asked")
        transactions.abort(cluster, name)
        print(f"{name} has nothing open, and its producer is fenced")
    return 0


def hanging(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import transactions

    places = [at for topic in options.topics for at in cluster.partitions(topic)]
    found = transactions.hanging(cluster, places)
    if options.json:
        show_json([shown(one) for one in found])
    elif found:
        rows = [tuple(shown(one).values()) for one in found]
        show_table(tuple(shown(found[0])), rows)
    else:
        print("nothing hangs")
    for one in found if options.abort else ():
        if not options.yes and not confirm(f"abort the transaction of producer {one.producer_id} in {one.at}?"):
            raise UsageError("nothing was aborted; say --yes to abort without being asked")
        transactions.abort_hanging(cluster, one)
    return 0


def shown(one: Open) -> dict[str, Any]:
    return {
        "topic": one.at.topic,
        "partition": one.at.partition,
        "producer": one.producer_id,
        "epoch": one.epoch,
        "since offset": one.start_offset,
        "last write": time_text(one.last_ms),
    }
