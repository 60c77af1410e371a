"""Batches on their way out: each goes to its leader, is answered, and is sent again as long as that can help.

    waiting ---launch---> in flight ---answered---> acked
       ^                     |      `--refused----> failed (a code that no second try helps, or the deadline)
       '---retriable code, or the outcome is unknown (the connection was lost, the broker's disk failed)

Rules:
- One request holds at most one batch of a partition, and a leader has at most MAX_IN_FLIGHT requests (one, without
  idempotence: two would not keep their order if the first is refused).
- A batch waits behind one of its partition that is to be sent again. Until a producer's first batch in a partition is
  acked, no second one is sent there: Kafka takes any sequence as the first, so it would take the second before it.
- With idempotence a batch keeps its producer id and sequence over all tries, and the broker drops what it already has.
  After a gap (a batch failed for good, or the broker forgot the producer) a new producer id is had, and what is known
  not to be written is stamped anew. A batch of unknown outcome is never stamped anew: it would be written twice.
- Without idempotence a batch of unknown outcome is not sent again: only the caller knows whether twice is worse.
- In a transaction (`membership`) the producer id and epoch are given, and no others are had: after a gap everything
  that is left fails, and so does what comes after it, for the transaction can only be aborted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.client.backoff import waits
from tidelog.client.cluster import UNKNOWN_TOPIC, UNKNOWN_TOPIC_TRIES, Cluster
from tidelog.client.connection import Connection, Sent
from tidelog.client.identity import Membership, ProducerIdentity, refusal_of
from tidelog.client.metadata import TopicPartition, by_topic
from tidelog.client.refusal import check, may_pass, refused
from tidelog.client.size_limits import ASK_FROM_BYTES, SizeLimits
from tidelog.errors import BrokerError, Disconnected, PeerError, TidelogError
from tidelog.record.codec import restamp
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

MAX_IN_FLIGHT = 5  # requests a leader; brokers remember the last five batches of a producer
MAX_REQUEST_BYTES = 16 << 20
BY_NAME = 12  # the last version of Produce that has topics by name
NAMED_BEFORE = 11  # the last version of Produce that does not make a partition part of a transaction
SEQUENCES = 1 << 31  # then they begin at 0 again

WRITTEN = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
# The broker took it and could not finish: after a failed sync, say, nobody knows what the disk will have.
IN_DOUBT = (
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)
GAPS = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


class Batch:
    """One batch under way. `base_offset` is -1 until it is acked, and stays -1 where the broker does not say."""

    __slots__ = (
        "acked",
        "at",
        "base_offset",
        "base_sequence",
        "count",
        "data",
        "deadline",
        "doubtful",
        "error",
        "number",
        "unknown",
    )

    def __init__(self, at: TopicPartition, data: bytearray, count: int, deadline: float) -> None:
        self.at = at
        self.data = data
        self.count = count
        self.deadline = deadline
        self.number = -1
        self.base_sequence = -1
        self.base_offset = -1
        self.acked = False
        self.doubtful = False
        self.unknown = 0  # how often its topic or partition was not known
        self.error: TidelogError | None = None


class ProduceFlight(NamedTuple):
    node_id: int
    connection: Connection
    sent: Sent[ProduceResponse]
    batches: dict[TopicPartition, Batch]
    topics: dict[bytes, str]


class Outbound:
    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int,
        idempotent: bool,
        membership: Membership | None = None,
        auto_create: bool = True,
    ) -> None:
        """`membership` needs acks=-1 and idempotence."""
        self.cluster = cluster
        self.acks = acks
        self.idempotent = idempotent
        self.membership = membership
        self.auto_create = auto_create
        self.failed: list[Batch] = []
        self._flights: deque[ProduceFlight] = deque()
        self._again: list[Batch] = []
        self._numbers = 0
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._begun: set[TopicPartition] = set()
        self._gap = False
        self._limits = SizeLimits(cluster)
        if membership is not None:
            self.adopt(membership.identity)

    def adopt(self, identity: ProducerIdentity) -> None:
        """What is launched from now on is of this producer id and epoch; sequences begin anew. Nothing is under way."""
        self._producer_id, self._producer_epoch = identity.producer_id, identity.producer_epoch
        self._sequences.clear()
        self._begun.clear()

    @property
    def has_written(self) -> bool:
        """Whether anything has been stamped with the present producer id and epoch."""
        return bool(self._sequences)

    def launch(self, batches: Iterable[Batch]) -> None:
        """Sends them; waits only where a leader has its fill of requests."""
        if self.membership is not None:
            self.membership.check_open()
        if self._again or self._gap:
            self.settle()
        fresh = [batch for batch in batches if not (self._is_lost(batch) or self._is_too_large(batch))]
        for batch in fresh:
            batch.number = self._numbers
            self._numbers += 1
        if self.idempotent:
            if self._producer_id < 0:
                self._renew([])
            self._stamp(fresh)
        self._send(fresh)

    def _is_too_large(self, batch: Batch) -> bool:
        """Then it fails here and leaves no gap: it never had a sequence."""
        if len(batch.data) >= ASK_FROM_BYTES:
            batch.error = self._limits.exceeded(batch.at, len(batch.data), batch.count)
            if batch.error is not None:
                self.failed.append(batch)
                if self.membership is not None:
                    self.membership.lose(batch.error)
        return batch.error is not None

    def _is_lost(self, batch: Batch) -> bool:
        """With a transaction that can only be aborted."""
        if self.membership is None or self.membership.lost is None:
            return False
        batch.error = self.membership.abort_only()
        self.failed.append(batch)
        return True

    def drop(self) -> None:
        """Waits for what is in flight and sends nothing again: the transaction is to be aborted, or is another's."""
        while self._flights:
            self._land()
        self._give_up(self._again)
        self.failed = []

    def _give_up(self, batches: list[Batch]) -> None:
        for batch in batches:
            self._fail(batch, batch.error or refused(ErrorCode.REQUEST_TIMED_OUT, f"a batch for {batch.at}"))
        self._again = []
        self._gap = False

    def settle(self) -> None:
        """Returns when every batch is acked or failed."""
        self._limits.forget()
        for wait in waits():
            while self._flights:
                self._land()
            again = self._in_time(sorted(self._again, key=lambda batch: batch.number))
            self._again = []
            doubtful = [batch for batch in again if batch.doubtful]
            if self._gap and self.membership is not None:
                self._give_up(again)
                return
            if self._gap and not doubtful:
                self._renew(again)
            if not again:
                return
            self.cluster.forget()
            time.sleep(wait)
            held = [batch for batch in again if not batch.doubtful] if self._gap else []
            self._send(doubtful if self._gap else again)
            self._again += held

    def _in_time(self, batches: list[Batch]) -> list[Batch]:
        now = time.monotonic()
        for batch in batches:
            if now > batch.deadline:
                self._fail(batch, batch.error or refused(ErrorCode.REQUEST_TIMED_OUT, f"a batch for {batch.at}"))
        return [batch for batch in batches if now <= batch.deadline]

    def _fail(self, batch: Batch, error: TidelogError) -> None:
        batch.error = error
        self.failed.append(batch)
        self._gap = self.idempotent
        if self.membership is not None:
            self.membership.lose(error)

    def _send(self, batches: list[Batch]) -> None:
        for wave in waves(batches):
            led: dict[int, list[Batch]] = {}
            for batch in wave:
                try:
                    leader = self.cluster.leader_id(batch.at, auto_create=self.auto_create)
                except PeerError as error:
                    self._trouble(batch, error)
                else:
                    led.setdefault(leader, []).append(batch)
            if not self._named(led):
                continue
            for leader, together in led.items():
                for portion in portions(together):
                    self._depart(leader, {batch.at: batch for batch in portion})

    def _named(self, led: dict[int, list[Batch]]) -> bool:
        """Whether these batches' partitions are in the transaction, where there is one."""
        if self.membership is None or self.membership.is_alone:
            return True
        batches = [batch for together in led.values() for batch in together]
        try:
            self.membership.name(self.cluster, [batch.at for batch in batches])
        except PeerError as error:
            for batch in batches:
                self._trouble(batch, error)
            return False
        return True

    def _depart(self, leader: int, batches: dict[TopicPartition, Batch]) -> None:
        while self._must_wait(leader, batches):
            self._land()
        held_back = {batch.at for batch in self._again}
        self._again += [batch for at, batch in batches.items() if at in held_back]
        batches = {at: batch for at, batch in batches.items() if at not in held_back}
        if not batches:
            return
        try:
            connection = self.cluster.node(leader)
            request, topics, version = self._request(connection, batches)
        except PeerError as error:
            for batch in batches.values():
                self._trouble(batch, error)
            return
        try:
            if self.acks == 0:
                connection.send_unanswered(request, version=version)
                for batch in batches.values():
                    batch.acked = True
            else:
                sent = connection.send(request, ProduceResponse, version=version)
                self._flights.append(ProduceFlight(leader, connection, sent, batches, topics))
        except Disconnected as error:
            self._lost(batches, error)

    def _must_wait(self, leader: int, batches: dict[TopicPartition, Batch]) -> bool:
        limit = MAX_IN_FLIGHT if self.idempotent else 1
        if sum(flight.node_id == leader for flight in self._flights) >= limit:
            return True
        return any(at in flight.batches and at not in self._begun for flight in self._flights for at in batches)

    def _request(
        self, connection: Connection, batches: dict[TopicPartition, Batch]
    ) -> tuple[ProduceRequest, dict[bytes, str], int]:
        topics = {name: self.cluster.topic(name) for name in by_topic(batches)}
        by_id = all(topic.has_id for topic in topics.values())
        highest = None if by_id else BY_NAME
        request = ProduceRequest(acks=self.acks, timeout_ms=int(self.cluster.timeout_s * 1000))
        if self.membership is not None:
            request.transactional_id = self.membership.identity.transactional_id
            highest = highest if self.membership.identity.joins_by_produce else NAMED_BEFORE
        version = connection.version_of(ProduceRequest, highest=highest)
        for name, partitions in by_topic(batches).items():
            data = [PartitionProduceData(index=p, records=batches[TopicPartition(name, p)].data) for p in partitions]
            request.topic_data.append(TopicProduceData(name=name, topic_id=topics[name].topic_id, partition_data=data))
        return request, {topic.topic_id: name for name, topic in topics.items()}, version

    def _land(self) -> None:
        flight = self._flights.popleft()
        try:
            answer = flight.connection.receive(flight.sent)
        except PeerError as error:
            self._lost(flight.batches, error)
            return
        for topic in answer.responses:
            name = topic.name or flight.topics.get(bytes(topic.topic_id), "")
            for result in topic.partition_responses:
                batch = flight.batches.get(TopicPartition(name, result.index))
                if batch is not None:
                    self._answered(batch, result)

    def _answered(self, batch: Batch, result: PartitionProduceResponse) -> None:
        batch.doubtful = False
        if result.error_code in WRITTEN:
            self._begun.add(batch.at)
            batch.acked = True
            batch.base_offset = result.base_offset
            batch.error = None
            return
        said = result.error_message or next((one.batch_index_error_message for one in result.record_errors), None)
        what = f"a batch for {batch.at}"
        if self.membership is None:
            error = refused(result.error_code, what, said)
        else:
            error = refusal_of(result.error_code, what, self.membership.identity, said)
        if result.error_code == ErrorCode.MESSAGE_TOO_LARGE:
            error = self._limits.exceeded(batch.at, len(batch.data), batch.count) or error
        if result.error_code in IN_DOUBT:
            self._doubt(batch, error)
        else:
            self._trouble(batch, error)

    def _trouble(self, batch: Batch, error: PeerError) -> None:
        """It is known not to be written, at least by this try."""
        code = error.code if isinstance(error, BrokerError) else ErrorCode.NETWORK_EXCEPTION
        hopeless = not may_pass(code)
        if self.idempotent and code in GAPS:
            # Behind one that is to be sent again it is only early: they go again in order.
            self._gap = self._gap or not any(earlier.at == batch.at for earlier in self._again)
            hopeless = False
        batch.unknown += code in UNKNOWN_TOPIC
        if hopeless or batch.unknown == UNKNOWN_TOPIC_TRIES:
            self._fail(batch, error)
        else:
            batch.error = error
            self._again.append(batch)

    def _lost(self, batches: dict[TopicPartition, Batch], error: PeerError) -> None:
        for batch in batches.values():
            self._doubt(batch, Disconnected(f"{error}; a batch for {batch.at} may have been written or not"))

    def _doubt(self, batch: Batch, error: PeerError) -> None:
        batch.doubtful = True
        if self.idempotent:
            batch.error = error
            self._again.append(batch)
        else:
            self._fail(batch, error)

    def _renew(self, unwritten: list[Batch]) -> None:
        def attempt() -> InitProducerIdResponse:
            answer = self.cluster.any_node().call(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse)
            check(answer.error_code, "a producer id")
            return answer

        answer = self.cluster.retry(attempt)
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self._begun.clear()
        self._gap = False
        self._stamp(unwritten)

    def _stamp(self, batches: list[Batch]) -> None:
        for batch in batches:
            batch.base_sequence = self._sequences.get(batch.at, 0)
            self._sequences[batch.at] = (batch.base_sequence + batch.count) % SEQUENCES
            transactional = self.membership is not None and not self.membership.is_alone
            restamp(batch.data, self._producer_id, self._producer_epoch, batch.base_sequence, transactional)


def waves(batches: Iterable[Batch]) -> list[list[Batch]]:
    """Batches in order, so that no wave has two of one partition."""
    made: list[list[Batch]] = []
    seen: dict[TopicPartition, int] = {}
    for batch in batches:
        turn = seen.get(batch.at, 0)
        seen[batch.at] = turn + 1
        if turn == len(made):
            made.append([])
        made[turn].append(batch)
    return made


def portions(batches: Iterable[Batch]) -> list[list[Batch]]:
    """Batches of one wave, so that no request is larger than MAX_REQUEST_BYTES unless one batch is."""
    made: list[list[Batch]] = [[]]
    size = 0
    for batch in batches:
        if made[-1] and size + len(batch.data) > MAX_REQUEST_BYTES:
            made.append([])
            size = 0
        made[-1].append(batch)
        size += len(batch.data)
    return made
