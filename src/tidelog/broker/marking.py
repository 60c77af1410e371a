"""Markers: the outcome of a prepared transaction, brought to every partition and group that it touched.

A job begins when the record of the outcome (PrepareCommit, PrepareAbort) is synced, and ends when the last marker is
visible: then `done` is called, and the transaction is complete. Whatever fails meanwhile is tried again after RETRY_S.
After a crash the jobs of all prepared transactions begin anew, and that does no harm:

- a partition gets a marker only while the producer has a transaction open there, so nowhere twice;
- a group's pending offsets are ended by the records that end them, so a second end finds none;
- a partition whose topic is deleted needs none.

A job that was forgotten (`forget`) while one of its markers was on its way goes no further.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.transactions.state import PartitionName, Transaction
from tidelog.broker.transactions.states import State
from tidelog.errors import StaleProducerEpoch, StorageError
from tidelog.log.log import Log

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.groups.transactional_offsets import Ended

RETRY_S = 1.0


class _Job:
    __slots__ = ("places", "transaction", "waits_for_groups")

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.places = set(transaction.partitions)
        self.waits_for_groups = bool(transaction.groups)

    @property
    def commit(self) -> bool:
        return self.transaction.state is State.PREPARE_COMMIT


class Marking:
    """Loop thread only."""

    def __init__(self, broker: Broker, done: Callable[[Transaction], None]) -> None:
        self._broker = broker
        self._done = done
        self._jobs: dict[str, _Job] = {}

    def begin(self, transaction: Transaction, coordinator_epoch: int) -> None:
        job = _Job(transaction)
        self._jobs[transaction.transactional_id] = job
        for place in transaction.partitions:
            self._mark(job, place, coordinator_epoch)
        if job.waits_for_groups:
            self._end_offsets(job)
        self._finish(job)

    def forget(self) -> None:
        """All jobs: the transactions are about to be folded anew."""
        self._jobs.clear()

    # Partitions -----------------------------------------------------------------------------------------------------

    def _mark(self, job: _Job, place: PartitionName, epoch: int) -> None:
        if not self._is_current(job):
            return
        again = partial(self._mark, job, place, epoch)
        partition = self._broker.find_partition(*place)
        if partition is None and self._broker.is_set_aside(place[0]):
            # Its records are there and may be given back: then they must find this outcome.
            self._broker.logger.seldom("marker waits: its topic's folders are set aside", topic=place[0])
            self._later(again)
        elif partition is None:
            self._marked(job, place)
        elif not partition.log.loaded:
            self._load(partition.log, again)
        else:
            try:
                self._append(job, place, partition.log, epoch, again)
            except StorageError as error:
                self._try_again(job, place, again, error)
            except StaleProducerEpoch as error:
                self._broker.logger.error("marker refused", topic=place[0], partition=place[1], error=error)
                self._marked(job, place)

    def _append(self, job: _Job, place: PartitionName, log: Log, epoch: int, again: Callable[[], None]) -> None:
        transaction = job.transaction
        if transaction.producer_id in log.open_transactions():
            now_ms = self._broker.now().wall_ms
            log.append_marker(transaction.producer_id, transaction.epoch, job.commit, epoch, now_ms)

        def visible(error: StorageError | None) -> None:
            if error is None or self._broker.find_partition(*place) is None:
                self._marked(job, place)
            else:
                self._try_again(job, place, again, error)

        # Also where there is nothing to mark: a marker of an earlier try may not be visible yet.
        log.when_visible(log.end_offset, visible)

    def _load(self, log: Log, again: Callable[[], None]) -> None:
        def loaded(_result: object, error: BaseException | None) -> None:
            if error is None:
                again()
            else:
                self._later(again)

        self._broker.scheduler.in_thread(log.load, loaded)

    def _try_again(self, job: _Job, place: PartitionName, again: Callable[[], None], error: StorageError) -> None:
        topic, index = place
        self._broker.logger.seldom("marker not written yet", topic=topic, partition=index, error=error)
        if self._is_current(job):
            self._later(again)

    def _marked(self, job: _Job, place: PartitionName) -> None:
        job.places.discard(place)
        self._finish(job)

    # Groups ---------------------------------------------------------------------------------------------------------

    def _end_offsets(self, job: _Job) -> None:
        from tidelog.broker.groups.transactional_offsets import decide_end

        if not self._is_current(job):
            return
        coordinator = self._broker.coordinator
        transaction = job.transaction
        ticket = _OffsetsEnded(self, job)
        coordinator.commit(
            decide_end(coordinator.state, transaction.producer_id, transaction.groups, job.commit, ticket)
        )

    def offsets_ended(self, job: _Job, ended: bool) -> None:
        if ended:
            job.waits_for_groups = False
            self._finish(job)
        else:
            self._later(partial(self._end_offsets, job))

    # ----------------------------------------------------------------------------------------------------------------

    def _later(self, action: Callable[[], None]) -> None:
        self._broker.scheduler.call_later(RETRY_S, action)

    def _is_current(self, job: _Job) -> bool:
        return self._jobs.get(job.transaction.transactional_id) is job

    def _finish(self, job: _Job) -> None:
        if self._is_current(job) and not job.places and not job.waits_for_groups:
            del self._jobs[job.transaction.transactional_id]
            self._done(job.transaction)


class _OffsetsEnded:
    """The ticket of a group's part."""

    __slots__ = ("_job", "_marking")

    def __init__(self, marking: Marking, job: _Job) -> None:
        self._marking = marking
        self._job = job

    def reply(self, ended: Ended) -> None:
        self._marking.offsets_ended(self._job, not ended.error_code)

    def drop(self) -> None:
        self._marking.offsets_ended(self._job, False)
