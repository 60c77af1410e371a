"""Dead letters are replayed: their records are written once more, to where somebody takes them.

    letters of     go, unless another topic is named, to           but not
    a queue        the topic that they come from                   records that are gone, of letters without a copy
    a capture      the topic that they were too large for          a row that has a newer change there by now
    an app         nowhere: a topic must be named                  the topic that they come from

Rules:
- An app's input is read by others too, who have taken these records already: there, a letter is refused.
- All of a topic is replayed once: the records and how far the letters were read, as offsets of the group
  `tidelog.dead.TOPIC`, are one transaction of BATCH letters, and two who replay the same topic fence each other. So who
  is killed in between goes on where he was.
- Single letters are replayed as often as they are named, and not with all of them after that: those behind the offset
  are in its metadata, as ranges ("3,7-9").
- A record goes to the partition that it was in, where the target is its topic; else by its key.
- It has the present time, its own key, value and headers, and PLACE, which says which letter it was. Its delay is over.
- Letters stay where they are: retention, or who deletes their topic, ends them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from tidelog.client.acknowledgements import ranges
from tidelog.client.admin import groups
from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.producer import Record
from tidelog.control.letters import OF_CAPTURE, OF_QUEUE, Letter, bounds, originals, read_letters
from tidelog.control.owner import Owner
from tidelog.control.reading import read
from tidelog.errors import BrokerError, UsageError
from tidelog.record.columns import Row
from tidelog.record.partitioner import partition_of
from tidelog.wire.error_code import ErrorCode

PREFIX = "tidelog.dead."  # of the group of a topic's letters, and of its transactional id
PLACE = "tidelog-replayed-from"
DELAYS = ("tidelog-delay-ms", "tidelog-deliver-at")  # by which a broker of ours delays a record
BATCH = 500
SINGLES_MAX = 1_000_000
NOTED_MAX = 4000  # characters of metadata; a broker takes 4,096 where nobody has set offset.metadata.max.bytes
NOT_A_LETTER = "it is not a dead letter"
GONE = "the letter has no copy of its record, and the record is not in its topic any more"


class PassedLetter(NamedTuple):
    """A letter that was not replayed."""

    at: TopicPartition
    offset: int
    why: str


class ReplayedLetters(NamedTuple):
    written: int
    passed: list[PassedLetter]


class ReplayedPlaces(NamedTuple):
    """Which letters of a partition were replayed: those below `position`, and single ones behind it."""

    position: int
    singles: frozenset[int] = frozenset()

    def has(self, place: int) -> bool:
        return place < self.position or place in self.singles

    def moved_to(self, position: int) -> ReplayedPlaces:
        return ReplayedPlaces(position, frozenset(one for one in self.singles if one >= position))

    def and_single(self, place: int) -> ReplayedPlaces:
        return self._replace(singles=self.singles | {place})

    def metadata(self) -> str:
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges(self.singles))


class LetterRun(NamedTuple):
    """Letters of one transaction, and what was replayed when it is committed."""

    rows: list[tuple[TopicPartition, Row, Letter | None]]
    done: dict[TopicPartition, ReplayedPlaces]


def replayed(cluster: Cluster, topic: str) -> dict[TopicPartition, ReplayedPlaces]:
    told = groups.committed(cluster, PREFIX + topic)
    found = {}
    for at, (begin, _) in bounds(cluster, topic).items():
        one = ReplayedPlaces(told[at].offset, singles_of(told[at].metadata)) if at in told else ReplayedPlaces(begin)
        found[at] = one.moved_to(max(begin, one.position))
    return found


def singles_of(metadata: str) -> frozenset[int]:
    """Nothing, where somebody else has written it."""
    try:
        spans = [[int(one) for one in span.split("-")] for span in metadata.split(",") if span]
        if sum(span[-1] - span[0] for span in spans) > SINGLES_MAX:
            return frozenset()
        return frozenset(place for span in spans for place in range(span[0], span[-1] + 1))
    except ValueError:
        return frozenset()


def replay(
    cluster: Cluster, topic: str, places: Iterable[tuple[int, int]] = (), *, to: str | None = None
) -> ReplayedLetters:
    """All letters of a topic that were not replayed yet; with `places`, (partition, offset), those alone."""
    chosen = sorted(set(places))
    if to is not None and not _count(cluster, to):
        raise UsageError(f"topic {to} is not there; create it, or name another by --to")
    owner = Owner(cluster, PREFIX + topic)
    owner.begin()  # before it is read how far the last one came
    before = replayed(cluster, topic)
    parts = _single(cluster, topic, chosen, before) if chosen else _all(cluster, topic, before)
    written, passed = 0, list[PassedLetter]()
    for part in parts:
        records, left = _records(cluster, part.rows, to)
        with owner.transaction() as outgoing:
            for at, rows in records.items():
                outgoing.send(at, rows)
            told = part.done if records or not chosen else {}
            for at, done in told.items():
                outgoing.send_offsets(PREFIX + topic, {at: done.position}, done.metadata())
        before |= told
        written += sum(len(rows) for rows in records.values())
        passed += left
    return ReplayedLetters(written, passed)


def _all(cluster: Cluster, topic: str, before: Mapping[TopicPartition, ReplayedPlaces]) -> Iterator[LetterRun]:
    ends = {at: end for at, (_, end) in bounds(cluster, topic).items()}
    found = read_letters(cluster, {at: one.position for at, one in before.items()}, ends)
    while rows := list(islice(found, BATCH)):
        positions = {at: row.offset + 1 for at, row, _ in rows}
        done = {at: before[at].moved_to(position) for at, position in positions.items()}
        yield LetterRun([one for one in rows if not before[one[0]].has(one[1].offset)], done)


def _single(
    cluster: Cluster, topic: str, places: list[tuple[int, int]], before: Mapping[TopicPartition, ReplayedPlaces]
) -> Iterator[LetterRun]:
    """`before` is kept up to date by who replays."""
    there = bounds(cluster, topic)
    for partition, offset in places:
        at = TopicPartition(topic, partition)
        begin, end = there.get(at, (0, 0))
        if not begin <= offset < end:
            raise UsageError(
                f"offset {offset} is not in {at}: it begins at {begin} and ends at {end}; `tidelog dead list {topic}`"
            )
        rows = [one for one in read_letters(cluster, {at: offset}, {at: offset + 1}) if one[1].offset == offset]
        done = before[at] if before[at].has(offset) else before[at].and_single(offset)
        if len(done.metadata()) > NOTED_MAX:
            raise UsageError(
                f"too many letters of {at} were replayed one by one to note one more; replay all that are left by"
                f" `tidelog dead replay {topic}`"
            )
        yield LetterRun(rows, {at: done})


def _records(
    cluster: Cluster, rows: list[tuple[TopicPartition, Row, Letter | None]], to: str | None
) -> tuple[dict[TopicPartition, list[Record]], list[PassedLetter]]:
    now_ms = int(time.time() * 1000)
    passed = [PassedLetter(at, row.offset, NOT_A_LETTER) for at, row, letter in rows if letter is None]
    letters = [letter for _, _, letter in rows if letter is not None]
    found = originals(cluster, [one for one in letters if one.is_bare])
    newer = _newer(cluster, [one for one in letters if one.kind == OF_CAPTURE and to in (None, one.topic)])
    records: dict[TopicPartition, list[Record]] = {}
    counts: dict[str, int] = {}
    for letter in letters:
        why = refusal(letter, to)
        if why is not None:
            raise UsageError(why)
        row = found.get((letter.topic, letter.partition or 0, letter.offset or 0)) if letter.is_bare else None
        target = to or letter.topic
        if target not in counts:
            counts[target] = _count(cluster, target)
        why = _not_now(letter, row, newer) if counts[target] else f"topic {target} is not there"
        if why is not None:
            passed.append(PassedLetter(letter.at, letter.place, why))
            continue
        key, value, headers = (letter.key, letter.value, letter.headers) if row is None else row[2:5]
        own = [(name, one) for name, one in headers or () if name not in (*DELAYS, PLACE)]
        own.append((PLACE, f"{letter.at.topic}:{letter.at.partition}:{letter.place}".encode()))
        at = _target(letter, key, target, counts[target])
        records.setdefault(at, []).append((key, value, own, now_ms))
    return records, passed


def refusal(letter: Letter, to: str | None) -> str | None:
    """Why a letter cannot go there at all."""
    target = to or letter.topic
    if target == letter.at.topic:
        return f"the letters of {target} cannot be replayed into it; give another topic by --to"
    if letter.kind in (OF_QUEUE, OF_CAPTURE) or target != letter.topic:
        return None
    what = f"{letter.by or letter.kind} has read {letter.topic}, and so have others, who would read the record twice"
    return (
        f"{what}; mend what could not take it and rebuild the output (`tidelog rebuild`), or write the records to a"
        " topic of their own by --to TOPIC, and read that"
    )


def _not_now(letter: Letter, row: Row | None, newer: Mapping[tuple[str, bytes], int]) -> str | None:
    if letter.kind == OF_CAPTURE:
        if letter.value is None:
            return "the letter has no value: the row was too large for the topic of letters, too"
        offset = newer.get((letter.topic, letter.key or b""))
        if offset is not None:
            return f"{letter.topic} has a newer change of its key, at offset {offset}"
        return None
    return GONE if letter.is_bare and row is None else None


def _newer(cluster: Cluster, letters: list[Letter]) -> dict[tuple[str, bytes], int]:
    """By topic and key: where rows of captures stand that were captured after the letters were written."""
    found: dict[tuple[str, bytes], int] = {}
    for topic in {one.topic for one in letters}:
        mine = [one for one in letters if one.topic == topic]
        since = min(one.timestamp_ms for one in mine)
        keys = {one.key or b"" for one in mine}
        places = {TopicPartition(topic, one.partition) for one in mine if one.partition is not None}
        begins = {at: one.offset for at, one in list_offsets(cluster, dict.fromkeys(places, since)).items()}
        begins = {at: offset for at, offset in begins.items() if offset >= 0}
        ends = {at: one.offset for at, one in list_offsets(cluster, dict.fromkeys(begins, LATEST)).items()}
        for _, row in read(cluster, begins, ends):
            if (row.key or b"") in keys:
                found[topic, row.key or b""] = row.offset
    return found


def _target(letter: Letter, key: bytes | None, topic: str, count: int) -> TopicPartition:
    if topic == letter.topic and letter.partition is not None and letter.partition < count:
        return TopicPartition(topic, letter.partition)
    return TopicPartition(topic, letter.place % count if key is None else partition_of(key, count))


def _count(cluster: Cluster, topic: str) -> int:
    """How many partitions; 0 where there is no such topic, and cannot be one."""
    try:
        return len(cluster.partitions(topic))
    except BrokerError as error:
        if error.code not in (*UNKNOWN_TOPIC, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise
        return 0
