"""The shell of share groups: the fold of `__tidelog.queues`, sessions, and the clock of locks and members.

What becomes of members and records is decided in `queues`; here it is appended, applied and answered (`internal`).
`queue_reading` finds records to give. Locks and sessions are memory only: `tick` ends what has run out.

A fetch that waits is woken by an append to one of its partitions, or, through the `Crowd` of a queue, by records that
are available again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.broker.burying import Burying
from tidelog.broker.decision import Decision, NewRecord
from tidelog.broker.folds import Folded, OnLost
from tidelog.broker.internal import TopicFold
from tidelog.broker.partition import Waiter
from tidelog.broker.queues import members
from tidelog.broker.queues import state as fold
from tidelog.broker.queues.acknowledging import AckBatch, Acked, RefusedAcks, decide_acks, released
from tidelog.broker.queues.looked import Looked
from tidelog.broker.queues.records import gone_record, set_record
from tidelog.broker.queues.sessions import ShareSession, ShareSessions
from tidelog.broker.queues.settings import ShareSettings, settings_of
from tidelog.broker.queues.state import Place, Queue, Queues
from tidelog.broker.queues.window import ARCHIVED, ARCHIVING, AVAILABLE, LOCKED, PARKED, Hold, QueueSpan
from tidelog.broker.topics import GROUP_RESOURCE, QUEUES_TOPIC
from tidelog.broker.waiting import Timer
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

TICK_MS = 10  # locks and delays are looked after no more often than this
SETTINGS_MAX = 1_000  # groups whose settings are kept ready, for they are asked for several times a request


class Crowd:
    """Fetches that wait for records of one queue to be available again."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: dict[Waiter, None] = {}

    def wake(self) -> None:
        for waiter in list(self.waiters):
            waiter.woken()


