"""The transaction machine with a shell of a few lines: decisions are applied at once, nothing is on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.broker.decision import Decision, Instant, NewRecord
from tidelog.broker.transactions.adding import Writer, decide_add, may_write
from tidelog.broker.transactions.clock import awaken, expire, followed, time_out
from tidelog.broker.transactions.ending import decide_complete, decide_end
from tidelog.broker.transactions.initialising import Fence, Holder, Init, decide_init
from tidelog.broker.transactions.outcome import Later, TransactionOutcome
from tidelog.broker.transactions.settings import TransactionSettings
from tidelog.broker.transactions.state import NO_PRODUCER, PartitionName, Transaction, apply, fresh, to_records

TIMEOUT_MS = 60_000


class Machine:
    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.now = Instant(1_000_000, 5_000)
        self.state = fresh()
        self.next_producer_id = 100
        self.records: list[NewRecord] = []
        awaken(self.state, self.settings, self.now)

    def pass_time(self, ms: int) -> None:
        self.now = Instant(self.now.wall_ms + ms, self.now.monotonic_ms + ms)

    def restart(self) -> list[str]:
        """The fold of what was written; returns the ids whose markers are to be written again."""
        state = fresh()
        for one in self.records:
            apply(state, *one)
        assert state == self.state
        self.state = state
        return [one.transactional_id for one in awaken(state, self.settings, self.now)]

    def __getitem__(self, transactional_id: str) -> Transaction:
        return self.state.transactions[transactional_id]

    # Requests: an outcome, or what must come first ---------------------------------------------------------------

    def init(
        self, name: str, expected: Holder | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> TransactionOutcome | Later:
        return self._init(Init(name, timeout_ms, expected))

    def _init(self, init: Init) -> TransactionOutcome | Later:
        found = decide_init(self.state, init, "ticket", self.now)
        if isinstance(found, Fence):
            self.write(found.records)
            assert self[init.transactional_id].is_prepared
            self.complete(init.transactional_id)
            return self._init(found.then)
        return self._settle(found, lambda fresh_id: self._init(init._replace(fresh_id=fresh_id)))

    def add(self, writer: Writer, *places: PartitionName, groups: Iterable[str] = ()) -> TransactionOutcome | Later:
        found = decide_add(self.state, writer, places, groups, "ticket", self.now)
        return self._settle(found, lambda _: TransactionOutcome())

    def end(
        self, writer: Writer, commit: bool, *, bump: bool = False, fresh_id: int = NO_PRODUCER
    ) -> TransactionOutcome | Later:
        found = decide_end(self.state, writer, commit, "ticket", self.now, bump=bump, fresh_id=fresh_id)
        return self._settle(found, lambda new_id: self.end(writer, commit, bump=bump, fresh_id=new_id))

    def may_write(self, writer: Writer, place: PartitionName) -> int:
        return may_write(self.state, writer, place)

    # What the shell does -----------------------------------------------------------------------------------------

    def complete(self, name: str) -> None:
        """The markers are written."""
        self.write(decide_complete(self[name], self.now))

    def time_out(self) -> None:
        self.write(time_out(self.state, self.now))

    def expire(self) -> None:
        self.write(expire(self.state, self.now))

    def write(self, records: Iterable[NewRecord]) -> None:
        for one in records:
            self.records.append(one)
            transaction = apply(self.state, *one)
            if transaction is not None:
                followed(self.state, transaction, self.now)
        again = fresh()
        for one in to_records(self.state):
            apply(again, *one)
        assert again == self.state, "a snapshot gives the same state"

    def _settle(
        self, found: Decision | Later, with_id: Callable[[int], TransactionOutcome | Later]
    ) -> TransactionOutcome | Later:
        if found is Later.PRODUCER_ID:
            self.next_producer_id += 1
            return with_id(self.next_producer_id)
        if isinstance(found, Later):
            return found
        self.write(found.records)
        [(_, outcome)] = found.replies
        assert isinstance(outcome, TransactionOutcome)
        return outcome


def writer(name: str, outcome: TransactionOutcome | Later) -> Writer:
    assert isinstance(outcome, TransactionOutcome) and not outcome.error_code, outcome
    return Writer(name, outcome.producer_id, outcome.epoch)
