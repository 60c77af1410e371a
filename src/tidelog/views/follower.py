"""One generation in a store, as an applier follows it: from where, at which pace, and when it may be shown.

    new         nothing is there of it: it is prepared, and built aside
    going on    its place is in the store
    left        `LeftBehind`: what lies between its place and now is no longer whole. Built anew, beside itself where
                readers see it, in their place where they do not

Rules:
- A build that was interrupted goes on if it began within the horizon: that is told with its group's offsets. Of an
  older one deletes may be missing, so it begins anew.
- Nothing is shown before the first mark is applied: until a micro-batch was committed, a view without rows would be
  taken for the answer. The first one of a query is committed also where its inputs have nothing.
- Others may share the view: what they have begun is gone on with, and what they own is theirs (`sharing.py`).
- Who shares asks what is told of the build after it has taken the end of the marks itself, and looks up what is to be
  reached after that. In this order, nobody cuts a partition where another would show it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tidelog.client.cluster import Cluster
from tidelog.client.offsets import LATEST, READ_COMMITTED, list_offsets
from tidelog.control.catalog import Generation
from tidelog.control.marks import Ends, partition_of_marks, read_mark, topic_of
from tidelog.errors import AnotherApplier, TidelogError
from tidelog.views.following import copy_of, is_due, is_due_of, next_copy
from tidelog.views.reading import Fold, LeftBehind, Pace, Reading, opened
from tidelog.views.sharing import Begun, Share
from tidelog.views.stores.store import Place, Store


@dataclass(slots=True)
class Follower:
    generation: Generation
    number: int  # the store's
    reading: Reading
    aim: Ends
    shown: bool
    begun: Begun | None  # None: it was shown when it was opened
    stuck: str | None = None  # at a record that is not a change, and this is why: it stays as it is

    def show(self) -> None:
        """From now on readers look."""
        self.shown = True
        self.reading.shown()

    @property
    def metadata(self) -> str:
        """What is told with its offsets."""
        return "" if self.shown or self.begun is None else self.begun.text

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
        if place is None or (self.generation.sink and place.mark is None):
            return False
        return is_due(self.generation, place.ends, self.aim) and self._is_still_told(share)

    def _is_still_told(self, share: Share) -> bool:
        """Who slept for longer than the horizon may have what others have begun anew: cut beyond what it must reach."""
        told = share.begun(self.generation.topic)
        return told is None or (self.begun is not None and told.marks_end <= self.begun.marks_end)


class Opener:
    def __init__(
        self,
        cluster: Cluster,
        view: str,
        store: Store,
        share: Share,
        say: Callable[[str], object],
        fold_of: Callable[[Generation, int], Fold | None] = lambda generation, number: None,
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._store = store
        self._share = share
        self._say = say
        self._fold_of = fold_of

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
        mine = self._share.of(generation.topic)
        fold = self._fold_of(generation, number)
        if is_shown:
            reading = opened(self._cluster, generation, place, pace=Pace.WHOLE, partitions=mine, fold=fold)
            return Follower(generation, number, reading, {}, True, None)
        place, begun = self._begun(generation, number, place)
        pace = Pace.ANY if self._share.member_id is None else Pace.ASIDE
        free = self._free(generation, begun) if pace is Pace.ASIDE else None
        reading = opened(self._cluster, generation, place, pace=pace, partitions=mine, free=free, fold=fold)
        return Follower(generation, number, reading, self._aim(generation), False, begun)

    def _prepared(self, generation: Generation, number: int) -> Place:
        self._store.prepare(number, generation.declared)
        place = self._store.place(number)
        if place is None:
            raise AnotherApplier(f"view {self._view}: another applier forgets what this one prepares; stop one of them")
        return place

    def _begun(self, generation: Generation, number: int, place: Place) -> tuple[Place, Begun]:
        """When the build began, and its place: the one that the store has, or none if that one is too old."""
        now = Begun(int(time.time() * 1000), self._end_of_marks(generation))
        told = self._share.begun(generation.topic)
        if told is not None and told.ms <= now.ms - generation.declared.horizon_ms:
            told = None
        if told is None and place.ends:
            self._store.forget(number)
            place = self._prepared(generation, number)
        is_known = bool(place.ends) or self._share.member_id is not None  # what one who is alone had begun is gone
        begun = told if told is not None and is_known else now
        if not place.ends:
            self._share.begin(generation.topic, begun)
        return place, begun

    def _end_of_marks(self, generation: Generation) -> int:
        """Of those that are committed by now."""
        if not generation.sink:
            return 0
        at = partition_of_marks(generation.sink)
        return list_offsets(self._cluster, {at: LATEST}, isolation=READ_COMMITTED)[at].offset

    def _free(self, generation: Generation, begun: Begun) -> Ends:
        """Up to where a build that is shared may be cut anywhere: the newest mark of when it began, if it is kept."""
        if not generation.sink or begun.marks_end > self._end_of_marks(generation):  # the topic was made anew
            return {}
        mark = read_mark(self._cluster, generation.sink, begun.marks_end)
        return {} if mark is None else mark.ends

    def _aim(self, generation: Generation) -> Ends:
        """What is the newest by now, of all partitions."""
        every = self._cluster.partitions(generation.topic)
        if not generation.sink:
            latest = list_offsets(self._cluster, dict.fromkeys(every, LATEST), isolation=READ_COMMITTED)
            return {at: found.offset for at, found in latest.items()}
        mark = read_mark(self._cluster, generation.sink)
        return {} if mark is None else {at: mark.ends[at] for at in every if at in mark.ends}