class QueueCoordinator(Folded[Queues]):
    def __init__(self, broker: Broker, on_lost: OnLost) -> None:
        super().__init__(QUEUES_TOPIC, TopicFold(fold.fresh, fold.apply, fold.to_records), on_lost)
        self._broker = broker
        self._now = broker.now
        self.sessions = ShareSessions()
        self._crowds: dict[tuple[str, Place], Crowd] = {}
        self.looked: dict[tuple[str, Place], Looked] = {}
        self.burying = Burying(broker, self)
        self._settings: dict[str, tuple[object, object, ShareSettings]] = {}  # with what each was made of
        self.redelivered = 0
        self.delays_refused = 0  # by each group that came upon them
        self._stopping = False
        self._timer: Timer | None = None
        self._deadline: int | None = None

    # Decisions --------------------------------------------------------------------------------------------------------

    def commit(self, decision: Decision) -> None:
        """StorageError when it cannot be written; then nothing of it has happened."""
        self.internal.commit(decision, self._now().wall_ms)

    def reply(self, ticket: Any, response: Any) -> None:
        """When what the reply rests on is synced."""
        self.commit(Decision([], [(ticket, response)]))

    def awaken(self) -> None:
        """After a start: topics may have gone meanwhile, and every lock is over."""
        self._deadline = None
        self.looked.clear()
        self.topics_changed()
        for group, queues in self.state.queues.items():
            for place in queues:
                self.burying.go_on(group, place)

    def settings(self, group: str) -> ShareSettings:
        """What they are made of is replaced when it changes, and never changed itself."""
        own, values = self._broker.topics.configs.get((GROUP_RESOURCE, group)), self._broker.config.values
        kept = self._settings.get(group)
        if kept is not None and kept[0] is own and kept[1] is values:
            return kept[2]
        if len(self._settings) >= SETTINGS_MAX:
            self._settings.clear()
        made = settings_of(own or {}, values)
        self._settings[group] = own, values, made
        return made

    def topics_changed(self) -> None:
        topics = self._broker.topics
        gone = [
            gone_record(group, *place)
            for group, queues in self.state.queues.items()
            for place, queue in queues.items()
            if place[0] not in topics.by_id and not self._broker.is_set_aside(queue.topic)
        ]
        if gone:
            try:
                self.commit(Decision(gone, []))
            except StorageError as error:  # they go with the next change, or the next start
                self._broker.logger.seldom("queues of deleted topics not removed", error=error)
        members.topics_changed(self.state, topics.by_name)
        self._forget()

    def _forget(self) -> None:
        """What is known of queues that are gone."""
        for name in [one for one in self.looked if self.state.queue(*one) is None]:
            del self.looked[name]
        left = [name for name, crowd in self._crowds.items() if not crowd.waiters]
        for name in [one for one in left if self.state.queue(*one) is None]:
            del self._crowds[name]

    def rights_changed(self) -> None:
        """Who may read what is asked when a session is opened: so all are opened anew."""
        for session in self.sessions:
            self.sessions.end(session.group, session.member)

    # Members and sessions ---------------------------------------------------------------------------------------------

    def heard(self, asked: members.AskedHeartbeat, ticket: Any) -> None:
        """Who leaves keeps what it acquired until its session ends: its last acknowledgements come by another way."""
        decision = members.decide_heartbeat(self.state, asked, ticket, self._now())
        try:
            self.commit(decision)
        except StorageError as error:
            response = decision.replies[0][1]
            response.error_code, response.error_message = ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)
            self.reply(ticket, response)
        self.watch_clock(self._now().monotonic_ms + asked.settings.session_timeout_ms)

    def answer_waiting(self) -> None:
        """Before a stop: connections that end from here on say nothing of the records that their members had."""
        self._stopping = True

    def connection_ended(self, connection: object) -> None:
        if self._stopping:
            return
        for session in self.sessions.of(connection):
            self.end_member(session.group, session.member, counted=True)

    def end_session(self, session: ShareSession) -> None:
        """In good order: what it has not acknowledged was not worked on."""
        self.end_member(session.group, session.member, counted=False)

    def end_member(self, group: str, member: str, *, counted: bool) -> None:
        """What it had acquired is available again. `counted`: it may have died of it, so it was a delivery."""
        self.sessions.end(group, member)
        for place, queue in self.state.queues.get(group, {}).items():
            owned = queue.window.owned(member)
            if owned and counted:
                self._delivered(group, place, owned)
            elif owned:
                for span in owned:
                    queue.window.hold_again(span.first, span.last, None)
                self.crowd(group, place).wake()

    def readers(self, group: str, place: Place, topic: str) -> int:
        """How many share a partition: also who has joined and not asked yet, or the first of them would get all."""
        joined = sum(topic in member.topics for member in self.state.members(group).values())
        return max(joined, self.sessions.readers(group, place))

    def crowd(self, group: str, place: Place) -> Crowd:
        return self._crowds.setdefault((group, place), Crowd())

    # Records ----------------------------------------------------------------------------------------------------------

    def acknowledge(
        self, group: str, member: str, asked: Iterable[tuple[Place, Sequence[AckBatch]]]
    ) -> dict[Place, RefusedAcks]:
        """What is not refused is kept, all of it in one batch: the reply to it waits for its sync."""
        settings, session = self.settings(group), self.sessions.get(group, member)
        refused: dict[Place, RefusedAcks] = {}
        taken: list[tuple[Place, Acked]] = []
        for place, batches in asked:
            queue = self.state.queue(group, place)
            if queue is None:
                refused[place] = RefusedAcks(ErrorCode.INVALID_RECORD_STATE, "nothing of this partition is acquired")
                continue
            decided = decide_acks(queue.window, member, batches, settings.deliveries, settings.renewable)
            if isinstance(decided, RefusedAcks):
                refused[place] = decided
            else:
                taken.append((place, decided))
                self._renew(queue, member, decided, settings)
                if session is not None:
                    session.ended += decided.size
        try:
            self._settle(group, taken)
        except StorageError as error:
            refused |= {place: RefusedAcks(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) for place, _ in taken}
        return refused

    def _renew(self, queue: Queue, member: str, acked: Acked, settings: ShareSettings) -> None:
        until_ms = self._now().monotonic_ms + settings.lock_ms
        for first, last in acked.renewed:
            queue.window.hold_again(first, last, Hold(LOCKED, member, until_ms))

    def _settle(self, group: str, taken: list[tuple[Place, Acked]]) -> None:
        settings = self.settings(group)
        end = ARCHIVING if settings.dead_letters else ARCHIVED
        records: list[NewRecord] = []
        woken = [place for place, acked in taken if self._lets_others_on(group, place, acked, settings)]
        for place, acked in taken:
            spans = acked.spans + [QueueSpan(one.first, one.last, end, one.count) for one in acked.dead]
            if spans:
                records.append(set_record(group, *place, spans))
        if records:
            self.commit(Decision(records, []))
        for place, acked in taken:
            self._back_off(group, place, acked, settings)
            if acked.dead and end == ARCHIVING:
                self.burying.explain(group, place, acked.reasons)
                self.burying.go_on(group, place)
        for place in woken:
            self.crowd(group, place).wake()

    def _lets_others_on(self, group: str, place: Place, acked: Acked, settings: ShareSettings) -> bool:
        """Whether there is more to be given after it: what was accepted alone is nobody else's."""
        if any(span.state == AVAILABLE for span in acked.spans):
            return True
        queue, looked = self.state.queue(group, place), self.looked.get((group, place))
        was_full = queue is not None and queue.window.held[LOCKED] >= settings.locks
        return bool(acked.spans or acked.dead) and (was_full or (looked is not None and looked.by_key))

    def _back_off(self, group: str, place: Place, acked: Acked, settings: ShareSettings) -> None:
        """What is released waits for a while, if the group says so: parked, and not in flight."""
        again = [span for span in acked.spans if span.state == AVAILABLE]
        self.redelivered += sum(span.size for span in again)
        queue = self.state.queue(group, place)
        if not settings.backoff_ms or not again or queue is None:
            return
        for span in again:
            until_ms = self._now().monotonic_ms + settings.backoff_after(span.count)
            queue.window.hold_free(span.first, span.last, Hold(PARKED, "", until_ms))
            self.watch_clock(until_ms)

    def _over(self, group: str, place: Place, due: list[QueueSpan]) -> None:
        """Holds that have ended: a lock that ran out was a delivery, what was parked is due."""
        locked = [span for span in due if span.hold is not None and span.hold.kind == LOCKED]
        if locked:
            self._delivered(group, place, locked)
        if len(due) > len(locked):
            queue = self.state.queues[group][place]
            for span in due:
                if span.hold is not None and span.hold.kind == PARKED:
                    queue.window.hold_again(span.first, span.last, None)
            self.crowd(group, place).wake()

    def _delivered(self, group: str, place: Place, spans: list[QueueSpan]) -> None:
        """Deliveries that nobody acknowledged."""
        acked = Acked([], [], [], [])
        deliveries = self.settings(group).deliveries
        for span in spans:
            released(acked, span, deliveries)
        try:
            self._settle(group, [(place, acked)])
        except StorageError as error:
            # Their locks stay; they are looked at again with the next tick.
            self._broker.logger.seldom("deliveries not counted", error=error)
            until_ms = self._now().monotonic_ms + 1000
            queue = self.state.queue(group, place)
            for span in spans if queue is not None else ():
                queue.window.hold_again(span.first, span.last, Hold(LOCKED, "", until_ms))  # type: ignore[union-attr]
            self.watch_clock(until_ms)

    # The clock --------------------------------------------------------------------------------------------------------

    def watch_clock(self, deadline_ms: int) -> None:
        """Something ends then."""
        if self._deadline is not None and self._deadline <= deadline_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._deadline = deadline_ms
        delay_ms = max(TICK_MS, deadline_ms - self._now().monotonic_ms)
        self._timer = self._broker.scheduler.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._deadline = self._timer = None
        self._forget()
        now = self._now()
        for group, member in members.lost_members(self.state, now):
            members.remove(self.state, group, member)
            self.end_member(group, member, counted=True)
        for group, queues in list(self.state.queues.items()):
            for place, queue in list(queues.items()):
                self._over(group, place, queue.window.take_due(now.monotonic_ms))
        deadlines = [
            deadline
            for queues in self.state.queues.values()
            for queue in queues.values()
            if (deadline := queue.window.next_deadline()) is not None
        ]
        lost = members.next_deadline(self.state)
        if lost is not None:
            deadlines.append(lost)
        if deadlines:
            self.watch_clock(min(deadlines))
