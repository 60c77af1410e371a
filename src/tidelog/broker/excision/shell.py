"""Orders of excision on their way: noted, carried out one at a time, noted as done. The loop's thread.

    ordered    the record is synced; `_queue` has its number
    waiting    while a backup is taken: it holds old files by second names
    under way  `_running` is its number; the partition is loaded, and its log does the work (log/excising.py)
    done       its record is synced, and whoever waits is told

What fails because the disk does not do as it should stays ordered, and is tried again: after RETRY_S, and after every
start. What cannot be done is `refused`, once and for all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.excision import state as fold
from tidelog.broker.excision.order import offsets_of, ranges_text
from tidelog.broker.excision.state import DONE, REFUSED, Excision
from tidelog.broker.folds import Folded, OnLost
from tidelog.broker.internal import TopicFold
from tidelog.broker.partition import Partition
from tidelog.broker.topics import EXCISIONS_TOPIC
from tidelog.errors import StorageError
from tidelog.log.folder import backup_is_under_way

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.log.excising import ExcisionRefused as ExcisionRefused

RETRY_S = 60.0
BACKUP_S = 0.5

Told = Callable[[Excision, StorageError | None], None]


class ExcisionOrders(Folded[fold.Excisions]):
    def __init__(self, broker: Broker, on_lost: OnLost) -> None:
        made = TopicFold(fold.fresh, fold.apply, fold.to_records)
        super().__init__(EXCISIONS_TOPIC, made, on_lost, keeps_all=True)
        self._broker = broker
        self._queue: deque[int] = deque()
        self._running: int | None = None
        self._told: dict[int, Told] = {}

    def awaken(self) -> None:
        """After a start, or when decisions were lost: what is ordered and not done is to be done."""
        self._queue = deque(number for number in self.state.pending() if number != self._running)
        if self._queue:
            self._broker.scheduler.call_later(0.0, self._go_on)

    def commit(self, decision: Decision) -> None:
        self.internal.commit(decision, self._broker.now().wall_ms)

    def order(self, wanted: Sequence[Excision], told: Told) -> None:
        """`told` is called for each, when it is done or cannot be. StorageError when it could not be noted."""
        first = self.state.next_number
        numbers = range(first, first + len(wanted))
        self.commit(Decision([fold.record(*one) for one in zip(numbers, wanted, strict=True)], []))
        self._told.update(dict.fromkeys(numbers, told))
        log = self.internal.log
        log.when_visible(log.end_offset, partial(self._noted, numbers))

    def _noted(self, numbers: range, error: StorageError | None) -> None:
        if error is None:
            self._queue.extend(numbers)
            self._go_on()
            return
        for number in numbers:
            told = self._told.pop(number, None)
            if told is not None and number in self.state.by_number:
                told(self.state.by_number[number], error)

    def _go_on(self) -> None:
        if self._running is None and self._queue:
            self._running = self._queue.popleft()
            self._when_no_backup(self._load)

    def _when_no_backup(self, then: Callable[[], None]) -> None:
        if backup_is_under_way(self._broker.data_folder):
            self._broker.scheduler.call_later(BACKUP_S, partial(self._when_no_backup, then))
        else:
            then()

    # One of them ------------------------------------------------------------------------------------------------------

    @property
    def _excision(self) -> Excision:
        assert self._running is not None
        return self.state.by_number[self._running]

    def _load(self) -> None:
        one = self._excision
        topic = self._broker.topics.by_id.get(one.topic_id)
        partition = self._broker.find_partition(topic.name, one.partition) if topic is not None else None
        if partition is None:
            self._end(0, None, "its topic is gone")
            return
        loaded = partition
        self._broker.scheduler.in_thread(loaded.log.load, lambda _made, error: self._excise(loaded, error))

    def _excise(self, partition: Partition, error: BaseException | None) -> None:
        if isinstance(error, OSError | StorageError):
            self._put_off(StorageError(str(error)))
            return
        if error is not None:
            raise error
        offsets = offsets_of(self._excision.offsets)
        try:
            partition.log.excise(offsets, self._broker.now().wall_ms, self._excised)
        except StorageError as failed:
            self._put_off(failed)

    def _excised(self, removed: int, error: StorageError | None) -> None:
        from tidelog.log.excising import ExcisionRefused

        if error is not None and not isinstance(error, ExcisionRefused):
            self._put_off(error)
            return
        self._when_no_backup(lambda: self._clear(removed, error))

    def _clear(self, removed: int, error: StorageError | None) -> None:
        """A backup that was killed has left second names of old files."""

        def cleared(_result: object, failed: BaseException | None) -> None:
            if failed is not None:
                self._put_off(StorageError(str(failed)))
            else:
                self._end(removed, error, str(error or ""))

        self._broker.scheduler.in_thread(self._broker.remove_left_overs, cleared)

    def _end(self, removed: int, refused: StorageError | None, error: str) -> None:
        number, one = self._running, self._excision
        assert number is not None
        state = DONE if refused is None else REFUSED
        ended = one._replace(state=state, done_ms=self._broker.now().wall_ms, removed=removed, error=error)
        try:
            self.commit(Decision([fold.record(number, ended)], []))
        except StorageError as failed:
            self._put_off(failed)
            return
        self._running = None
        self._tell(ended)
        log = self.internal.log
        log.when_visible(log.end_offset, partial(self._answer, number, ended, refused))
        self._go_on()

    def _answer(self, number: int, ended: Excision, refused: StorageError | None, error: StorageError | None) -> None:
        told = self._told.pop(number, None)
        if told is not None:
            told(ended, error or refused)

    def _put_off(self, error: StorageError) -> None:
        number, one = self._running, self._excision
        assert number is not None
        self._running = None
        self._broker.logger.error(
            "excision put off", topic=one.topic, partition=one.partition, offsets=ranges_text(one.offsets), error=error
        )
        told = self._told.pop(number, None)
        if told is not None:
            told(one, StorageError(f"{error}; the order stands, and is tried again"))
        self._broker.scheduler.call_later(RETRY_S, partial(self._retry, number))
        self._go_on()

    def _retry(self, number: int) -> None:
        if number in self.state.pending() and number not in self._queue and number != self._running:
            self._queue.append(number)
            self._go_on()

    def _tell(self, one: Excision) -> None:
        told = {"topic": one.topic, "partition": one.partition, "offsets": ranges_text(one.offsets)}
        self._broker.logger.info("excised" if one.state == DONE else "excision refused", **told, removed=one.removed)
