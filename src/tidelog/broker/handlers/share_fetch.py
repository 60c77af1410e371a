"""ShareFetch (KIP-932): acknowledges what a member of a share group has worked on, and gives it more.

    v1    max records, batch size           v2    renewing locks; the acquire mode

The acknowledgements are kept before anything is given, and the reply leaves when they are synced. With nothing to give
the fetch waits for an append, a release or its time. Records come as whole batches; `acquired_records` says which of
them are the member's own, and a client passes over the others. A part of what there is is given to each who asks
(`queues/fairness.py`), and nothing to who asks for no bytes. In the acquire mode of whole batches, who is alone in its
group gets more of a batch that was cut (`rest_at_once`); Kafka gives batches of any size, to anybody.

A partition is in the reply if something is to be said of it; what is wrong with one (its topic was deleted, say) is
told at once when it is new, and from then on when the fetch ends anyway. Where a queue begins, its first records are
the last that the reply gives: on Apache Kafka each partition's queue begins by itself, and clients' own tests rely on
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.loading import off_loop, when_loaded
from tidelog.broker.partition import Partition
from tidelog.broker.queue_reading import ColdRead, GivenRecords, QueueFault, QueueReader, ReadBatches, Wanted, read_cold
from tidelog.broker.queues.acknowledging import RENEW, RefusedAcks
from tidelog.broker.queues.fairness import rest_at_once
from tidelog.broker.queues.sessions import ENDING, OPENING, ShareSession
from tidelog.broker.queues.state import Place
from tidelog.broker.waiting import WaitingFetch
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

MAX_WAIT_MS = 60_000
WHOLE_BATCHES = 0  # an acquire mode: Kafka's default


def handle(broker: Broker, request: ShareFetchRequest, call: Call) -> None:
    queues = broker.queues
    refusal = _malformed(request) or _unknown(broker, request)
    if refusal is None:
        session = _session(broker, request, call)
        if isinstance(session, ShareSession):
            _ShareFetch(broker, request, call, session).begin()
            return
        refusal = session
    queues.reply(call.ticket, ShareFetchResponse(error_code=refusal.code, error_message=refusal.message))


def _malformed(request: ShareFetchRequest) -> RefusedAcks | None:
    wrong = None
    acks = [one for topic in request.topics for part in topic.partitions for one in part.acknowledgement_batches]
    renews = any(RENEW in one.acknowledge_types for one in acks)
    if not request.group_id or not request.member_id:
        wrong = "the group id or the member id is missing"
    elif request.share_session_epoch < ENDING:
        wrong = f"share session epoch {request.share_session_epoch} is not one of -1, 0 and above"
    elif request.share_session_epoch == OPENING and acks:
        wrong = "the request that opens a share session cannot acknowledge anything"
    elif renews and not request.is_renew_ack:
        wrong = "locks are renewed in a request that says so"
    elif request.is_renew_ack and (request.max_records or request.max_bytes or request.max_wait_ms):
        wrong = "a request that renews locks fetches nothing: its limits are 0"
    return None if wrong is None else RefusedAcks(ErrorCode.INVALID_REQUEST, wrong)


def _unknown(broker: Broker, request: ShareFetchRequest) -> RefusedAcks | None:
    if request.group_id in broker.queues.state.groups:
        return None
    return RefusedAcks(ErrorCode.GROUP_ID_NOT_FOUND, f"share group {request.group_id!r} does not exist")


def _session(broker: Broker, request: ShareFetchRequest, call: Call) -> ShareSession | RefusedAcks:
    sessions = broker.queues.sessions
    group, member, epoch = request.group_id or "", request.member_id or "", request.share_session_epoch
    named = [(topic.topic_id, part.partition_index) for topic in request.topics for part in topic.partitions]
    if epoch == OPENING:
        most = broker.config.int("group.share.max.share.sessions")
        session = sessions.open(group, member, call.connection, named, most)
    else:
        session = sessions.go_on(group, member, epoch, call.connection)
        if isinstance(session, ShareSession) and epoch != ENDING:
            sessions.add(session, named)
            forgotten = [(topic.topic_id, one) for topic in request.forgotten_topics_data for one in topic.partitions]
            sessions.forget(session, forgotten)
    if isinstance(session, ShareSession):
        return session
    return RefusedAcks(session, f"the share session of {member} is not at epoch {epoch}; open another")


class _ShareFetch:
    """One request: its acknowledgements at once, then looked at as often as it is woken, and answered once."""

    __slots__ = (
        "_acked",
        "_broker",
        "_call",
        "_given",
        "_over",
        "_queues",
        "_reader",
        "_reading",
        "_request",
        "_session",
        "_waiting",
    )

    def __init__(self, broker: Broker, request: ShareFetchRequest, call: Call, session: ShareSession) -> None:
        self._broker = broker
        self._queues = broker.queues
        self._reader = QueueReader(broker, broker.queues)
        self._request = request
        self._call = call
        self._session = session
        self._acked: dict[Place, RefusedAcks | None] = {}
        self._given: dict[Place, GivenRecords | QueueFault] = {}
        self._waiting: WaitingFetch | None = None
        self._reading = False
        self._over = False

    def begin(self) -> None:
        request, session = self._request, self._session
        self._acknowledge()
        if request.share_session_epoch == ENDING:
            self._queues.end_session(session)
        fetches = request.share_session_epoch != ENDING and not request.is_renew_ack and request.max_records > 0
        if not fetches or not session.places:
            self._answer()
            return
        self._call.cancel = self._cancel
        by_id = self._broker.topics.by_id
        wanted = [(by_id[topic_id].name, index) for topic_id, index in session.places if topic_id in by_id]
        when_loaded(self._broker, self._call, wanted, self._look_or_wait)

    def _acknowledge(self) -> None:
        asked = [
            ((topic.topic_id, part.partition_index), part.acknowledgement_batches)
            for topic in self._request.topics
            for part in topic.partitions
            if part.acknowledgement_batches
        ]
        if asked:
            refused = self._queues.acknowledge(self._session.group, self._session.member, asked)
            self._acked = {place: refused.get(place) for place, _ in asked}

    def _look_or_wait(self) -> None:
        if self._over:
            return
        delay_ms = min(self._request.max_wait_ms, MAX_WAIT_MS)
        if self._look() or (delay_ms <= 0 and not self._reading):
            self._answer()
            return
        found = [(place, self._reader.partition(place)) for place in self._session.places]
        where = [one for _, one in found if isinstance(one, Partition)]
        crowds = [self._queues.crowd(self._session.group, place) for place, _ in found]
        self._waiting = WaitingFetch(self._look, self._answer, self._call.fault)
        self._waiting.wait([*where, *crowds], self._broker.scheduler, max(delay_ms, 0) / 1000)

    def _look(self) -> bool:
        """Whether there is something to answer with."""
        if self._over or self._reading:
            return False
        session, request = self._session, self._request
        rest = 0
        if request.share_acquire_mode == WHOLE_BATCHES:
            rest = rest_at_once(session.ended, self._broker.now().monotonic_ms - session.given_ms)
        places = list(session.places)
        turn = session.turn % len(places) if places else 0
        session.turn += 1
        records, size = request.max_records, min(request.max_bytes, self._broker.config.int("fetch.max.bytes"))
        for place in places[turn:] + places[:turn]:
            if records <= 0 or size <= 0:
                break
            wanted = Wanted(session.group, session.member, place, records, size, rest)
            is_new = self._queues.state.queue(session.group, place) is None
            try:
                given = self._reader.give(wanted)
            except ColdRead as cold:
                if not self._has_news():
                    self._read(wanted, cold)
                break
            self._keep(place, given)
            if isinstance(given, GivenRecords):
                alone = given.alone or is_new
                records -= records if alone else sum(one.last - one.first + 1 for one in given.acquired)
                size -= len(given.records)
        return self._has_news()

    def _has_news(self) -> bool:
        """Records, or a fault that was not told before: a client that is told it at once asks again at once."""
        told = self._session.faults
        return any(isinstance(one, GivenRecords) or told.get(place) != one.code for place, one in self._given.items())

    def _keep(self, place: Place, given: GivenRecords | QueueFault | None) -> None:
        if given is not None:
            self._given[place] = given
        if isinstance(given, GivenRecords):
            self._session.faults.pop(place, None)
            self._session.given_ms, self._session.ended = self._broker.now().monotonic_ms, 0

    def _read(self, wanted: Wanted, cold: ColdRead) -> None:
        self._reading = True
        off_loop(
            self._broker, self._call, lambda: _cold(cold), lambda found, error: self._was_read(wanted, found, error)
        )

    def _was_read(self, wanted: Wanted, found: object, error: BaseException | None) -> None:
        self._reading = False
        if error is not None:
            raise error
        if self._over or self._call.connection.closed:
            return
        if isinstance(found, QueueFault):
            self._given[wanted.place] = found
        elif isinstance(found, ReadBatches):
            try:
                given = self._reader.give(wanted, found)
            except ColdRead as cold:
                self._read(wanted, cold)
                return
            self._keep(wanted.place, given)
        if self._has_news() or self._waiting is None:
            self._cancel()
            self._answer()

    def _cancel(self) -> None:
        self._over = True
        if self._waiting is not None:
            self._waiting.cancel()

    def _answer(self) -> None:
        self._over = True
        self._session.faults |= {place: one.code for place, one in self._given.items() if isinstance(one, QueueFault)}
        by_topic: dict[bytes, list[PartitionData]] = {}
        for place in self._acked | self._given:
            by_topic.setdefault(place[0], []).append(self._told(place))
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=self._queues.settings(self._session.group).lock_ms,
            responses=[ShareFetchableTopicResponse(topic_id=one, partitions=parts) for one, parts in by_topic.items()],
        )
        self._queues.reply(self._call.ticket, response)

    def _told(self, place: Place) -> PartitionData:
        data = PartitionData(partition_index=place[1], records=b"")
        refused, given = self._acked.get(place), self._given.get(place)
        if refused is not None:
            data.acknowledge_error_code, data.acknowledge_error_message = refused
        if isinstance(given, QueueFault):
            data.error_code, data.error_message = given
        elif given is not None:
            data.records = given.records
            data.acquired_records = [
                AcquiredRecords(first_offset=one.first, last_offset=one.last, delivery_count=one.deliveries)
                for one in given.acquired
            ]
        return data


def _cold(cold: ColdRead) -> ReadBatches | QueueFault | None:
    try:
        return read_cold(*cold.asked)
    except (StorageError, OSError) as error:
        return QueueFault(ErrorCode.KAFKA_STORAGE_ERROR, None if isinstance(error, OSError) else str(error))
