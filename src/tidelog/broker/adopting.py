"""Giving folders without a topic back to one: those that a start set aside, or all, where the log of topics is lost.

Each folder says in its file `topic` whose it is. From that the topic's record is written again: its name, its id, its
settings, and as many partitions as it had or has folders for. What to do is decided purely (`decide`), one topic at a
time; one that cannot be adopted is refused with the reason, and the others are.

Done in this order, so that a crash at any step leaves folders that the next start sets aside again, and that can be
adopted again: a new name goes into the files `topic`; folders get their names back; then the topics' records are
written and synced.

A log of topics that is lost is made anew: behind the newest snapshot where there is one, else from nothing. What was
left of the old one stays, as `ID-INDEX.replaced`. Altered settings of brokers and groups that no snapshot has are
forgotten. One that has lost its beginning or its end goes on with what is left. In either case producer ids are
reserved anew (`reserving.py`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tidelog.broker import orphans as finding
from tidelog.broker import reserving, swapped
from tidelog.broker import topics as fold
from tidelog.broker.internal import InternalTopic, TopicFold
from tidelog.broker.names import collision_key, fault_of, is_own
from tidelog.broker.orphans import Orphan
from tidelog.broker.partitions import identity_of
from tidelog.broker.stopped import StoppedBroker
from tidelog.broker.topics import TOPICS_TOPIC, Topic, Topics, topic_record
from tidelog.errors import UsageError
from tidelog.log import facts as facts_file
from tidelog.log import identity as identity_file
from tidelog.log.facts import Facts
from tidelog.log.missing import ForeignSegment, MissingRecords
from tidelog.log.names import partition_name
from tidelog.log.upkeep import remove_folder

REPLACED_SUFFIX = ".replaced"


class Adoption(NamedTuple):
    """The topic as it will be, and the folders that it gets; `told` False: no file says what its settings were."""

    topic: Topic
    folders: tuple[Orphan, ...]
    told: bool = True

    @property
    def records(self) -> int:
        return sum(max(one.held.records, 0) for one in self.folders)


class Refusal(NamedTuple):
    folders: tuple[Orphan, ...]
    why: str


class Decided(NamedTuple):
    adopted: list[Adoption]
    refused: list[Refusal]


class Adopted(NamedTuple):
    decided: Decided
    made_anew: bool  # the log of topics
    swapped: int = 0  # pairs of folders that have their own names again


def decide(
    orphans: Iterable[Orphan],
    topics: Topics,
    more: Mapping[bytes, int],
    taken: Collection[tuple[bytes, int]],
    new_name: str | None = None,
    now_ms: int = 0,
) -> Decided:
    """`more` is how many partitions known topics have folders for, beyond those that they have; `taken` are the places
    of folders with records that are in use.
    """
    by_topic: dict[bytes, list[Orphan]] = {}
    for one in orphans:
        by_topic.setdefault(one.topic_id, []).append(one)
    if new_name is not None and len(by_topic) > 1:
        everything = tuple(one for some in by_topic.values() for one in some)
        return Decided([], [Refusal(everything, f"these are {len(by_topic)} topics, and one name; say which is meant")])
    found = Decided([], [])
    names = {name: topic.topic_id for name, topic in topics.by_name.items()}
    # The newest first: where two had one name, one after the other, it is the newer one's.
    for topic_id, some in sorted(by_topic.items(), key=lambda item: -max(map(_created_ms, item[1]))):
        there = [one for one in some if one.is_aside and (topic_id, one.partition) in taken]
        if there:
            why = f"{partition_name(topic_id, there[0].partition)} is there and has records too"
            found.refused.append(Refusal(tuple(there), f"{why}; move one of both out of the data folder"))
            some = [one for one in some if one not in there]
        made = _adopt(topic_id, tuple(some), topics.by_id.get(topic_id), names, new_name, now_ms) if some else None
        if isinstance(made, Adoption):
            names[made.topic.name] = topic_id
            found.adopted.append(made)
        elif made is not None:
            found.refused.append(made)
    _add_partitions(found, topics, more)
    return found


def _created_ms(orphan: Orphan) -> int:
    return orphan.identity.created_ms if orphan.identity is not None else -1


def _adopt(
    topic_id: bytes,
    some: tuple[Orphan, ...],
    known: Topic | None,
    names: Mapping[str, bytes],
    new_name: str | None,
    now_ms: int,
) -> Adoption | Refusal:
    partitions = max(one.partition for one in some) + 1
    if known is not None:
        if new_name not in (None, known.name):
            return Refusal(some, f"their topic is there and is called {known.name}; leave out --as")
        return Adoption(known._replace(partitions=max(partitions, known.partitions)), some)
    # Settings may be older in some folders: a new partition has them as they were when it was made.
    told = max((one.identity for one in some if one.identity is not None), key=lambda one: one.partitions, default=None)
    name = new_name or (told.topic if told is not None else None)
    if name is None:
        return Refusal(some, "they do not say which topic they are of; name it with --as NAME")
    why = _fault_of_name(name, names)
    if why is not None:
        return Refusal(some, why)
    if told is None:
        return Adoption(Topic(name, topic_id, partitions, {}, now_ms), some, told=False)
    return Adoption(Topic(name, topic_id, max(partitions, told.partitions), told.configs, told.created_ms), some)


def _fault_of_name(name: str, names: Mapping[str, bytes]) -> str | None:
    wrong = fault_of(name)
    if wrong is not None:
        return wrong
    if is_own(name):
        return f"{name} is a name of the broker's own topics; give another with --as NAME"
    if name in names:
        return f"there is another topic {name} by now; adopt these under another name, with --as NAME"
    other = next((one for one in names if collision_key(one) == collision_key(name)), None)
    if other is not None:
        return f"{name} collides with topic {other}, from which it differs in '.' and '_' only; give --as NAME"
    return None


def _add_partitions(found: Decided, topics: Topics, more: Mapping[bytes, int]) -> None:
    for topic_id, count in more.items():
        if not any(one.topic.topic_id == topic_id for one in found.adopted):
            found.adopted.append(Adoption(topics.by_id[topic_id]._replace(partitions=count), ()))
    for at, one in enumerate(found.adopted):
        count = max(one.topic.partitions, more.get(one.topic.topic_id, 0))
        found.adopted[at] = one._replace(topic=one.topic._replace(partitions=count))


# The folder -----------------------------------------------------------------------------------------------------------


def adopt(stopped: StoppedBroker, chosen: Sequence[str] = (), new_name: str | None = None) -> Adopted:
    """`chosen` are topics, by name or by id in hex, or names of folders; none: all that there are."""
    pairs = swapped.put_back(stopped.folder, stopped.files)
    for pair in pairs:
        for topic_id, index in pair:
            stopped.must_recover(topic_id, index)
    is_short = _settle_for_what_is_left(stopped)
    stopped.abandon(TOPICS_TOPIC, 0)  # its mark: what it says of files that are gone is not so
    internal = stopped.topics()
    found = finding.find(stopped.folder, stopped.files, internal.state.by_id)
    lost = [one for one in found if not one.is_aside]
    is_lost = finding.fault_of_topics(internal.log, internal.ahead, lost, stopped.folder.path) is not None
    state = _state(internal)
    found = [one for one in found if one.is_aside or one.topic_id not in state.by_id]
    there = stopped.folder.contents().partitions
    more = {topic.topic_id: index + 1 for topic, index in sorted(finding.beyond(there, state), key=lambda one: one[1])}
    decided = decide(_chosen(found, chosen), state, more, _taken(stopped, found, there), new_name, _now_ms())
    for adoption in decided.adopted:
        _bring_back(stopped, adoption)
    records = [topic_record(one.topic) for one in decided.adopted]
    if is_lost:
        internal = _make_anew(stopped, internal, state)
        records = [*fold.to_records(state), *records]
    if is_lost or is_short:
        records += reserving.records_of(stopped, state.producer_ids)
    reserving.write(stopped, internal, records)
    return Adopted(decided, is_lost, len(pairs))


def _settle_for_what_is_left(stopped: StoppedBroker) -> bool:
    """Whether files of the log of topics are missing. One of another partition is set aside; a beginning that is gone
    is given up, so that the rest can be folded; without an end it is a shorter log, and folders say what it had.
    """
    is_short = False
    while True:
        try:
            stopped.open(TOPICS_TOPIC, 0)
        except MissingRecords as missing:
            is_short = True
            if not isinstance(missing, ForeignSegment) and missing.end == missing.known.end_offset:
                return True
            stopped.accept(TOPICS_TOPIC, 0, missing)
        else:
            return is_short


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _state(internal: InternalTopic) -> Topics:
    """As the newest whole snapshot has it, where that has more than the log."""
    state: Topics = internal.state if internal.ahead < 0 else internal.snapshot_ahead()
    return state


def _chosen(found: Sequence[Orphan], chosen: Sequence[str]) -> list[Orphan]:
    if not chosen:
        return list(found)
    names = [{one.topic, one.topic_id.hex(), one.name, partition_name(one.topic_id, one.partition)} for one in found]
    for name in chosen:
        if not any(name in some for some in names):
            raise UsageError(f"nothing is set aside that is called {name}; `tidelog repair` shows what is")
    return [one for one, some in zip(found, names, strict=True) if some & set(chosen)]


def _taken(
    stopped: StoppedBroker, found: Iterable[Orphan], there: Collection[tuple[bytes, int]]
) -> set[tuple[bytes, int]]:
    places = {(one.topic_id, one.partition) for one in found if one.is_aside} & set(there)
    looked = [finding.look(stopped.folder, stopped.files, place, is_aside=False) for place in places]
    return {(one.topic_id, one.partition) for one in looked if one.held.anything}


def _bring_back(stopped: StoppedBroker, adoption: Adoption) -> None:
    folder, files, identity = stopped.folder, stopped.files, identity_of(adoption.topic)
    for one in adoption.folders:
        path = f"{folder.path}/{one.name}"
        if not identity_file.says(one.identity, identity):
            identity_file.save(files, path, identity)
        if one.is_aside:
            remove_folder(files, folder.partition(one.topic_id, one.partition))  # of one without a record, if any
            folder.bring_back(one.topic_id, one.partition)
        stopped.must_recover(one.topic_id, one.partition)
    files.sync_folder(folder.path)


def _make_anew(stopped: StoppedBroker, old: InternalTopic, state: Topics) -> InternalTopic:
    """An empty log of topics that begins behind the newest snapshot."""
    files, path = stopped.files, old.log.folder
    begin = max(old.ahead, old.log.end_offset)
    stopped.abandon(TOPICS_TOPIC, 0)
    if Path(path).exists():
        files.rename(path, _free_name(path + REPLACED_SUFFIX))
    files.make_folder(path)
    if begin > 0:
        facts_file.save(files, path, Facts(start_offset=begin))
    files.sync_folder(stopped.folder.path)
    log = stopped.open(TOPICS_TOPIC, 0, identity_of(TOPICS_TOPIC))
    made = InternalTopic(TOPICS_TOPIC.name, TopicFold(fold.fresh, fold.apply, fold.to_records), lambda _error: None)
    made.recover(log, stopped.folder.path, files)
    assert made.state.by_name.keys() == state.by_name.keys(), "what was known is in the snapshot"
    return made


def _free_name(path: str) -> str:
    names = [path, *(f"{path}.{number}" for number in range(2, 1000))]
    return next(name for name in names if not Path(name).exists())
