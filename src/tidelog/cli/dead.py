"""`tidelog dead [list|show|replay]`: dead letters of queues, captures and apps."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from tidelog.cli import options as command
from tidelog.cli.main import FAILED, OK
from tidelog.cli.record_json import field
from tidelog.cli.tail import text_of, time_text
from tidelog.cli.terminal import confirm, count_text, paint, printable, show_json, show_table, warn
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.metadata import TopicPartition
    from tidelog.control.letters import Letter

EXAMPLES = """\
  tidelog dead                              topics with dead letters, and how many
  tidelog dead list dlq.mail                which records they are, who gave them up, and why
  tidelog dead show dlq.mail:0:17           one letter in full
  tidelog dead replay dlq.mail              write the records once more to the topic they come from
  tidelog dead replay dlq.mail 0:17 0:18    these letters alone
  tidelog dead replay revenue.v1.dead --to orders-mended
"""
SHOWN = 20
WHY_CHARS = 80


def parser() -> command.Parser:
    reach = command.connection_options()
    what = "List, show and replay dead letters: records that a queue, a capture or an app has given up."
    made = command.command_parser("dead", what, EXAMPLES, parent=reach)
    actions = command.actions(made)
    listing = actions.add_parser(
        "list",
        parents=[reach],
        help="topics with letters (the default), or the letters of one",
        description="List topics with dead letters, or the letters of one topic.",
    )
    listing.add_argument("topic", nargs="?", metavar="TOPIC", help="the letters of this topic")
    listing.add_argument(
        "--max", metavar="N", type=command.positive, default=SHOWN, help=f"the last N of a partition ({SHOWN})"
    )
    command.add_json(listing)
    show = actions.add_parser("show", parents=[reach], help="one letter", description="Show one letter in full.")
    show.add_argument("letter", metavar="TOPIC:PARTITION:OFFSET", help="where the letter stands")
    command.add_json(show)
    replay = actions.add_parser(
        "replay",
        parents=[reach],
        help="write the records once more",
        description="Write the records of dead letters once more: all that were not replayed yet, or those named.",
    )
    replay.add_argument("topic", metavar="TOPIC", help="whose letters")
    replay.add_argument(
        "letters", nargs="*", default=[], metavar="PARTITION:OFFSET", type=partition_offset, help="these alone"
    )
    replay.add_argument("--to", metavar="TOPIC", help="to this topic, and not to the one that they come from")
    replay.add_argument("--yes", action="store_true", help="do not ask")
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments, default="list")
    with command.connect(options) as cluster:
        return {"list": list_letters, "show": show_letter, "replay": replay_letters}[options.action](cluster, options)


def list_letters(cluster: Cluster, options: Namespace) -> int:
    rows = [about_topic(cluster, one) for one in known_topics(cluster)] if options.topic is None else []
    if options.topic is not None:
        rows = [about(letter, done) for letter, done in last_letters(cluster, options)]
    if options.json:
        show_json(rows)
    elif not rows:
        print("no dead letters" if options.topic is None else f"no dead letters in {options.topic}")
    else:
        shown = [{**one, **({"why": one["why"][:WHY_CHARS]} if "why" in one else {})} for one in rows]
        show_table(list(shown[0]), [tuple(one.values()) for one in shown])
    return OK


def known_topics(cluster: Cluster) -> list[str]:
    from tidelog.control.letters import topics_of_letters

    return topics_of_letters(cluster)


def about_topic(cluster: Cluster, topic: str) -> dict[str, Any]:
    from tidelog.control.letters import bounds, count_letters
    from tidelog.control.replaying import replayed

    there, done = bounds(cluster, topic), replayed(cluster, topic)
    starts, ends = ({at: one[side] for at, one in there.items()} for side in (0, 1))
    behind = count_letters(cluster, {at: one.position for at, one in done.items()}, ends)
    return {
        "topic": topic,
        "letters": count_letters(cluster, starts, ends),
        "to replay": behind - sum(len(one.singles) for one in done.values()),
    }


def last_letters(cluster: Cluster, options: Namespace) -> list[tuple[Letter, bool]]:
    """With whether each was replayed."""
    from tidelog.cli.suggestions import partitions_of
    from tidelog.control.last_records import starts_of_last
    from tidelog.control.letters import bounds, read_letters
    from tidelog.control.replaying import replayed

    partitions_of(cluster, options.topic)  # a name that is misspelt is told with one that is near
    there, done = bounds(cluster, options.topic), replayed(cluster, options.topic)
    starts, ends = ({at: one[side] for at, one in there.items()} for side in (0, 1))
    begins = starts_of_last(cluster, options.max, starts, ends, committed=True)
    found = [(at, row, letter) for at, row, letter in read_letters(cluster, begins, ends)]
    others = sum(letter is None for *_, letter in found)
    if others:
        what = "is not a dead letter" if others == 1 else "are not dead letters"
        warn(f"{count_text(others, 'record')} of {options.topic} {what}")
    return sorted((letter, done[at].has(letter.place)) for at, _, letter in found if letter is not None)


def about(letter: Letter, done: bool) -> dict[str, Any]:
    return {
        "letter": f"{letter.at.partition}:{letter.place}",
        "time": time_text(letter.timestamp_ms),
        "of": record_text(letter),
        "kind": letter.kind,
        "by": printable(letter.by),
        "deliveries": letter.deliveries,
        "replayed": "yes" if done else "no",
        "why": printable(letter.why),
    }


def record_text(letter: Letter) -> str:
    parts = [letter.topic, *(str(one) for one in (letter.partition, letter.offset) if one is not None)]
    return printable(":".join(parts))


def show_letter(cluster: Cluster, options: Namespace) -> int:
    from tidelog.control.letters import originals
    from tidelog.control.replaying import replayed

    at, letter = find_letter(cluster, options.letter)
    if letter is None:
        raise UsageError(f"{options.letter} is not a dead letter; `tidelog tail {at.topic}` shows what it is")
    bare = originals(cluster, [letter]) if letter.is_bare else {}
    record = next(iter(bare.values()), None)
    key, value, headers = (letter.key, letter.value, letter.headers) if record is None else record[2:5]
    told = about(letter, replayed(cluster, at.topic)[at].has(letter.place))
    if options.json:
        pairs = [{"name": printable(name), **field("value", one)} for name, one in headers or ()]
        show_json({**told, **field("key", key), **field("value", value), "headers": pairs})
        return OK
    for name, one in told.items():
        print(f"{name:<12}{'-' if one is None or one == '' else one}")
    copied = "" if not letter.is_bare else " (from its topic)" if record is not None else " (not copied, and gone)"
    print(f"\n{paint('record' + copied, 'bold')}")
    for name, data in [("key", key), ("value", value), *[(f"header {printable(one)}", text) for one, text in headers]]:
        print(f"{name:<12}{text_of(data)}")
    return OK


def find_letter(cluster: Cluster, text: str) -> tuple[TopicPartition, Letter | None]:
    from tidelog.cli.suggestions import partitions_of
    from tidelog.client.metadata import TopicPartition
    from tidelog.control.letters import bounds, read_letters

    topic, _, place = text.rpartition(":")
    topic, _, partition = topic.rpartition(":")
    if not (topic and partition.isdigit() and place.isdigit()):
        raise UsageError(f"dead: {text!r} does not name a letter; write TOPIC:PARTITION:OFFSET, as dlq.mail:0:17")
    at = TopicPartition(topic, int(partition))
    partitions_of(cluster, topic)
    begin, end = bounds(cluster, topic).get(at, (0, 0))
    if begin <= int(place) < end:
        for _, _, letter in read_letters(cluster, {at: int(place)}, {at: int(place) + 1}):
            return at, letter
    raise UsageError(f"{at} does not have a record at offset {place}: it begins at {begin} and ends at {end}")


def replay_letters(cluster: Cluster, options: Namespace) -> int:
    from tidelog.cli.suggestions import partitions_of
    from tidelog.control.replaying import replay

    partitions_of(cluster, options.topic)
    if not options.letters:
        left = about_topic(cluster, options.topic)["to replay"]
        if not left:
            print(f"no letter of {options.topic} is left to replay; name those that are to be replayed again")
            return OK
        where = options.to or "the topics that they come from"
        if not options.yes and not confirm(f"write the records of {count_text(left, 'letter')} to {where}?"):
            raise UsageError("nothing was replayed; say --yes to replay without being asked")
    done = replay(cluster, options.topic, options.letters, to=options.to)
    for one in done.passed:
        warn(f"{one.at.partition}:{one.offset} was not replayed: {one.why}")
    print(f"{count_text(done.written, 'record')} written")
    return FAILED if done.passed else OK


def partition_offset(text: str) -> tuple[int, int]:
    from argparse import ArgumentTypeError

    partition, colon, offset = text.partition(":")
    if not colon or not all(one.isascii() and one.isdigit() for one in (partition, offset)):
        raise ArgumentTypeError(f"{text!r} is not PARTITION:OFFSET, as 0:17")
    return int(partition), int(offset)
