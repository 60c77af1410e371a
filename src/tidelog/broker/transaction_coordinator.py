"""The transaction coordinator's shell: the fold of `__tidelog.transactions`, who waits for it, and its clock.

What is decided is in `transactions`; here it is appended, applied and answered (`internal`), and what follows from it
is set going: markers when an outcome is synced (`marking`), time-outs, the end of ids that nobody uses.

- A request that comes while the last transaction of its id is being marked waits, SETTLE_S at most; then, as in Kafka,
  CONCURRENT_TRANSACTIONS asks the client to come again.
- A request that needs a new producer id waits until that is reserved on disk.

A decision that could not be written, on a full disk for instance, is answered COORDINATOR_NOT_AVAILABLE: every client
tries again after that. After a failed sync too, as in Kafka: who asks again is told what the disk had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.broker.decision import Decision, NewRecord
from tidelog.broker.folds import Folded, OnLost
from tidelog.broker.internal import TopicFold
from tidelog.broker.marking import Marking
from tidelog.broker.producer_ids import decide_allocate, give
from tidelog.broker.topics import TOPICS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.broker.transactions import state as fold
from tidelog.broker.transactions.adding import Writer, decide_add
from tidelog.broker.transactions.clock import awaken, expire, followed, overdue, time_out
from tidelog.broker.transactions.ending import decide_complete, decide_end
from tidelog.broker.transactions.initialising import Fence, Init, decide_init, fence
from tidelog.broker.transactions.outcome import Later, TransactionOutcome
from tidelog.broker.transactions.settings import settings_from
from tidelog.broker.transactions.state import NO_PRODUCER, PartitionName, Transaction, TransactionsState, record
from tidelog.broker.transactions.states import State
from tidelog.broker.waiting import Timer
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call
    from tidelog.broker.partition import Partition

SETTLE_S = 5.0


class Ticket(Protocol):
    """Who hears the outcome, once what it rests on is synced."""

    def reply(self, outcome: TransactionOutcome) -> None: ...

    def drop(self) -> None:
        """What it rests on could not be written."""

    def __hash__(self) -> int: ...


class OutcomeTicket:
    """The ticket of a request, or of a part of it: `then` answers with the outcome."""

    __slots__ = ("_call", "_then")

    def __init__(self, call: Call, then: Callable[[TransactionOutcome], None]) -> None:
        self._call = call
        self._then = then

    def reply(self, outcome: TransactionOutcome) -> None:
        try:
            self._then(outcome)
        except Exception as error:
            # It is called in the middle of a commit, which must not fail for one request.
            self._call.fault(error)

    def drop(self) -> None:
        self.reply(TransactionOutcome(ErrorCode.COORDINATOR_NOT_AVAILABLE))


def fenced_code(error_code: int, version: int, since: int) -> int:
    """Versions before `since` know no PRODUCER_FENCED; they are told what they know."""
    if error_code == ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error_code


class TransactionCoordinator(Folded[TransactionsState]):
    def __init__(self, broker: Broker, on_lost: OnLost) -> None:
        super().__init__(TRANSACTIONS_TOPIC, TopicFold(fold.fresh, fold.apply, fold.to_records), on_lost)
        self._broker = broker
        self._marking = Marking(broker, self._marked)
        self._waiting: dict[str, list[_Waiting]] = {}
        self._decided: dict[str, int] = {}  # where the last record of an id ends, until that is synced
        self._abort_timer: Timer | None = None
        self._expire_timer: Timer | None = None

    def refold(self) -> None:
        """Whoever waits is told to try again."""
        self._marking.forget()
        self.answer_waiting()
        super().refold()

    def awaken(self) -> None:
        """What was prepared and not complete goes on, and time-outs begin."""
        for prepared in awaken(self.state, settings_from(self._broker.config.values), self._broker.now()):
            self._mark_when_synced(prepared)
        self._watch_clock()

    def settings_changed(self) -> None:
        self.state.live.settings = settings_from(self._broker.config.values)

    def answer_waiting(self) -> None:
        for waiting in [one for some in list(self._waiting.values()) for one in some]:
            waiting.give_up()

    # Requests -------------------------------------------------------------------------------------------------------

    def init(self, init: Init, ticket: Ticket) -> None:
        found = decide_init(self.state, init, ticket, self._broker.now())
        if isinstance(found, Fence):
            self._log_abort("its transactional id was asked for again", init.transactional_id)
            if self.commit(Decision(found.records, [])):
                self._wait(init.transactional_id, lambda: self.init(found.then, ticket), ticket)
            else:
                ticket.reply(TransactionOutcome(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self._go_on(
            init.transactional_id, found, lambda fresh: self.init(init._replace(fresh_id=fresh), ticket), ticket
        )

    def add(self, writer: Writer, partitions: list[PartitionName], groups: list[str], ticket: Ticket) -> None:
        def decide(_: int = NO_PRODUCER) -> None:
            found = decide_add(self.state, writer, partitions, groups, ticket, self._broker.now())
            self._go_on(writer.transactional_id, found, decide, ticket)

        decide()

    def end(self, writer: Writer, commit: bool, ticket: Ticket, *, bump: bool) -> None:
        def decide(fresh: int = NO_PRODUCER) -> None:
            now = self._broker.now()
            found = decide_end(self.state, writer, commit, ticket, now, bump=bump, fresh_id=fresh)
            self._go_on(writer.transactional_id, found, decide, ticket)

        decide()

    def abort(self, transactional_id: str, ticket: Ticket) -> None:
        """An administrator ends an open transaction; its producer is fenced."""
        found = self.state.transactions.get(transactional_id)
        if found is not None and found.state is State.ONGOING:
            self._log_abort("an administrator asked for it", transactional_id)
            if not self.commit(Decision([record(fence(found, self._broker.now()))], [])):
                ticket.reply(TransactionOutcome(ErrorCode.COORDINATOR_NOT_AVAILABLE))
                return
            found = self.state.transactions[transactional_id]
        if found is not None and found.is_prepared:
            self._wait(transactional_id, lambda: ticket.reply(TransactionOutcome()), ticket)
        else:
            ticket.reply(TransactionOutcome())

    def end_hanging(self, partition: Partition) -> None:
        """Aborts what is open in a partition that was just loaded, and is in no transaction that anybody will end.

        That comes of decisions that were lost for good (`tidelog repair --skip`), or of a folder that was put together
        by hand. Whoever reads committed records would wait for ever.
        """
        log, place = partition.log, (partition.topic, partition.index)
        for producer_id in list(log.open_transactions()):
            known = self.state.of_producer(producer_id)
            if known is not None and place in known.partitions:
                continue
            where = {"topic": partition.topic, "partition": partition.index, "producer": producer_id}
            try:
                epoch, now_ms = log.producers[producer_id].epoch, self._broker.now().wall_ms
                log.append_marker(producer_id, epoch, False, self.internal.log.leader_epoch, now_ms)
                self._broker.logger.warning("transaction ended", **where, why="no transactional id has it open")
            except StorageError as error:
                self._broker.logger.warning("transaction not ended", **where, error=error)

    def when_synced(self, transactional_id: str, ticket: Ticket) -> None:
        """Answers when everything that was decided about the id is on disk; at once if it is."""

        def synced(error: StorageError | None) -> None:
            if error is None:
                ticket.reply(TransactionOutcome())
            else:
                ticket.drop()

        self.internal.log.when_visible(self._decided.get(transactional_id, 0), synced)

    def when_settled(self, transactional_id: str, ticket: Ticket) -> None:
        """The same, and the last transaction of the id is marked."""
        found = self.state.transactions.get(transactional_id)
        if found is not None and found.is_prepared:
            self._wait(transactional_id, lambda: self.when_settled(transactional_id, ticket), ticket)
        else:
            self.when_synced(transactional_id, ticket)

    def _go_on(
        self, transactional_id: str, found: Decision | Later, again: Callable[[int], None], ticket: Ticket
    ) -> None:
        if found is Later.SETTLED:
            self._wait(transactional_id, lambda: again(NO_PRODUCER), ticket)
        elif found is Later.PRODUCER_ID:
            self._reserve(again, ticket)
        else:
            assert isinstance(found, Decision)
            self.commit(found)

    def _wait(self, transactional_id: str, again: Callable[[], None], ticket: Ticket) -> None:
        waiting = _Waiting(self._waiting.setdefault(transactional_id, []), again, ticket)
        waiting.timer = self._broker.scheduler.call_later(SETTLE_S, waiting.give_up)

    def _reserve(self, then: Callable[[int], None], ticket: Ticket) -> None:
        producer_ids = self._broker.topics.producer_ids
        allocated = decide_allocate(producer_ids)
        reserved = _Reserved(then, ticket)
        try:
            self._broker.commit(TOPICS_TOPIC.name, Decision(allocated.records, [(reserved, allocated.producer_id)]))
        except StorageError:
            reserved.drop()
            return
        give(producer_ids, allocated)

    # Decisions and what follows -------------------------------------------------------------------------------------

    def commit(self, decision: Decision) -> bool:
        """False if it could not be written: then nothing of it is applied, and whoever asked is told so."""
        try:
            changes: list[Any] = self.internal.commit(decision, self._broker.now().wall_ms)
        except StorageError:
            for ticket, _ in decision.replies:
                ticket.reply(TransactionOutcome(ErrorCode.COORDINATOR_NOT_AVAILABLE))  # type: ignore[attr-defined]
            return False
        for transaction in changes:
            if transaction is not None:
                self._note(transaction.transactional_id)
                self._follow(transaction)
        self._watch_clock()
        return True

    def _note(self, transactional_id: str) -> None:
        end = self.internal.log.end_offset
        self._decided[transactional_id] = end

        def forget(_: StorageError | None) -> None:
            if self._decided.get(transactional_id) == end:
                del self._decided[transactional_id]

        self.internal.log.when_visible(end, forget)

    def _follow(self, transaction: Transaction) -> None:
        followed(self.state, transaction, self._broker.now())
        if transaction.is_prepared:
            overload = self._broker.overload_made
            if overload is not None and transaction.state is State.PREPARE_COMMIT:
                overload.blocking.ended(transaction)
            self._mark_when_synced(transaction)
            return
        for waiting in list(self._waiting.pop(transaction.transactional_id, [])):
            waiting.go_on()

    def _mark_when_synced(self, prepared: Transaction) -> None:
        """No marker before the outcome is on disk: a crash must not leave one partition committed, another aborted."""
        log = self.internal.log

        def begin(error: StorageError | None) -> None:
            if error is None and self.state.transactions.get(prepared.transactional_id) == prepared:
                self._marking.begin(prepared, log.leader_epoch)

        log.when_visible(log.end_offset, begin)

    def _marked(self, prepared: Transaction) -> None:
        if self.state.transactions.get(prepared.transactional_id) != prepared:
            return
        if not self.commit(Decision(decide_complete(prepared, self._broker.now()), [])):
            self._broker.scheduler.call_later(SETTLE_S, lambda: self._marked(prepared))

    # The clock ------------------------------------------------------------------------------------------------------

    def _watch_clock(self) -> None:
        scheduler, settings = self._broker.scheduler, self.state.live.settings
        if self._abort_timer is None and self.state.live.deadlines:
            self._abort_timer = scheduler.call_later(settings.abort_interval_ms / 1000, self._abort_old)
        if self._expire_timer is None and self.state.transactions:
            self._expire_timer = scheduler.call_later(settings.expire_interval_ms / 1000, self._expire)

    def _abort_old(self) -> None:
        self._abort_timer = None
        now = self._broker.now()
        for transactional_id in overdue(self.state, now):
            self._log_abort("it was open for longer than its transaction.timeout.ms", transactional_id)
        self._commit_records(time_out(self.state, now))
        self._watch_clock()

    def _expire(self) -> None:
        self._expire_timer = None
        self._commit_records(expire(self.state, self._broker.now()))
        self._watch_clock()

    def _commit_records(self, records: list[NewRecord]) -> None:
        if records:
            self.commit(Decision(records, []))

    def _log_abort(self, why: str, transactional_id: str) -> None:
        self._broker.logger.info("transaction aborted", transactional_id=transactional_id, why=why)


class _Waiting:
    """A request that waits until the last transaction of its id is marked."""

    __slots__ = ("_again", "_queue", "_ticket", "timer")

    def __init__(self, queue: list[_Waiting], again: Callable[[], None], ticket: Ticket) -> None:
        queue.append(self)
        self._queue = queue
        self._again = again
        self._ticket = ticket
        self.timer: Timer | None = None

    def go_on(self) -> None:
        self._leave()
        self._again()

    def give_up(self) -> None:
        self._leave()
        self._ticket.reply(TransactionOutcome(ErrorCode.CONCURRENT_TRANSACTIONS))

    def _leave(self) -> None:
        if self in self._queue:
            self._queue.remove(self)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class _Reserved:
    """The ticket of a producer id that is being reserved."""

    __slots__ = ("_then", "_ticket")

    def __init__(self, then: Callable[[int], None], ticket: Ticket) -> None:
        self._then = then
        self._ticket = ticket

    def reply(self, producer_id: int) -> None:
        self._then(producer_id)

    def drop(self) -> None:
        self._ticket.reply(TransactionOutcome(ErrorCode.COORDINATOR_NOT_AVAILABLE))
