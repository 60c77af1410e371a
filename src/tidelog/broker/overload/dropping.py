"""`tidelog.overload.policy=drop`: above the limit the oldest records go, and the ledger says who lost them.

A partition that was written is looked at within EVERY_S, in a thread; the loop then hides what is to go from readers,
counts what that takes from whom, writes the ledger, and deletes when that is synced. A limit by time looks again every
AGE_EVERY_S, written or not, as long as there is something in the partition. Where the ledger cannot be written, on a
full disk say, records are deleted all the same: that makes room. The count is kept in memory then, and told later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker import warnings_topic
from tidelog.broker.decision import Decision
from tidelog.broker.overload.ledger import EMPTY, KIND, LedgerEntry, LedgerPlace, dropped, parse, settled
from tidelog.broker.overload.policy import DROP
from tidelog.broker.queues.records import bound_record
from tidelog.errors import OffsetOutOfRange, StorageError

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.overload.shell import Overload
    from tidelog.broker.partition import Partition
    from tidelog.broker.queues.window import QueueWindow
    from tidelog.broker.waiting import Timer
    from tidelog.log.log import Log

EVERY_S = 0.2
AGE_EVERY_S = 1.0
GROUPS_TOLD = 100


class Dropping:
    """The loop's thread."""

    def __init__(self, broker: Broker, overload: Overload) -> None:
        self._broker = broker
        self._overload = overload
        self._ledger: dict[LedgerPlace, LedgerEntry] | None = None  # None: it has not been read back yet
        self._unwritten: set[LedgerPlace] = set()
        self._due: dict[Partition, None] = {}
        self._timer: Timer | None = None
        self._busy = False

    def wrote(self, partition: Partition) -> None:
        self._due[partition] = None
        self._later(EVERY_S)

    def turn(self) -> None:
        """Once a second: what commits say of what was lost, and what is gone."""
        if self._ledger is None:
            self._recall()
            return
        topics = self._broker.topics
        changed: dict[LedgerPlace, LedgerEntry | None] = {}
        for place, entry in list(self._ledger.items()):
            topic = topics.by_name.get(place.topic)
            if topic is None or topic.topic_id != place.topic_id or place.partition >= topic.partitions:
                del self._ledger[place]
                changed[place] = None
            elif entry.lost:
                after = settled(entry, self._commits(place), self._windows(place).keys())
                if after != entry:
                    self._ledger[place] = changed[place] = after
        retold = {place: self._ledger[place] for place in self._unwritten if place in self._ledger}
        self._write({**retold, **changed})

    @property
    def topics(self) -> set[str]:
        """Those of which anything was dropped, also by earlier processes."""
        return {place.topic for place in self._ledger or ()}

    def lost(self, topic: str) -> dict[str, int]:
        """By group, over all partitions of a topic; the GROUPS_TOLD that lost most."""
        found: dict[str, int] = {}
        for place, entry in (self._ledger or {}).items():
            if place.topic == topic:
                for group, loss in entry.lost.items():
                    found[group] = found.get(group, 0) + loss.records
        return dict(sorted(found.items(), key=lambda one: (-one[1], one[0]))[:GROUPS_TOLD])

    # Looking ----------------------------------------------------------------------------------------------------------

    def _later(self, delay_s: float) -> None:
        if self._timer is None:
            self._timer = self._broker.scheduler.call_later(delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._busy or not self._due:
            return
        if self._ledger is None:
            self._recall()
            return
        due, self._due = list(self._due), {}
        looked = [one for one in due if _drops(one) and one.log.loaded]
        now_ms = self._broker.now().wall_ms
        self._busy = True
        self._broker.scheduler.in_thread(lambda: [(one, _kept_from(one, now_ms)) for one in looked], self._looked)

    def _looked(self, result: object, error: BaseException | None) -> None:
        self._busy = False
        if error is not None:
            self._broker.logger.seldom("overload not looked at", error=error)
            return
        found: list[tuple[Partition, int | None]] = result  # type: ignore[assignment]
        going = [(one, to) for one, to in found if to is not None and _drops(one) and to > one.log.start_offset]
        if going:
            self._drop(going)
        for partition, _ in found:
            policy, log = partition.config.overload, partition.log
            if policy is not None and policy.limit.ms is not None and log.start_offset < log.high_watermark:
                self._due[partition] = None
        if self._due:
            self._later(AGE_EVERY_S)

    # Dropping ---------------------------------------------------------------------------------------------------------

    def _drop(self, going: list[tuple[Partition, int]]) -> None:
        assert self._ledger is not None
        entries: dict[LedgerPlace, LedgerEntry | None] = {}
        for partition, to in going:
            log, place = partition.log, _place(partition)
            start = log.start_offset
            log.hide_before(to)
            before = self._ledger.get(place, EMPTY)
            commits, left = self._commits(place), self._left(place, start, to)
            entries[place] = self._ledger[place] = dropped(before, commits, left, start, to)
            self._overload.figures(partition.topic).dropped += to - start

        def delete(error: StorageError | None = None) -> None:
            for partition, to in going:
                if not partition.dropped:
                    self._delete(partition, to)

        log_of_it = self._write(entries)
        if log_of_it is None:
            delete()
        else:
            log_of_it.when_visible(log_of_it.end_offset, delete)
        for partition, to in going:
            self._skip(_place(partition), to)

    def _delete(self, partition: Partition, to: int) -> None:
        try:
            partition.log.delete_before(min(to, partition.log.high_watermark))
        except (OSError, StorageError, OffsetOutOfRange) as error:
            self._broker.logger.seldom("overload not dropped", topic=partition.topic, error=error)

    def _commits(self, place: LedgerPlace) -> dict[str, int]:
        at = (place.topic, place.partition)
        offsets = self._broker.groups.offsets
        return {group: one[at].offset for group, one in offsets.items() if at in one}

    # Share groups -----------------------------------------------------------------------------------------------------

    def _windows(self, place: LedgerPlace) -> dict[str, QueueWindow]:
        if not self._broker.has_queues:
            return {}
        queues, at = self._broker.queues.state.queues, (place.topic_id, place.partition)
        return {group: one[at].window for group, one in queues.items() if at in one}

    def _left(self, place: LedgerPlace, start: int, to: int) -> dict[str, int]:
        """How many of these records each share group has not done; those that somebody works on are among them."""
        return {group: one.undone(max(start, one.start), to) for group, one in self._windows(place).items()}

    def _skip(self, place: LedgerPlace, to: int) -> None:
        """What was counted as lost cannot be accepted any more."""
        at = (place.topic_id, place.partition)
        groups = [group for group, window in self._windows(place).items() if window.start < to]
        try:
            if groups:
                skipped = [bound_record(group, *at, "start", to) for group in groups]
                self._broker.queues.commit(Decision(skipped, []))
        except StorageError as error:
            self._broker.logger.seldom("queues not moved", topic=place.topic, error=error)

    # The ledger -------------------------------------------------------------------------------------------------------

    def _write(self, entries: dict[LedgerPlace, LedgerEntry | None]) -> Log | None:
        """The log that it is in; None if it could not be written, or there was nothing."""
        if not entries:
            return None
        now_ms = self._broker.now().wall_ms
        records = [(place.key(), None if entry is None else entry.value(now_ms)) for place, entry in entries.items()]
        try:
            log = warnings_topic.write(self._broker, records, now_ms)
        except (OSError, StorageError) as error:
            self._unwritten.update(entries)
            self._broker.logger.seldom("what was dropped is not written", error=error)
            return None
        self._unwritten.difference_update(entries)
        return log

    def _recall(self) -> None:
        if self._busy:
            return
        self._busy = True
        log = warnings_topic.warnings_log(self._broker)
        self._broker.scheduler.in_thread(lambda: warnings_topic.read(log, KIND), self._recalled)

    def _recalled(self, result: object, error: BaseException | None) -> None:
        self._busy = False
        if error is not None:
            self._broker.logger.seldom("what was dropped is not known", error=error)
        read = result if error is None else []
        self._ledger = dict(parse(key, value) for key, value in read)  # type: ignore[attr-defined]
        for place, entry in self._ledger.items():
            partition = self._find(place)
            if partition is not None and entry.to > partition.log.start_offset:
                self._delete(partition, entry.to)  # counted before a crash, and not yet deleted
        if self._due:
            self._later(EVERY_S)

    def _find(self, place: LedgerPlace) -> Partition | None:
        topic = self._broker.topics.by_name.get(place.topic)
        if topic is None or topic.topic_id != place.topic_id:
            return None
        try:
            return self._broker.partition(place.topic, place.partition)
        except (OSError, StorageError):
            return None  # of which others tell


def _place(partition: Partition) -> LedgerPlace:
    return LedgerPlace(partition.topic, partition.topic_id, partition.index)


def _drops(partition: Partition) -> bool:
    policy = partition.config.overload
    return policy is not None and policy.kind == DROP and not partition.dropped


def _kept_from(partition: Partition, now_ms: int) -> int | None:
    """In a worker thread: where the partition is to begin. None: it cannot be told now."""
    policy = partition.config.overload
    if policy is None:
        return None
    limit = policy.limit
    try:
        return partition.log.kept_from(limit.records, limit.bytes, limit.ms, now_ms)
    except (OffsetOutOfRange, OSError, StorageError):
        return None
