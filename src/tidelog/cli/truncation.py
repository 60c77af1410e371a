"""`tidelog topics truncate TOPIC --before PLACE`: deletes the records before a place; shows it before it does it.

The place is looked up once, so `latest` deletes what is there when it is asked, and not what comes meanwhile. What is
deleted is gone for every group; one whose offset lies there goes on where its `auto.offset.reset` says.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cli import suggestions
from tidelog.cli.place import OffsetSpec, not_there, resolve
from tidelog.cli.terminal import confirm, show_json, show_table
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.metadata import TopicPartition


class Truncation(NamedTuple):
    at: TopicPartition
    start: int
    end: int
    new_start: int

    @property
    def deletes(self) -> int:
        """Offsets; of a compacted topic, or one with transactions, there are fewer records."""
        return self.new_start - self.start


def truncate(cluster: Cluster, options: Namespace) -> int:
    cuts = plan(cluster, partitions_of(cluster, options.topic, options.partition), options.before)
    count = sum(cut.deletes for cut in cuts)
    if not options.json:
        rows = [(cut.at.topic, cut.at.partition, cut.start, cut.end, cut.new_start, cut.deletes) for cut in cuts]
        show_table(("topic", "partition", "start", "end", "new start", "deletes"), rows, colour_of={4: "bold"})
    done = bool(count) and not options.dry_run
    if done:
        if not options.yes and not confirm(f"delete {records(count)} of {options.topic}?"):
            raise UsageError("nothing was deleted; say --yes to delete without being asked")
        carry_out(cluster, cuts)
    if options.json:
        listed = [
            {"partition": cut.at.partition, **{key: getattr(cut, key) for key in (*Truncation._fields[1:], "deletes")}}
            for cut in cuts
        ]
        show_json({"topic": options.topic, "truncated": done, "partitions": listed})
    elif done:
        print(f"{records(count)} of {options.topic} deleted")
    else:
        print("nothing was deleted: --dry-run" if count else "there is nothing to delete")
    return 0


def partitions_of(cluster: Cluster, topic: str, index: int | None) -> list[TopicPartition]:
    partitions = suggestions.partitions_of(cluster, topic)
    chosen = [at for at in partitions if index is None or at.partition == index]
    if not chosen:
        raise UsageError(f"{topic!r} has no partition {index}; it has 0 to {len(partitions) - 1}")
    return chosen


def plan(cluster: Cluster, partitions: list[TopicPartition], before: OffsetSpec) -> list[Truncation]:
    starts = resolve(cluster, OffsetSpec("earliest"), partitions)
    ends = resolve(cluster, OffsetSpec("latest"), partitions)
    wanted = resolve(cluster, before, partitions)
    for at in partitions:
        if wanted[at] > ends[at]:
            hint = not_there(before.number, len(partitions), "--partition N truncates one partition alone")
            raise UsageError(f"offset {wanted[at]} is not in {at}, which has {starts[at]} to {ends[at]}{hint}")
    return [Truncation(at, starts[at], ends[at], max(starts[at], wanted[at])) for at in partitions]


def carry_out(cluster: Cluster, cuts: list[Truncation]) -> None:
    from tidelog.client.admin import topics

    topics.delete_records(cluster, {cut.at: cut.new_start for cut in cuts if cut.deletes})


def records(count: int) -> str:
    return f"{count} record{'' if count == 1 else 's'}"
