"""`tidelog repair [TOPIC [PARTITION]] --data DIR [--skip]`: what is damaged in a stopped broker's log, and passing it.

`tidelog repair adopt` is in repair_adopt.py: it gives back what a start has set aside, which is shown here.

Every batch of the partitions is read and its checksum checked, so it takes as long as the disk takes to read them.
Without `--skip` nothing is lost by it: the partition is recovered as the next start would recover it. `--skip` loses
nothing that is readable either, but from then on readers go over the hole without an error, and the partition's file
of facts says for ever what was there.

Records whose files are missing are damage, too. A partition that lacks some cannot be opened before `--skip` has given
them up: then it goes on at the end that it had, in a new leader epoch (log/accepting.py).
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cli import options as command
from tidelog.cli.terminal import confirm, count_text, show_json, show_table, size_text, warn
from tidelog.errors import StorageError, UsageError

if TYPE_CHECKING:
    from tidelog.broker.orphans import Orphan
    from tidelog.broker.stopped import StoppedBroker
    from tidelog.broker.topics import Topic
    from tidelog.log.facts import Hole
    from tidelog.log.log import Log
    from tidelog.log.missing import MissingRecords

EXAMPLES = """\
  tidelog repair --data /var/lib/tidelog                   check every partition
  tidelog repair --data /var/lib/tidelog orders            check one topic
  tidelog repair --data /var/lib/tidelog orders 0 --skip   let readers pass its holes
  tidelog repair adopt --data /var/lib/tidelog             give set-aside folders back to their topics
"""

ADOPT = "adopt"

# What a hole in a topic of the broker's own would make it forget.
FORGOTTEN = {
    "__tidelog.topics": "topics and their settings that were decided there",
    "__tidelog.groups": "offsets and members of groups that were decided there",
    "__tidelog.queues": "what share groups have acknowledged; their groups start over",
    "__tidelog.transactions": "outcomes of transactions that were decided there; what hangs is then aborted",
    "__tidelog.access": "users, rules and quotas that were decided there, also what had been taken from somebody",
    "__tidelog.excisions": "which records were taken out and why, and orders to do so that were not carried out yet",
}


class Damage(NamedTuple):
    """A hole, and how many batches it has taken; None when nothing is left that says so."""

    topic: str
    partition: int
    hole: Hole
    batches: int | None

    @property
    def offsets(self) -> int:
        """As many records are lost, but for those that compaction had taken out before."""
        return self.hole.end_offset - self.hole.base_offset

    @property
    def size(self) -> int:
        return self.hole.end_position - self.hole.position

    def as_json(self) -> dict[str, object]:
        counts = {"offsets": self.offsets, "bytes": self.size, "batches": self.batches}
        return {"topic": self.topic, "partition": self.partition, **self.hole._asdict(), **counts}


def parser() -> command.Parser:
    made = command.command_parser(
        "repair", "Check a stopped broker's log, and let readers pass what is damaged.", EXAMPLES
    )
    made.add_argument("topic", nargs="?", metavar="TOPIC", help="which (default: all)")
    made.add_argument(
        "partition", nargs="?", metavar="PARTITION", type=command.not_negative, help="which (default: all)"
    )
    made.add_argument(
        "--data", metavar="DIR", type=Path, default=Path("tidelog-data"), help="the data folder (default: tidelog-data)"
    )
    made.add_argument("--skip", action="store_true", help="let readers pass the holes of this partition from now on")
    made.add_argument("--yes", action="store_true", help="do not ask")
    command.add_json(made)
    return made


def further_actions() -> dict[str, command.Parser]:
    """Words that may stand where a topic's name does, so that no sub-parser can take them; for completion."""
    from tidelog.cli import repair_adopt

    return {ADOPT: repair_adopt.parser()}


def run(arguments: list[str]) -> int:
    if arguments[:1] == [ADOPT]:
        from tidelog.cli import repair_adopt

        return repair_adopt.run(arguments[1:])
    from tidelog.broker.stopped import StoppedBroker

    options = command.parse(parser(), arguments)
    if options.skip and options.partition is None:
        raise UsageError("repair: --skip of what? name the topic and the partition")
    found: list[Damage] = []
    checked = Checked()
    with StoppedBroker(options.data) as stopped:
        topics, aside, is_lost = known_topics(stopped)
        for topic, index in chosen(stopped, topics, options):
            log = open_log(stopped, topic, index, found, options)
            if log is None:
                continue
            checked.bytes += stopped.check(log)
            checked.partitions += 1
            checked.files += len(log.segments())
            checked.records += log.end_offset - log.start_offset
            given_up = [one.hole for one in found if one.topic == topic.name and one.partition == index]
            holes = [hole for hole in log.holes if not any(is_in(hole, one) for one in given_up)]
            found += [Damage(topic.name, index, hole, log.batches_in(hole)) for hole in holes]
            if options.skip and any(not one.hole.passed for one in found):
                ask(found, options)
                log.repair(skip=True)
                found = [one._replace(hole=one.hole._replace(passed=True)) for one in found]
        if options.skip and found:
            reserve_ids(stopped, options.topic)
    show(found, checked, aside, options)
    return 1 if any(not one.hole.passed for one in found) or aside or is_lost else 0


def reserve_ids(stopped: StoppedBroker, topic: str) -> None:
    """What was passed may be the record of producer ids, and none may be given out twice."""
    from tidelog.broker import reserving
    from tidelog.broker.topics import TOPICS_TOPIC

    if topic == TOPICS_TOPIC.name:
        reserving.reserve(stopped)


