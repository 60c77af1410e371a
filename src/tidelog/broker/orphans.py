"""Partition folders that no topic knows: a start removes what nobody can miss, and sets the rest aside.

A topic's record is on disk before its first partition has a folder (`Log.hold_until_decided`), and stays until the
topic is deleted. So a folder without a topic is one of these:

    ended    the log of topics says that its topic was deleted, and a crash came before the folder was   it goes
    empty    it holds no record                                                                          it goes
    lost     it holds records, and what the log of topics said of them is damaged or gone                set aside

What is lost gets the name `ID-INDEX.orphaned`: no broker opens it, none removes it, `tidelog repair` shows it and
`tidelog repair adopt` gives it back. Until then groups keep their offsets of its topic.

A log of topics that is missing or empty is another thing: then nothing is known of any topic, and a start that went on
would set everything aside and look well. It is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import NamedTuple

from tidelog.broker.topics import Change, Topic, TopicChange, Topics
from tidelog.errors import DataFolderError, StorageError
from tidelog.log import contents as held_in
from tidelog.log import identity as identity_file
from tidelog.log.contents import Held
from tidelog.log.files import Files
from tidelog.log.folder import ORPHANED_SUFFIX, DataFolder
from tidelog.log.identity import Identity
from tidelog.log.log import Log
from tidelog.log.names import partition_name
from tidelog.log.upkeep import remove_folder
from tidelog.logger import Logger

NAMES_SHOWN = 5

PartitionId = tuple[bytes, int]


class Orphan(NamedTuple):
    """A folder without a topic; `identity` is what its file says of the topic that it had."""

    topic_id: bytes
    partition: int
    is_aside: bool
    identity: Identity | None
    held: Held

    @property
    def name(self) -> str:
        return partition_name(self.topic_id, self.partition) + (ORPHANED_SUFFIX if self.is_aside else "")

    @property
    def topic(self) -> str | None:
        return None if self.identity is None else self.identity.topic


def look(folder: DataFolder, files: Files, place: PartitionId, *, is_aside: bool) -> Orphan:
    path = folder.partition(*place) + (ORPHANED_SUFFIX if is_aside else "")
    try:
        identity = identity_file.load(files, path)
    except (OSError, StorageError):
        identity = None
    if identity is not None and identity.topic_id != place[0]:
        identity = None  # it was copied from elsewhere, and says nothing of this one
    return Orphan(*place, is_aside, identity, held_in.look(files, path))


def find(folder: DataFolder, files: Files, topics: Collection[bytes], ended: Collection[bytes] = ()) -> list[Orphan]:
    """What is lost or set aside, by topic and index; waits for the disk."""
    there = folder.contents()
    unknown = [place for place in there.partitions if place[0] not in topics and place[0] not in ended]
    found = [look(folder, files, place, is_aside=False) for place in unknown]
    found = [one for one in found if one.held.anything]
    found += [look(folder, files, place, is_aside=True) for place in there.orphaned]
    return sorted(found, key=lambda one: one[:3])


def beyond(there: Iterable[PartitionId], topics: Topics) -> list[tuple[Topic, int]]:
    """Partitions that have a folder and that their topic does not have."""
    known = [(topics.by_id[topic_id], index) for topic_id, index in there if topic_id in topics.by_id]
    return [(topic, index) for topic, index in known if index >= topic.partitions]


def fault_of_topics(log: Log, ahead: int, lost: Collection[Orphan], data: str) -> str | None:
    """Why nothing that the log of topics says, or does not say, can be believed; None when it can.

    `ahead` is how far a snapshot of it goes that has more than the log, -1 when there is none.
    """
    if ahead > log.end_offset:
        wrong = f"ends at offset {log.end_offset}, and a snapshot of it goes up to {ahead}"
    elif lost and not log.segments():
        wrong = "is missing"
    elif lost and log.end_offset == 0:
        wrong = "is empty"
    else:
        return None
    names = ", ".join(one.name for one in list(lost)[:NAMES_SHOWN]) + (", ..." if len(lost) > NAMES_SHOWN else "")
    there = f"{data} has {len(lost)} partitions with records ({names})" if lost else f"{data} is damaged"
    return (
        f"{there}, and its log of topics, {log.folder}, {wrong}; restore the data folder from a backup, or run:"
        f" tidelog repair adopt --data {data}, which rebuilds that log from its snapshot and from what each folder"
        " says of its topic"
    )


class Orphans:
    """Loop thread only; what waits for the disk after the start runs in the background."""

    def __init__(self, folder: DataFolder, files: Files, logger: Logger, background: Callable[..., None]) -> None:
        self._folder = folder
        self._files = files
        self._logger = logger
        self._background = background
        self._ended: set[bytes] | None = set()  # ids of topics that were deleted; None: nobody asks any more
        self._names: set[str] = set()
        self._nameless = False

    def note(self, change: Change) -> None:
        """A record of the log of topics was applied, at the start or since."""
        if self._ended is None or not isinstance(change, TopicChange):
            return
        if change.before is not None:
            self._ended.add(change.before.topic_id)
        if change.after is not None:
            self._ended.discard(change.after.topic_id)

    def is_set_aside(self, topic: str) -> bool:
        """Whether there may be records of it that it can be given back with."""
        return self._nameless or topic in self._names

    def begin(self, topics: Topics, log: Log, ahead: int) -> list[str]:
        """Before anything rests on the topics: refuses the start, or sets aside what is lost; returns those folders."""
        found = find(self._folder, self._files, topics.by_id, self._ended or ())
        lost = [one for one in found if not one.is_aside]
        fault = fault_of_topics(log, ahead, lost, self._folder.path)
        if fault is not None:
            raise DataFolderError(fault)
        for one in lost:
            self._set_aside(one)
        self._names = {one.topic for one in found if one.topic is not None}
        self._nameless = any(one.topic is None for one in found)
        if lost:  # so many lines of one kind are not all written
            names = ",".join(sorted({one.topic or "unknown" for one in lost})[:NAMES_SHOWN])
            self._logger.error("partitions have lost their topic", count=len(lost), topics=names, **self._advice())
        waiting = len(found) - len(lost)
        if waiting:
            self._logger.warning("folders are set aside", count=waiting, **self._advice())
        return [partition_name(one.topic_id, one.partition) for one in lost]

    def _set_aside(self, orphan: Orphan) -> None:
        path = self._folder.set_aside(orphan.topic_id, orphan.partition)
        self._logger.error(
            "folder set aside: it has records and no topic",
            folder=path,
            topic=orphan.topic or "unknown",
            records=orphan.held.records,
            bytes=orphan.held.size,
            why="the log of topics has lost the topic's record, or the folder came from elsewhere",
            **self._advice(),
        )

    def _advice(self) -> dict[str, str]:
        return {"next": f"stop the broker, then: tidelog repair adopt --data {self._folder.path}"}

    def tell_beyond(self, there: Iterable[PartitionId], topics: Topics) -> None:
        for topic, index in beyond(there, topics):
            self._logger.error(
                "partition cannot be reached: its topic has fewer",
                topic=topic.name,
                partition=index,
                partitions=topic.partitions,
                folder=self._folder.partition(topic.topic_id, index),
                **self._advice(),
            )

    def clear(
        self, there: Iterable[PartitionId], topics: Topics, decided_in: Log, forget: Callable[[str], None]
    ) -> None:
        """After the start: what is left of topics that were deleted, and of those that never came to be, goes.

        `there` was listed before the topics are looked at, here on the loop: one that came meanwhile is safe. And so is
        one whose end is decided and not yet on disk: nothing goes before that is.
        """
        there = list(there)
        self.tell_beyond(there, topics)
        ended, self._ended = self._ended or set(), None
        orphans = [one for one in there if one[0] not in topics.by_id]

        def clear(error: StorageError | None) -> None:
            for place in orphans if error is None else ():
                forget(partition_name(*place))
                self._background(partial(self._clear, place, place[0] in ended))

        decided_in.when_visible(decided_in.end_offset, clear)

    def _clear(self, place: PartitionId, is_ended: bool) -> None:
        path = self._folder.partition(*place)
        try:
            found = look(self._folder, self._files, place, is_aside=False)
            if found.held.anything and not is_ended:
                self._set_aside(found)
                return
            self._logger.info("left-over folder removed", path=path)
            remove_folder(self._files, path)
        except OSError as error:
            self._logger.error("folder not removed", path=path, error=error)
