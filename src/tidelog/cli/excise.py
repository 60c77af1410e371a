"""`tidelog excise TOPIC:PARTITION:OFFSET... --reason TEXT`: records that must not be anywhere are taken out for good.

Their keys, values and headers are then in no file of the broker; their offsets stay, and readers pass over them. What
was taken out and why, but not what it said, is in the topic `__tidelog.excisions`, which `--list` shows. Copies that
others have are not touched: the command says which to look for.
"""

from __future__ import annotations

import re
from argparse import Namespace
from json import loads
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.tail import time_text
from tidelog.cli.terminal import confirm, count_text, show_json, show_table
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster

EXAMPLES = """\
  tidelog excise orders:0:17 --reason 'ticket 4711'              one record; asks first
  tidelog excise orders:0:17 orders:2:40-44 --reason 'ticket 4711' --yes
  tidelog excise --list                                          what was taken out, when, by whom and why
  tidelog excise --list --json > excised.json                    for `tidelog restore --shun excised.json`
"""

COPIES = """\
not touched, and for you to see to:
  backups        they have the records until they are deleted; `tidelog restore --shun` takes them out again
  consumers      groups, views, captures, stores and mirrors keep what they have read; a rebuild of a view forgets it
  Spark          checkpoints and state have rows; delete them, or let them expire
  other topics   what pipelines and sinks have derived or staged are records of their own
  the disk       freed blocks are overwritten when they are used again; an encrypted disk is sure"""

_PLACE = re.compile(r"(?P<topic>.+):(?P<partition>\d{1,9}):(?P<first>\d{1,18})(?:-(?P<last>\d{1,18}))?")

Places = dict[str, dict[int, list[tuple[int, int]]]]


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser(
        "excise", "Take single records out of every file of a Tidelog broker.", EXAMPLES, parent=reach
    )
    made.add_argument(
        "places", nargs="*", metavar="TOPIC:PARTITION:OFFSET[-LAST]", help="which records (up to 100,000 offsets)"
    )
    made.add_argument("--reason", metavar="TEXT", help="the reason; it is kept forever, so do not name a person in it")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--list", action="store_true", help="show what was taken out")
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    if options.list == bool(options.places):
        raise UsageError("excise: name records as TOPIC:PARTITION:OFFSET, or say --list")
    with command.connect(options) as cluster:
        return show(cluster, options) if options.list else excise(cluster, options)


def parse_places(words: list[str]) -> Places:
    places: Places = {}
    for word in words:
        found = _PLACE.fullmatch(word)
        if found is None:
            raise UsageError(f"excise: {word!r} is not a place; write TOPIC:PARTITION:OFFSET, or ...:FIRST-LAST")
        first = int(found["first"])
        last = int(found["last"] or first)
        if last < first:
            raise UsageError(f"excise: {word!r} ends before it begins; write ...:FIRST-LAST")
        places.setdefault(found["topic"], {}).setdefault(int(found["partition"]), []).append((first, last))
    return places


def excise(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import excisions

    places = parse_places(options.places)
    if not (options.reason or "").strip():
        raise UsageError("excise: why? say --reason TEXT; it is kept with the offsets, the content is not")
    for topic, of_topic in places.items():
        excisions.excise(cluster, topic, of_topic, options.reason, validate_only=True)
    count = sum(last - first + 1 for one in places.values() for ranges in one.values() for first, last in ranges)
    if not options.yes and not confirm(f"take {count_text(count, 'record')} out for good?"):
        raise UsageError("nothing was taken out; say --yes to do it without being asked")
    for topic, of_topic in places.items():
        excisions.excise(cluster, topic, of_topic, options.reason)
    if options.json:
        show_json({"excised": count, "topics": sorted(places)})
    else:
        print(f"{count_text(count, 'offset')} taken out; nothing of them is in any file of the broker")
        print(COPIES)
    return 0


def show(cluster: Cluster, options: Namespace) -> int:
    found = list(noted(cluster).values())
    if options.json:
        show_json(found)
        return 0
    rows = [
        (
            *(one["topic"], one["partition"]),
            ",".join(str(a) if a == b else f"{a}-{b}" for a, b in one["offsets"]),
            *(one["state"], one.get("removed", ""), one["by"], time_text(one["ordered_ms"])),
            one["reason"] + (f" ({one['error']})" if one.get("error") else ""),
        )
        for one in found
    ]
    show_table(("topic", "partition", "offsets", "state", "removed", "by", "ordered", "reason"), rows)
    return 0


def noted(cluster: Cluster) -> dict[int, dict[str, Any]]:
    """What the audit has, by number: the newest record of each."""
    from tidelog.client.admin.excisions import AUDIT_TOPIC, NOT_TIDELOG
    from tidelog.client.metadata import TopicPartition
    from tidelog.control.reading import read_all

    if not cluster.is_tidelog():
        raise UsageError(NOT_TIDELOG)
    rows = read_all(cluster, TopicPartition(AUDIT_TOPIC, 0), committed=False)
    return {loads(row.key or b"")["number"]: loads(row.value or b"") for row in rows}
