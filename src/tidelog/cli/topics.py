"""`tidelog topics [list|create|delete|alter|describe|truncate]`."""

from __future__ import annotations

import argparse
from argparse import Namespace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.place import PLACE_HELP, parse_place
from tidelog.cli.suggestions import misspelt
from tidelog.cli.terminal import confirm, paint, show_each, show_json, show_table, size_text
from tidelog.cli.truncation import truncate
from tidelog.errors import BrokerError, UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.metadata import TopicMetadata, TopicPartition

EXAMPLES = """\
  tidelog topics                                         every topic
  tidelog topics 'order*' --json                         those whose names match
  tidelog topics create orders --partitions 3
  tidelog topics create metrics --set tidelog.durability=memory --set retention.ms=3600000
  tidelog topics alter orders --set retention.ms=86400000 --unset segment.bytes --partitions 6
  tidelog topics describe orders
  tidelog topics delete orders --yes
  tidelog topics truncate orders --before 7d             delete what is older than a week; asks first
"""

DURABILITY = {
    "disk": "disk: an ack means synced",
    "memory": "memory: an ack means in the page cache; a power cut may lose the latest records",
}


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser(
        "topics", "List, create, delete, alter, describe and truncate topics.", EXAMPLES, parent=reach
    )
    actions = command.actions(made)
    listing = actions.add_parser(
        "list", parents=[reach], help="topics with their size (the default)", description="List topics."
    )
    listing.add_argument("pattern", nargs="?", metavar="PATTERN", help="only names that match, such as 'order*'")
    listing.add_argument("--internal", action="store_true", help="internal topics too")
    listing.add_argument("--quiet", action="store_true", help="names only")
    command.add_json(listing)
    create = actions.add_parser("create", parents=[reach], help="make topics", description="Make topics.")
    create.add_argument("names", nargs="+", metavar="NAME", help="its name")
    create.add_argument(
        "--partitions", type=command.positive, default=-1, metavar="N", help="how many (default: the broker's)"
    )
    create.add_argument(
        "--replication", type=command.positive, default=-1, metavar="N", help="copies (default: the broker's)"
    )
    create.add_argument("--if-missing", action="store_true", help="do not fail if the topic exists already")
    command.add_set(create, "a setting of the topic")
    delete = actions.add_parser(
        "delete", parents=[reach], help="delete topics", description="Delete topics and all their records."
    )
    delete.add_argument("names", nargs="+", metavar="TOPIC", help="which")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    alter = actions.add_parser(
        "alter", parents=[reach], help="change settings, add partitions", description="Change a topic."
    )
    alter.add_argument("names", nargs="+", metavar="TOPIC", help="which")
    alter.add_argument(
        "--partitions", type=command.positive, metavar="N", help="the new number; it must be more than now"
    )
    command.add_set(alter, "a setting of the topic")
    alter.add_argument(
        "--unset", metavar="KEY", action="append", default=[], help="back to the default (may be repeated)"
    )
    describe = actions.add_parser(
        "describe", parents=[reach], help="partitions, settings, durability", description="Show topics in full."
    )
    describe.add_argument("names", nargs="+", metavar="TOPIC", help="which")
    command.add_json(describe)
    add_truncate(actions, reach)
    return made


def add_truncate(actions: argparse._SubParsersAction[command.Parser], reach: command.Parser) -> None:
    truncate = actions.add_parser(
        "truncate", parents=[reach], help="delete old records", description="Delete a topic's records before a place."
    )
    truncate.add_argument("topic", metavar="TOPIC", help="which")
    place = f"{PLACE_HELP}, or -N for all but the last N of each partition"
    truncate.add_argument("--before", required=True, metavar="PLACE", type=parse_place, help=place)
    truncate.add_argument(
        "--partition", metavar="N", type=command.not_negative, help="only of this one (default: of all)"
    )
    truncate.add_argument("--yes", action="store_true", help="do not ask")
    truncate.add_argument("--dry-run", action="store_true", help="show it, and leave everything as it is")
    command.add_json(truncate)


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments, default="list")
    names = options.names if options.action in NAMED else ()
    with command.connect(options) as cluster, misspelt(cluster, names):
        return ACTIONS[options.action](cluster, options)


