"""An applier: one view, one store. It follows the catalog, the marks and the topic, and applies whole micro-batches.

It has all partitions of the view, or its share of them beside others (`sharing.py` says what then holds).

    opening      the catalog is read; each generation to follow gets its place from the store
    following    marks and rows are fetched, stretches applied, one store transaction each; what is due is shown
    away         the broker or the store did not answer: tried again, later each time, everything read anew
    stopped      by `stop` (SIGTERM), between two stretches; or by `AnotherApplier`, for good
    refused      `AnotherApplier`, for who shares: its place is read anew, and what it owns is asked for

Rules:
- All that an applier knows is in the store: after any fault it reads its place there and goes on. It never guesses
  whether a transaction that failed was committed.
- A generation that starts from nothing, or was left behind beyond the horizon, is built aside, and shown in the
  transaction that reaches `live` and the mark that was the newest when it began. Until then readers have what they had.
- Offsets are reported as group `tidelog.<view>.<store>`, once a second at most; they are for tools, the store's count.
- One thread, one cluster, one store. `report` gets figures for the status topic as they change. Who shares beats
  between two fetches: a stretch that takes longer than a session may be given to others, and one of the two is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidelog.client.backoff import waits
from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.consumer import MAX_WAIT_MS, Consumer, Fetched
from tidelog.client.offsets import LATEST, READ_COMMITTED, list_offsets
from tidelog.control import catalog
from tidelog.control.catalog import CATALOG, VIEW, Generation, View, find_view
from tidelog.control.marks import Ends
from tidelog.errors import AnotherApplier, BrokerError, Disconnected, StorageError, TidelogError, UsageError
from tidelog.views.changes import NoChange
from tidelog.views.follower import Follower, Opener
from tidelog.views.following import copy_of, is_due, to_follow, to_forget
from tidelog.views.reading import Fold, LeftBehind, reached
from tidelog.views.sharing import Alone, Share, Sharing, group_of
from tidelog.views.stores.store import Store, generation_of
from tidelog.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from tidelog.views.folding import RowFolding

REPORT_EVERY_S = 1.0
TOPIC_EVERY_S = 0.2  # a topic that is not there yet is looked for this often
PASSING = (Disconnected, BrokerError, StorageError)

Figures = Mapping[str, Any]


class Applier:
    def __init__(
        self,
        cluster: Cluster,
        view: str,
        store: Store,
        *,
        store_name: str,
        report: Callable[[Figures], object] = lambda figures: None,
        say: Callable[[str], object] = lambda line: None,
        max_wait_ms: int = MAX_WAIT_MS,
        shared: bool = False,
        folding: RowFolding | None = None,
    ) -> None:
        """`say` gets one line for each fault that is new, and when it has passed. `shared`: with others that say so.
        `folding`: what makes the rows of a view whose topic does not have them; its generations alone are followed.
        """
        self.name = view
        self.group = group_of(view, store_name)
        self._cluster = cluster
        self._store = store
        self._share: Share = Sharing(cluster, self.group, store) if shared else Alone(cluster, self.group)
        self._folding = folding
        self._opener = Opener(cluster, view, store, self._share, self._tell_of, self._fold_of)
        self._report = report
        self._say = say
        self._max_wait_ms = max_wait_ms
        self._stopping = False
        self._waiting = False  # for topics that are not there yet
        self._view: View | None = None
        self._followers: list[Follower] = []
        self._topics: list[str] = []
        self._error: str | None = None
        self._refused = False
        self._transactions = self._rows = 0
        self._reported: dict[int, Ends] = {}
        self._reported_at = 0.0

    @property
    def is_away(self) -> bool:
        return self._error is not None

    @property
    def member_id(self) -> str | None:
        """In the group of those that share; None: alone."""
        return self._share.member_id

    def stop(self) -> None:
        """From a signal handler or another thread: `run` returns after the stretch that is being applied."""
        self._stopping = True

    def run(self) -> None:
        """Until `stop`. Raises what does not pass: `AnotherApplier`, a view that is gone, rows that cannot be read."""
        delays = waits()
        try:
            while not self._stopping:
                try:
                    self.step()
                    delays = self._recovered(delays)
                except PASSING as error:
                    self._away(error)
                    self._pause(next(delays))
                except AnotherApplier:
                    if self.member_id is None:
                        raise
                    self._read_anew()
                    self._pause(next(delays))
            self._end()
        finally:
            self._leave()

    def step(self) -> None:
        """One fetch, and all that can be applied after it."""
        view = self._view or self._open()
        if self._share.has_news():
            self._follow(view)
        while self._share.beat(self._topics):
            self._follow(view)
        self._advance()
        if self._stopping:
            return
        for fetched in self._fetch():
            self._note(fetched)
        self._advance()
        self._tell()

    # Following --------------------------------------------------------------------------------------------------------

    def _open(self) -> View:
        self._consumer = Consumer(self._cluster, max_wait_ms=self._max_wait_ms, read_committed=True)
        # Taken before the catalog is read: what comes after it is followed.
        end = _committed_end(self._cluster)
        shown = self._store.shown()  # before the catalog is: somebody who shares the view may show what comes then
        # Whole: by an older record, what it does not name yet would be dropped, and what it calls live shown again.
        view = find_view(self._cluster, self.name, whole=True)
        _check_shown(view, shown)
        self._consumer.assign({CATALOG: end})
        self._catalog_position = end
        self._follow(view)
        self._view = view
        return view

    def _follow(self, view: View) -> None:
        """Opens what is to be followed and is not, and leaves the rest."""
        shown = self._store.shown()
        wanted = self._mine(to_follow(view, shown))
        self._followers = self._kept(wanted, shown)
        known = {one.generation.number for one in self._followers}
        there = [one for one in wanted if one.number in known or self._opener.exists(one)]
        self._waiting = len(there) < len(wanted)
        self._topics = [one.topic for one in there]
        self._followers += [
            self._opener.open(one, shown) for one in there if one.number not in known and self._share.of(one.topic)
        ]
        for number in to_forget(view, self._store.generations(), shown):
            self._store.forget(number)
        self._check_stuck()  # what was to take its place may have been given up

    def _mine(self, generations: list[Generation]) -> list[Generation]:
        """One that is folded belongs to the program with its fold, and no other program can go on with it."""
        fingerprint = None if self._folding is None else self._folding.fingerprint
        mine = [one for one in generations if (one.fingerprint if one.is_folded else None) == fingerprint]
        if generations and not mine and self._folding is None:
            raise UsageError(
                f"view {self.name} is a read model of {generations[0].topic}; the program that has it applies it"
            )
        return mine

    def _fold_of(self, generation: Generation, number: int) -> Fold | None:
        if self._folding is None:
            return None
        return self._folding.fold(generation.declared, self._store, number)

    def caught_up(self) -> dict[int, Ends]:
        """Generations that are being built and have all that there was when they were begun, with their ends."""
        return {
            one.generation.number: dict(one.reading.ends)
            for one in self._followers
            if one.generation.live is None and not one.stuck and reached(one.aim, one.reading.ends)
        }

    def shown_ends(self) -> Ends | None:
        """How far what readers see is applied; None where they see nothing of this applier's."""
        return next((dict(one.reading.ends) for one in self._followers if one.shown), None)

    def _kept(self, wanted: Collection[Generation], shown: int | None) -> list[Follower]:
        """Those that go on as they are. Others, who share the view, may have shown one, or begun it anew."""
        stored = self._store.generations()
        kept = [
            one
            for one in self._followers
            if one.generation in wanted
            and one.number == copy_of(one.generation.number, stored)
            and self._share.is_still(one.generation.topic, one.reading.partitions)
        ]
        for one in kept:
            if one.number == shown and not one.shown:
                one.show()
        return kept

    # Reading and applying ---------------------------------------------------------------------------------------------

    def _fetch(self) -> list[Fetched]:
        wanted = {CATALOG: self._catalog_position}
        for follower in self._followers:
            wanted |= {} if follower.stuck else follower.reading.wanted()
        self._consumer.assign(wanted)
        self._consumer.max_wait_ms = int(TOPIC_EVERY_S * 1000) if self._waiting else self._max_wait_ms
        try:
            return self._consumer.fetch()
        except BrokerError as error:
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._check_ends()
            raise

    def _note(self, fetched: Fetched) -> None:
        if fetched.at == CATALOG:
            self._note_catalog(fetched)
            return
        for index, follower in enumerate(self._followers):
            try:
                follower.reading.note(fetched)
            except LeftBehind as error:
                self._followers[index] = self._opener.anew(
                    follower.generation, follower.number, is_shown=follower.shown, why=error
                )

    def _note_catalog(self, fetched: Fetched) -> None:
        self._catalog_position = fetched.next_offset
        changed: catalog.Catalog = {(VIEW, self.name): self._view} if self._view else {}
        for row in fetched.rows():
            catalog.note(changed, row.key or b"", row.value)
        found = changed.get((VIEW, self.name))
        if not isinstance(found, View):
            raise UsageError(f"view {self.name} was taken out of the catalog; its applier has nothing to do")
        if found != self._view:
            self._view = found
            self._grow(found)
            self._follow(found)

    def _grow(self, view: View) -> None:
        """A generation that is live by now, or has more columns: the same topic, so it is read on where it was."""
        for follower in self._followers:
            now = next((one for one in view.generations if one.number == follower.generation.number), None)
            if now is not None and now != follower.generation:
                if now.declared != follower.generation.declared:
                    self._store.prepare(follower.number, now.declared)
                    follower.reading.declared = now.declared
                follower.generation = now

    def _advance(self) -> None:
        if self._waiting and self._view is not None:
            self._follow(self._view)
        switched = False
        for follower in self._followers:
            try:
                switched |= self._apply(follower)
            except NoChange as error:
                self._set_aside(follower, error)
        if switched and self._view is not None:
            self._follow(self._view)

    def _apply(self, follower: Follower) -> bool:
        """All that is there. Whether it is shown from now on."""
        reading, switched = follower.reading, False
        while not (self._stopping or follower.stuck):
            stretch = reading.next()
            if stretch is None and not follower.is_due(self._store, self._share):
                break
            show = False
            if stretch is None:
                stretch, show = reading.nothing(), True
            elif self.member_id is None and not follower.shown and reading.is_whole_at(stretch):
                show = is_due(follower.generation, stretch.ends, follower.aim)
            self._store.apply(follower.number, stretch, before=reading.before, show=show)
            reading.applied(stretch)
            self._transactions += 1
            self._rows += len(stretch.changes)
            if show:
                switched = True
                follower.show()
        return switched

    def _set_aside(self, follower: Follower, error: NoChange) -> None:
        """Rows that cannot be read stop one generation, and not the one that is built to take its place."""
        follower.stuck = str(error)
        self._check_stuck()
        self._tell_of(f"{error}; generation {generation_of(follower.number)} stays as it is")

    def _check_stuck(self) -> None:
        if self._followers and all(one.stuck for one in self._followers):
            raise NoChange(self._followers[0].stuck)

    def _check_ends(self) -> None:
        """A store that is ahead of its topic: the topic was made anew, or its broker has lost what it had."""
        for follower in self._followers:
            reading = follower.reading
            latest = list_offsets(self._cluster, dict.fromkeys(reading.partitions, LATEST))
            for at, found in latest.items():
                if reading.ends[at] > found.offset:
                    raise UsageError(
                        f"{at} ends at offset {found.offset}, and view {self.name} is applied up to"
                        f" {reading.ends[at]}: the topic is another one, or has lost records; rebuild the view"
                    )

    # Telling ----------------------------------------------------------------------------------------------------------

    def figures(self) -> dict[str, Any]:
        return {
            "view": self.name,
            "group": self.group,
            "member": self.member_id,
            "error": self._error or next((one.stuck for one in self._followers if one.stuck), None),
            "transactions": self._transactions,
            "rows": self._rows,
            "generations": [
                {
                    "number": generation_of(one.number),
                    "shown": one.shown,
                    "ends": {str(at): end for at, end in one.reading.ends.items()},
                    "behind": one.reading.behind,
                    "mark": None if one.reading.last is None else one.reading.last.batch_id,
                    "mark_ms": None if one.reading.last is None else one.reading.last.time_ms,
                }
                for one in self._followers
            ],
        }

    def _tell(self, *, at_once: bool = False) -> None:
        self._report(self.figures())
        now = time.monotonic()
        if not at_once and now - self._reported_at < REPORT_EVERY_S:
            return
        self._reported_at = now
        for follower in self._followers:
            if follower.reading.before and self._reported.get(follower.number) != follower.reading.before:
                self._share.commit(follower.reading.before, follower.metadata)
                self._reported[follower.number] = follower.reading.before

    def _tell_of(self, line: str) -> None:
        """Appliers of several views may write to one terminal, and one store's faults are all of theirs."""
        self._say(f"view {self.name}: {line}")

    def _away(self, error: TidelogError) -> None:
        self._followers, self._view = [], None
        if str(error) != self._error:
            self._error = str(error)
            self._tell_of(self._error)
        self._report({**self.figures(), "error": self._error})

    def _read_anew(self) -> None:
        """Somebody else has what this one had, or had it for a while: the store says how far it is."""
        self._followers, self._view = [], None
        self._refused = True

    def _recovered(self, delays: Any) -> Any:
        if self._error is None and not self._refused:
            return delays
        if self._error is not None:
            self._say(f"view {self.name} is applied again")
        self._error, self._refused = None, False
        return waits()

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    def _end(self) -> None:
        if self._error is not None:
            return  # nobody would answer, and who asked for the end waits
        with suppress(*PASSING):  # the offsets of a group are for tools, and the store has them
            self._tell(at_once=True)

    def _leave(self) -> None:
        if self._error is None:
            with suppress(*PASSING):  # its session ends by itself
                self._share.leave()


def _check_shown(view: View, shown: int | None) -> None:
    """What a store shows never goes back, so it would be shown for ever what this log's generations were not."""
    if shown is not None and generation_of(shown) > view.newest:
        raise UsageError(
            f"view {view.name} is shown by its store as generation {generation_of(shown)}, and the newest that this log"
            f" knows is {view.newest}: the store is of another log, or of one that was restored from an older backup"
            " since; apply the view to an empty store, or take away what this one has of it"
        )


def _committed_end(cluster: Cluster) -> int:
    try:
        return list_offsets(cluster, {CATALOG: LATEST}, isolation=READ_COMMITTED)[CATALOG].offset
    except BrokerError as error:
        if error.code in UNKNOWN_TOPIC:
            raise UsageError("no view is declared here yet; `tidelog run` declares the views of an app") from error
        raise