def known_topics(stopped: StoppedBroker) -> tuple[dict[str, Topic], list[Orphan], bool]:
    """The broker's own topics, and those that its log of topics tells of; folders without one; and whether that log
    is lost, which is told.
    """
    from tidelog.broker import orphans
    from tidelog.broker.topics import INTERNAL_TOPICS
    from tidelog.log.missing import MissingRecords

    own = {topic.name: topic for topic in INTERNAL_TOPICS}
    try:
        told = stopped.topics()
        aside = orphans.find(stopped.folder, stopped.files, told.state.by_id)
        lost = [one for one in aside if not one.is_aside]
        fault = orphans.fault_of_topics(told.log, told.ahead, lost, stopped.folder.path)
    except StorageError as error:
        adopt = (
            f", or run: tidelog repair adopt --data {stopped.folder.path}" if isinstance(error, MissingRecords) else ""
        )
        warn(f"the list of topics cannot be read, so only the broker's own are checked: {error}{adopt}")
        return own, [], False  # the hole in it counts
    if fault is not None:
        warn(fault)
    return {**own, **told.state.by_name}, aside, fault is not None


def open_log(stopped: StoppedBroker, topic: Topic, index: int, found: list[Damage], options: Namespace) -> Log | None:
    """None when files of it are missing. With `--skip` they are given up, at the beginning and at the end."""
    from tidelog.log.missing import MissingRecords

    while True:
        try:
            return stopped.open(topic, index)
        except MissingRecords as missing:
            damage = Damage(topic.name, index, hole_of(missing), None)
            if not options.skip:
                found.append(damage)
                return None
            ask([damage], options)
            stopped.accept(topic, index, missing)
            found.append(damage._replace(hole=damage.hole._replace(passed=True)))


def hole_of(missing: MissingRecords) -> Hole:
    """What is missing, in the words of what is damaged: it has no bytes."""
    from tidelog.log.facts import Hole

    return Hole(missing.first, missing.end, missing.first, 0, 0, False, missing.what)


def is_in(hole: Hole, other: Hole) -> bool:
    return other.base_offset <= hole.base_offset and hole.end_offset <= other.end_offset


class Checked:
    """How much was read; `seconds` since it was made."""

    def __init__(self) -> None:
        self.partitions = self.files = self.bytes = self.records = 0
        self._begun = time.monotonic()

    def as_json(self) -> dict[str, float]:
        counts = {name: getattr(self, name) for name in ("partitions", "files", "bytes", "records")}
        return {**counts, "seconds": round(time.monotonic() - self._begun, 3)}

    def __str__(self) -> str:
        what = [(self.partitions, "partition"), (self.files, "file"), (self.records, "record")]
        partitions, files, records = (f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in what)
        seconds = time.monotonic() - self._begun
        return f"checked {partitions}: {files}, {size_text(self.bytes)}, {records} in {seconds:.1f} s"


def chosen(stopped: StoppedBroker, topics: dict[str, Topic], options: Namespace) -> Iterator[tuple[Topic, int]]:
    if options.topic is not None and options.topic not in topics:
        raise UsageError(
            f"topic {options.topic!r} does not exist in {options.data}; topics are {', '.join(sorted(topics))}"
        )
    for topic in [topics[name] for name in sorted(topics)] if options.topic is None else [topics[options.topic]]:
        if options.partition is not None and options.partition >= topic.partitions:
            raise UsageError(f"{topic.name} has no partition {options.partition}; it has 0 to {topic.partitions - 1}")
        for index in range(topic.partitions) if options.partition is None else [options.partition]:
            if stopped.has(topic, index):
                yield topic, index


def ask(found: list[Damage], options: Namespace) -> None:
    if not options.json:
        show_damage(found)
    lost = FORGOTTEN.get(options.topic, "the records that were there")
    if not options.yes and not confirm(f"let readers pass this, and give up {lost}?"):
        raise UsageError("nothing was changed; say --yes to skip without being asked")


def show(found: list[Damage], checked: Checked, aside: list[Orphan], options: Namespace) -> None:
    if options.json:
        damage = [one.as_json() for one in found]
        show_json({"checked": checked.as_json(), "damage": damage, "set_aside": [orphan_json(one) for one in aside]})
        return
    print(checked)
    if aside:
        show_orphans(aside)
        print(f"{count_text(len(aside), 'folder')} without a topic; `tidelog repair adopt` gives them back")
    if found:
        show_damage(found)
    else:
        print("no damage")


def orphan_json(orphan: Orphan) -> dict[str, object]:
    held = {"records": orphan.held.records, "bytes": orphan.held.size}
    return {"folder": orphan.name, "topic": orphan.topic, "partition": orphan.partition, **held}


def show_orphans(aside: Iterable[Orphan]) -> None:
    rows = [
        (
            one.topic or "?",
            one.partition,
            "?" if one.held.records < 0 else one.held.records,
            size_text(one.held.size),
            one.name,
        )
        for one in aside
    ]
    show_table(("topic", "partition", "records", "size", "folder"), rows)


def show_damage(found: list[Damage]) -> None:
    rows = [
        (
            one.topic,
            one.partition,
            one.hole.base_offset,
            one.hole.end_offset - 1,
            one.offsets,
            "?" if one.batches is None else one.batches,
            size_text(one.size),
            "passed" if one.hole.passed else "stops readers",
            one.hole.reason,
        )
        for one in found
    ]
    show_table(("topic", "partition", "first", "last", "offsets", "batches", "size", "state", "damage"), rows)
    print(f"lost: {lost_text(found)}")


def lost_text(found: list[Damage]) -> str:
    """All of it; batches as far as they are known."""
    known = [one.batches for one in found if one.batches is not None]
    batches = "unknown" if not known else f"{'at least ' if len(known) < len(found) else ''}{sum(known)}"
    offsets = sum(one.offsets for one in found)
    return f"{size_text(sum(one.size for one in found))}, offsets {offsets}, batches {batches}"
