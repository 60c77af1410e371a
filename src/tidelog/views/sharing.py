"""Whose partitions are whose: an applier that is alone has all of a view, those that share one split it as a group.

    alone     every partition, in one transaction; offsets are reported for a group without members
    sharing   what the broker assigns of the followed topics, by the consumer protocol (`client/membership.py`)

What holds when a view is shared, and a reader sees:

- Each applier takes whole micro-batches of its own partitions, one store transaction each. So a micro-batch is there
  whole in each partition, and one partition may be ahead of another by some: a row is never half, a key's changes are
  never out of order, two rows of one micro-batch may come one after the other.
- `Place.ends` is exact for the rows beside it, and is what waits, cursors and switches go by. `Place.mark` is a mark
  that all partitions have reached: it may be older than some of the rows, never newer than any.
- The store refuses who is no longer the owner, by the partition's end (rule 17), and not the group: partitions move by
  the broker's word, and rows by the store's. Who is refused reads its place again, and asks the broker what it owns.
- What is built aside is shown by whoever finds that the ends which the store has of *all* partitions have reached what
  they must: at the latest who applies last. It cannot see whether a partition ends within a micro-batch, and others may
  hear late that it was shown. So a partition is cut within one only below the newest mark of when the build began
  (`Begun`), and nobody shows anything that is not beyond that one: what each must reach is looked up after `Begun` was.
- What others change is looked for in the store: which generation is shown, and which ones are there (LOOK_EVERY_S).
- When a build began is told before its first row is applied, for all partitions: who joins must not begin it anew. What
  is told stands, also where nothing was applied yet: it is asked for after one's own `Begun` was taken, so of two who
  find nothing, neither has taken his after the other looked up what to reach.
- Reports of appliers that are no more in the group are taken away by those that take over.

What is told, as metadata of the group's offsets:

    {"begun_ms":MS,"marks_end":OFFSET}      by the clock, and in the topic of marks: what lay before it was committed
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from tidelog.client.admin import groups
from tidelog.client.cluster import Cluster
from tidelog.client.membership import GroupMembership
from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Ends
from tidelog.control.status import read_status, take_away
from tidelog.errors import AnotherApplier, BrokerError, TidelogError
from tidelog.views.stores.store import Store
from tidelog.wire.error_code import ErrorCode

GROUP_PREFIX = "tidelog."
LOOK_EVERY_S = 0.5
APPLIER = "applier"


def group_of(view: str, store: str) -> str:
    """Whose offsets tell how far a store is."""
    return f"{GROUP_PREFIX}{view}.{store}"


class Begun(NamedTuple):
    """When a build aside began: for all who share it or go on with it."""

    ms: int
    marks_end: int

    @property
    def text(self) -> str:
        return json.dumps({"begun_ms": self.ms, "marks_end": self.marks_end}, separators=(",", ":"))


def begun_from_text(text: str) -> Begun:
    told = json.loads(text)
    return Begun(int(told["begun_ms"]), int(told.get("marks_end", 0)))


def told_begun(cluster: Cluster, group: str, topic: str) -> Begun | None:
    """None where nothing is told. Of two who began at once each tells its own, with its partitions: it is as old as the
    first one, and each end of the marks holds for all.
    """
    committed = groups.committed(cluster, group)
    told = [begun_from_text(one.metadata) for at, one in committed.items() if at.topic == topic and one.metadata]
    if not told:
        return None
    return Begun(min(one.ms for one in told), max(one.marks_end for one in told))


class Share(Protocol):
    """Of one applier, in its thread."""

    @property
    def member_id(self) -> str | None:
        """None: alone."""

    def beat(self, topics: Iterable[str]) -> bool:
        """Stays in the group; whether what is ours has changed."""

    def has_news(self) -> bool:
        """Whether others have changed what is in the store beside rows."""

    def of(self, topic: str) -> list[TopicPartition]: ...

    def is_still(self, topic: str, partitions: Collection[TopicPartition]) -> bool:
        """Whether these are what we have of the topic."""

    def begin(self, topic: str, begun: Begun) -> None:
        """Tells when a build began, before it does."""

    def begun(self, topic: str) -> Begun | None:
        """What is told of it; None where nothing is."""

    def commit(self, offsets: Ends, metadata: str) -> None: ...

    def leave(self) -> None: ...


class Alone:
    member_id: str | None = None

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group

    def beat(self, topics: Iterable[str]) -> bool:
        return False

    def has_news(self) -> bool:
        return False

    def of(self, topic: str) -> list[TopicPartition]:
        return self._cluster.partitions(topic)

    def is_still(self, topic: str, partitions: Collection[TopicPartition]) -> bool:
        return True

    def begin(self, topic: str, begun: Begun) -> None:
        pass

    def begun(self, topic: str) -> Begun | None:
        return told_begun(self._cluster, self._group, topic)

    def commit(self, offsets: Ends, metadata: str) -> None:
        try:
            groups.commit(self._cluster, self._group, offsets, metadata=metadata)
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            raise AnotherApplier(
                f"group {self._group} has members: others share this view; stop them, or share it too (--share)"
            ) from error

    def leave(self) -> None:
        pass


class Sharing:
    def __init__(self, cluster: Cluster, group: str, store: Store) -> None:
        self._cluster = cluster
        self._store = store
        self._member = GroupMembership(cluster, group)
        self.member_id: str | None = self._member.member_id
        self._looked_at = 0.0
        self._seen: tuple[int | None, frozenset[int]] = (None, frozenset())

    def beat(self, topics: Iterable[str]) -> bool:
        changed = self._member.beat(topics)
        if changed:
            self._clear_reports()
        return changed

    def has_news(self) -> bool:
        if time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return False
        before, self._seen = self._seen, (self._store.shown(), frozenset(self._store.generations()))
        self._looked_at = time.monotonic()
        return self._seen != before

    def of(self, topic: str) -> list[TopicPartition]:
        return sorted(at for at in self._member.partitions if at.topic == topic)

    def is_still(self, topic: str, partitions: Collection[TopicPartition]) -> bool:
        return set(self.of(topic)) == set(partitions)

    def begin(self, topic: str, begun: Begun) -> None:
        known = groups.committed(self._cluster, self._member.group)
        every = self._cluster.partitions(topic)
        offsets = {at: known[at].offset if at in known else 0 for at in every}
        if not self._member.commit(offsets, metadata=begun.text):
            raise AnotherApplier(f"group {self._member.group} has moved on; this applier asks again what it owns")

    def begun(self, topic: str) -> Begun | None:
        return told_begun(self._cluster, self._member.group, topic)

    def commit(self, offsets: Ends, metadata: str) -> None:
        self._member.commit(offsets, metadata=metadata)

    def leave(self) -> None:
        self._member.leave()

    def _clear_reports(self) -> None:
        """They are notes: where they cannot be read or taken away, they stay."""
        with suppress(TidelogError):
            there = {one.member_id for one in groups.describe(self._cluster, self._member.group).members}
            for report in read_status(self._cluster):
                if report.kind == APPLIER and _is_of_gone(report.figures, self._member.group, there):
                    take_away(self._cluster, APPLIER, report.name)


def _is_of_gone(figures: Mapping[str, object], group: str, there: Collection[str]) -> bool:
    return figures.get("group") == group and figures.get("member") is not None and figures["member"] not in there