def list_topics(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import topics

    listed = [topic for topic in topics.describe(cluster) if not hidden(topic)]
    if options.internal:
        listed = every_topic(cluster)
    if options.pattern:
        listed = [topic for topic in listed if fnmatchcase(topic.name, options.pattern)]
    if options.quiet:
        print("\n".join(topic.name for topic in listed), end="\n" if listed else "")
        return 0
    summaries = summarise(cluster, listed)
    if options.json:
        show_json(summaries)
    elif summaries:
        rows = [(s["topic"], s["partitions"], s["records"], size_or_none(s["bytes"])) for s in summaries]
        show_table(("topic", "partitions", "records", "size"), rows)
    else:
        print("no topics; `tidelog topics create NAME` makes one")
    return 0


def every_topic(cluster: Cluster) -> list[TopicMetadata]:
    """Tidelog does not name its own topics to who asks for all, but its log dirs do."""
    from tidelog.client.admin import topics

    held = {at.topic for at in sizes_of(cluster)}
    return topics.describe(cluster, sorted(held.union(topics.names(cluster))))


def hidden(topic: TopicMetadata) -> bool:
    """Kafka flags its own; ours begin with two underscores as well."""
    return topic.internal or topic.name.startswith("__")


def summarise(cluster: Cluster, listed: list[TopicMetadata]) -> list[dict[str, Any]]:
    records = totals({at: end - start for at, (start, end) in spans_of(cluster, listed).items()})
    sizes = totals(sizes_of(cluster))
    return [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "records": records.get(topic.name),
            "bytes": sizes.get(topic.name),
        }
        for topic in listed
    ]


def totals(by_partition: dict[TopicPartition, int]) -> dict[str, int]:
    by_topic: dict[str, int] = {}
    for at, number in by_partition.items():
        by_topic[at.topic] = by_topic.get(at.topic, 0) + number
    return by_topic


def spans_of(cluster: Cluster, listed: list[TopicMetadata]) -> dict[TopicPartition, tuple[int, int]]:
    """First and next offset of every partition; offsets count records, or a little more (compaction, transactions)."""
    from tidelog.client.metadata import TopicPartition
    from tidelog.client.offsets import EARLIEST, LATEST, list_offsets

    partitions = [TopicPartition(topic.name, index) for topic in listed if topic.led for index in topic.partitions]
    starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    return {at: (starts[at].offset, ends[at].offset) for at in partitions}


def sizes_of(cluster: Cluster) -> dict[TopicPartition, int]:
    """Bytes on disk, largest replica first; nothing where the broker does not say."""
    from tidelog.client.admin import brokers

    sizes: dict[TopicPartition, int] = {}
    try:
        for held in brokers.log_dirs(cluster):
            for at, size in held.sizes.items():
                sizes[at] = max(size, sizes.get(at, 0))
    except BrokerError:
        return {}
    return sizes


def size_or_none(size: int | None) -> str | None:
    return None if size is None else size_text(size)


