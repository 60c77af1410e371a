"""One generation in a store, as an applier follows it: from where, at which pace, and when it may be shown.

    new         nothing is there of it: it is prepared, and built aside
    going on    its place is in the store
    left        `LeftBehind`: what lies between its place and now is no longer whole. Built anew, beside itself where
                readers see it, in their place where they do not

Rules:
- A build that was interrupted goes on if it began within the horizon: that is told with its group's offsets. Of an
  older one deletes may be missing, so it begins anew.
- Others may share the view: what they have begun is gone on with, and what they own is theirs (`sharing.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidelog.client.admin import groups
from tidelog.client.cluster import Cluster
from tidelog.client.marks import Ends, read_mark, topic_of
from tidelog.client.offsets import LATEST, READ_COMMITTED, list_offsets
from tidelog.errors import AnotherApplier, TidelogError
from tidelog.views.catalog import Generation
from tidelog.views.following import copy_of, is_due, is_due_of, next_copy
from tidelog.views.reading import LeftBehind, Pace, Reading, opened
from tidelog.views.sharing import Share
from tidelog.views.stores.store import Place, Store


@dataclass(slots=True)
class Follower:
    generation: Generation
    number: int  # the store's
    reading: Reading
    aim: Ends
    shown: bool
    begun_ms: int
    stuck: str | None = None  # at a record that is no change, and this is why: it stays as it is

    def show(self) -> None:
        """From now on readers look."""
        self.shown = True
        self.reading.shown()

    @property
    def metadata(self) -> str:
        """What is told with its offsets."""
        return "" if self.shown else _begun_text(self.begun_ms)

    def is_due(self, store: Store, share: Share) -> bool:
        """Whether it is to be shown where it stands. Others' partitions are as far as the store has them."""
        ends = self.reading.ends
        if self.shown:
            return False
        if share.member_id is None:
            return self.reading.is_whole and is_due(self.generation, ends, self.aim)
        if not is_due_of(self.generation, ends, self.aim):
            return False
        place = store.place(self.number)
        return place is not None and is_due(self.generation, place.ends, self.aim)


class Opener:
    def __init__(
        self, cluster: Cluster, view: str, group: str, store: Store, share: Share, say: Callable[[str], object]
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._group = group
        self._store = store
        self._share = share
        self._say = say

    def exists(self, generation: Generation) -> bool:
        """A view is declared before its topics are made."""
        names = [generation.topic, *([topic_of(generation.sink)] if generation.sink else [])]
        answered = self._cluster.ask_metadata(names).topics
        return all(name in answered and answered[name].led for name in names)

    def open(self, generation: Generation, shown: int | None) -> Follower:
        number = copy_of(generation.number, self._store.generations())
        try:
            return self._at(generation, number, is_shown=number == shown)
        except LeftBehind as error:
            return self.anew(generation, number, is_shown=number == shown, why=error)

    def anew(self, generation: Generation, number: int, *, is_shown: bool, why: TidelogError) -> Follower:
        """Built from the start, if nobody else has begun that."""
        stored = self._store.generations()
        if copy_of(generation.number, stored) != number:
            return self.open(generation, self._store.shown())
        self._say(str(why))
        if is_shown:
            number = next_copy(generation.number, stored)
        self._store.forget(number)
        return self._at(generation, number, is_shown=False)

    def _at(self, generation: Generation, number: int, *, is_shown: bool) -> Follower:
        place = self._prepared(generation, number)
        begun_ms = int(time.time() * 1000)
        if place.ends and not is_shown:
            found = self._begun(generation)
            if found is None:
                self._store.forget(number)
                place = self._prepared(generation, number)
            else:
                begun_ms = found
        if not place.ends and not is_shown:
            self._share.begin(generation.topic, _begun_text(begun_ms))
        aside = Pace.ANY if self._share.member_id is None else Pace.ASIDE
        pace, mine = Pace.WHOLE if is_shown else aside, self._share.of(generation.topic)
        reading = opened(self._cluster, generation, place, pace=pace, partitions=mine)
        aim = {} if is_shown else self._aim(generation)
        return Follower(generation, number, reading, aim, is_shown, begun_ms)

    def _prepared(self, generation: Generation, number: int) -> Place:
        self._store.prepare(number, generation.declared)
        place = self._store.place(number)
        if place is None:
            raise AnotherApplier(f"view {self._view}: another applier forgets what this one prepares; stop one of them")
        return place

    def _aim(self, generation: Generation) -> Ends:
        """What is the newest by now, of all partitions."""
        every = self._cluster.partitions(generation.topic)
        if not generation.sink:
            latest = list_offsets(self._cluster, dict.fromkeys(every, LATEST), isolation=READ_COMMITTED)
            return {at: found.offset for at, found in latest.items()}
        mark = read_mark(self._cluster, generation.sink)
        return {} if mark is None else {at: mark.ends[at] for at in every if at in mark.ends}

    def _begun(self, generation: Generation) -> int | None:
        """When the build that the store has was begun; None where that is unknown, or longer ago than the horizon."""
        oldest = time.time() * 1000 - generation.declared.horizon_ms
        for at, one in groups.committed(self._cluster, self._group).items():
            if at.topic == generation.topic and one.metadata:
                begun = int(json.loads(one.metadata)["begun_ms"])
                return begun if begun > oldest else None
        return None


def _begun_text(begun_ms: int) -> str:
    return json.dumps({"begun_ms": begun_ms})
