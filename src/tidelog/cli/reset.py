"""`tidelog reset GROUP TOPIC[:PARTITION] --to PLACE`: moves where a group goes on reading; shows it before it does it.

A group with members is left alone, since they hold their positions in memory and would commit them over ours. Other
groups are not touched.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cli import options as command
from tidelog.cli import suggestions
from tidelog.cli.place import PLACE_HELP, OffsetSpec, not_there, parse_place, resolve
from tidelog.cli.terminal import confirm, show_json, show_table
from tidelog.errors import BrokerError, UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.metadata import TopicPartition

EXAMPLES = """\
  tidelog reset billing orders --to earliest
  tidelog reset billing orders --to 2026-01-01T00:00:00Z --yes
  tidelog reset billing orders:2 --to 1500
  tidelog reset billing orders --to 2h --dry-run
"""

NEVER_ACTIVE = ("Empty", "Dead")
MEMBERS_NAMED = 5


class Move(NamedTuple):
    at: TopicPartition
    start: int
    end: int
    before: int | None
    after: int


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser(
        "reset", "Move a group's offsets. The group must have no members.", EXAMPLES, parent=reach
    )
    made.add_argument("group", metavar="GROUP", help="whose offsets")
    made.add_argument("topic", metavar="TOPIC[:PARTITION]", help="of which topic, or of which of its partitions")
    made.add_argument("--to", required=True, metavar="PLACE", type=parse_place, help=PLACE_HELP)
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--dry-run", action="store_true", help="show it, and leave everything as it is")
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    with command.connect(options) as cluster:
        known = refuse_active(cluster, options.group)
        moves = plan(cluster, options.group, partitions_of(cluster, options.topic), options.to)
        return carry_out(cluster, options, moves, known=known)


def refuse_active(cluster: Cluster, group: str) -> bool:
    """Whether the group is there."""
    from tidelog.client.admin import groups
    from tidelog.wire.error_code import ErrorCode

    try:
        found = groups.describe(cluster, group)
    except BrokerError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        raise
    if not found.members and found.state in NEVER_ACTIVE:
        return True
    named = [f"{member.client_id} at {member.host}" for member in found.members[:MEMBERS_NAMED]]
    more = f" and {len(found.members) - MEMBERS_NAMED} more" if len(found.members) > MEMBERS_NAMED else ""
    who = ", ".join(named) + more if named else found.state
    raise BrokerError(ErrorCode.NON_EMPTY_GROUP, f"group {group!r} is active ({who}); stop its consumers first")


def partitions_of(cluster: Cluster, written: str) -> list[TopicPartition]:
    topic, colon, index = written.partition(":")
    partitions = suggestions.partitions_of(cluster, topic)
    if not colon:
        return partitions
    chosen = [at for at in partitions if str(at.partition) == index]
    if not chosen:
        raise UsageError(f"{topic!r} has no partition {index!r}; it has 0 to {len(partitions) - 1}")
    return chosen


def plan(cluster: Cluster, group: str, partitions: list[TopicPartition], to: OffsetSpec) -> list[Move]:
    from tidelog.client.admin import groups

    held = groups.committed(cluster, group)
    starts = resolve(cluster, OffsetSpec("earliest"), partitions)
    ends = resolve(cluster, OffsetSpec("latest"), partitions)
    afters = resolve(cluster, to, partitions)
    moves = []
    for at in partitions:
        if not starts[at] <= afters[at] <= ends[at]:
            hint = not_there(to.number, len(partitions), f"{at.topic}:PARTITION moves one partition alone")
            raise UsageError(f"offset {afters[at]} is not in {at}, which has {starts[at]} to {ends[at]}{hint}")
        moves.append(Move(at, starts[at], ends[at], held[at].offset if at in held else None, afters[at]))
    return moves


def carry_out(cluster: Cluster, options: Namespace, moves: list[Move], *, known: bool) -> int:
    from tidelog.client.admin import groups

    if not options.json:
        rows = [(m.at.topic, m.at.partition, m.start, m.end, m.before, m.after, difference(m)) for m in moves]
        show_table(("topic", "partition", "start", "end", "before", "after", "moves by"), rows, colour_of={5: "bold"})
    done = not options.dry_run
    if done and not options.yes and not confirm(f"move {options.group}?"):
        raise UsageError("nothing was moved; say --yes to move without being asked")
    if done:
        groups.commit(cluster, options.group, {move.at: move.after for move in moves})
    if options.json:
        listed = [{**move.at._asdict(), **{key: getattr(move, key) for key in Move._fields[1:]}} for move in moves]
        show_json({"group": options.group, "moved": done, "partitions": listed})
    else:
        new = "" if known else "; it is a new group"
        print(f"{options.group} is moved{new}" if done else "nothing was moved: --dry-run")
    return 0


def difference(move: Move) -> str | None:
    return None if move.before is None else f"{move.after - move.before:+d}"