def create(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import topics
    from tidelog.wire.error_code import ErrorCode

    for name in options.names:
        try:
            topic = topics.create(
                cluster, name, partitions=options.partitions, replication=options.replication, configs=dict(options.set)
            )
        except BrokerError as error:
            if not options.if_missing or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            print(f"{name} is there already")
        else:
            print(f"{name} has {len(topic.partitions)} partition{'s' if len(topic.partitions) > 1 else ''}")
    return 0


def delete(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import topics

    listed = topics.describe(cluster, options.names)
    records = totals({at: end - start for at, (start, end) in spans_of(cluster, listed).items()})
    for name in options.names:
        if not options.yes and not confirm(f"delete {name} and its {records.get(name, 'unknown')} records?"):
            raise UsageError(f"{name} was not deleted; say --yes to delete without being asked")
        topics.delete(cluster, name)
        print(f"{name} is deleted")
    return 0


def alter(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import configs, topics

    if not (options.set or options.unset or options.partitions):
        raise UsageError("topics alter: nothing to change; give --set, --unset or --partitions")
    for name in options.names:
        if options.set or options.unset:
            command.check_unset(cluster, "topic", name, options.unset)
            configs.alter(cluster, configs.TOPIC, name, set=dict(options.set), delete=options.unset)
        if options.partitions:
            topics.add_partitions(cluster, name, options.partitions)
        print(f"{name} is changed")
    return 0


def describe(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import topics

    described = [description(cluster, topic) for topic in topics.describe(cluster, options.names)]
    return show_each(described, show_description, as_json=options.json)


def description(cluster: Cluster, topic: TopicMetadata) -> dict[str, Any]:
    from tidelog.client.admin import configs
    from tidelog.client.metadata import TopicPartition

    settings = configs.describe(cluster, configs.TOPIC, topic.name)
    spans, sizes = spans_of(cluster, [topic]), sizes_of(cluster)
    partitions = []
    for index, partition in topic.partitions.items():
        start, end = spans.get(TopicPartition(topic.name, index), (None, None))
        partitions.append(
            {
                "partition": index,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "start": start,
                "end": end,
                "bytes": sizes.get(TopicPartition(topic.name, index)),
                "replicas": list(partition.replicas),
                "in_sync": list(partition.in_sync),
            }
        )
    return {
        "topic": topic.name,
        "id": topic.topic_id.hex(),
        "internal": topic.internal,
        "durability": durability({one.name: one.value for one in settings}, topic),
        "settings": {one.name: {"value": one.value, "source": one.source} for one in settings if not one.is_default},
        "overload": overload(cluster, topic.name),
        "partitions": partitions,
    }


def durability(settings: dict[str, str | None], topic: TopicMetadata) -> str:
    """What an ack of this topic means; where there is no `tidelog.durability`, read off Kafka's own settings."""
    ours = settings.get("tidelog.durability")
    if ours is not None:
        return DURABILITY.get(ours, ours)
    copies = max((len(partition.replicas) for partition in topic.partitions.values()), default=0)
    where = f"{copies} replica{'s' if copies != 1 else ''}"
    if settings.get("flush.messages") == "1":
        return f"disk of {where}: flush.messages=1"
    return f"page cache of {where}"


def overload(cluster: Cluster, topic: str) -> dict[str, Any] | None:
    """What `tidelog.overload.policy` did in this topic, as its broker last told; None where it did nothing."""
    from tidelog.control.status import read_status

    told = [one.figures.get("overload", {}).get(topic) for one in read_status(cluster) if one.kind == "broker"]
    return next((one for one in told if one is not None), None)


def show_overload(told: dict[str, Any]) -> None:
    figures = {
        "batches held": told["held"],
        "refused": told["refused"],
        "records dropped": told["dropped"],
        **{f"lost to {group}": records for group, records in told["lost"].items()},
        **{f"not waited for: {group}": "" for group in told["dead"]},
    }
    shown = [f"{name} {figure}".strip() for name, figure in figures.items() if figure or figure == ""]
    if shown:
        print(f"overload    {', '.join(shown)}")


def show_description(one: dict[str, Any]) -> None:
    print(f"{paint(one['topic'], 'bold')}  {paint(one['id'], 'dim')}")
    print(f"durability  {one['durability']}")
    if one["overload"] is not None:
        show_overload(one["overload"])
    for name, setting in one["settings"].items():
        print(f"setting     {name}={setting['value']}  {paint(setting['source'], 'dim')}")
    header = ("partition", "leader", "epoch", "start", "end", "size", "replicas", "in sync")
    rows = [
        (
            p["partition"],
            p["leader"],
            p["leader_epoch"],
            p["start"],
            p["end"],
            size_or_none(p["bytes"]),
            ",".join(map(str, p["replicas"])),
            ",".join(map(str, p["in_sync"])),
        )
        for p in one["partitions"]
    ]
    show_table(header, rows)


NAMED = ("alter", "delete", "describe")  # those of topics that are there
ACTIONS = {
    "list": list_topics,
    "create": create,
    "delete": delete,
    "alter": alter,
    "describe": describe,
    "truncate": truncate,
}
