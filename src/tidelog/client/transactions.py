"""Transactions: what one owner of a transactional id writes, and how far it has read, counts together or not at all.

    new ---start---> ready ---begin---> open ---commit, abort---> ready ---append---> ready, or new
                                         |  `---EndTxn was sent and not answered: `ending`, where commit() asks again
                                         `------another owner began: `fenced`

    start() is allowed in every state: it takes the id, ends what its last owner left open, and fences that owner.

Rules:
- An end is sent when every batch has been answered. One that failed, or offsets that were refused, make the transaction
  abort-only: commit() raises `AbortOnly`, and abort() is the way on.
- EndTxn whose answer was lost is sent again until it is answered: coordinators know the same end asked for twice, also
  when the first one moved the epoch. If another owner began meanwhile, nobody can tell any more (`OutcomeUnknown`):
  whoever must know writes a record of its own last in each transaction and looks for it (`marks.py`).
- In transaction version 1 the epoch stays over an end. Where sequences have a gap then (a batch failed), or where
  several processes wrote, each of which counts from 0, the owner has itself given the next epoch before the next
  transaction, by an InitProducerId that names the one it has (KIP-360): it fails if somebody else took the id.
- A transaction without anything in it is ended without a request: brokers do not know of it.
- `append` writes one batch in no transaction: it is there as a whole or not at all, and costs one sync of the disk. It
  is under the id's producer id and epoch, and Tidelog refuses it when the id is another's. Apache Kafka does so only
  while the partition remembers the newer epoch: there it fences nobody for sure. What the last owner appended may not
  be visible yet when `start` returns; `mark` waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from typing import NamedTuple, TypeVar

from tidelog.client.cluster import GROUP, TRANSACTION, Cluster
from tidelog.client.identity import (
    FENCED,
    Membership,
    ProducerIdentity,
    add_partitions,
    refusal_of,
    transaction_version,
)
from tidelog.client.metadata import TopicPartition, by_topic
from tidelog.client.producer import BATCH_BYTES, Delivery, Producer
from tidelog.errors import BrokerError, Disconnected, OutcomeUnknown, PeerError, ProducerFenced, UsageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

Result = TypeVar("Result")

TIMEOUT_MS = 60_000
NOBODY = -1  # as a producer id, before start()
EXPECTS_SINCE = 3  # the version of InitProducerId that names the present holder
EPOCH_STAYS = 4  # the last version of EndTxn that leaves the epoch
GROUP_NAMED_BEFORE = 4  # the last version of TxnOffsetCommit that does not make a group part of a transaction
NOT_COMMITTED = (  # answers to a commit that leave the transaction as it is
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


class State(Enum):
    NEW = "not started"
    READY = "ready"
    OPEN = "open"
    ENDING = "being committed"
    FENCED = "fenced"


class GroupMember(NamedTuple):
    """For offsets of a consumer that is a member of its group: a commit of one that was thrown out is refused."""

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


NO_MEMBER = GroupMember()


class Transactions:
    """The owner of one transactional id. It blocks, and belongs to one thread, like its cluster."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        compression: str = "none",
        batch_bytes: int = BATCH_BYTES,
        version: int | None = None,
        auto_create: bool = True,
    ) -> None:
        """`timeout_ms`: a transaction that is open for longer is aborted by the broker, and its owner fenced. `version`
        is the transaction version, what the cluster has finalized by default.
        """
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.state = State.NEW
        self._version = version
        self._member = Membership(ProducerIdentity(transactional_id, NOBODY, NOBODY), is_open=False)
        self._handed_over = False
        self._used_up = False  # whether the next transaction needs the next epoch
        self.producer = Producer(
            cluster,
            compression=compression,
            batch_bytes=batch_bytes,
            membership=self._member,
            auto_create=auto_create,
        )

    def __enter__(self) -> Transactions:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.state is State.OPEN:
            with suppress(PeerError):  # the broker aborts it when its time is over
                self.abort()

    @property
    def identity(self) -> ProducerIdentity:
        return self._member.identity

    def start(self) -> ProducerIdentity:
        """Takes the id. Returns when what its last owner left is ended and visible as such."""
        self.producer.discard()
        self._member.end()
        self._take(renewing=False)
        self.state = State.READY
        return self.identity

    def mark(self, places: Iterable[TopicPartition]) -> None:
        """Writes a marker of nothing into partitions, and returns when it is visible, with all that was appended there
        before under the id. It carries the present epoch, so that the partitions know it, too.
        """
        with self.transaction():
            self._member.begun = True
            add_partitions(self.cluster, self.identity, places)
            self.abort()
        self._take(renewing=True)

    def begin(self) -> None:
        self._require(State.READY)
        if self._used_up:
            self._take(renewing=True)
        self._handed_over = False
        self._member.begin()
        self.state = State.OPEN

    def produce(self, at: TopicPartition, batch: bytes | bytearray | memoryview) -> Delivery:
        """One batch that was encoded elsewhere; a `bytearray` is stamped as it is. Also: `producer.send`, `flush`."""
        self._require(State.OPEN)
        return self.producer.send_batch(at, batch)

    def produce_together(
        self, batches: Iterable[tuple[TopicPartition, bytes | bytearray | memoryview]]
    ) -> list[Delivery]:
        """As `produce`, and in one request for each leader."""
        self._require(State.OPEN)
        return self.producer.send_together(batches)

    def append(self, at: TopicPartition, batch: bytes | bytearray | memoryview) -> Delivery:
        """One batch that counts by itself, between transactions; returns when it is written. After an error nobody
        knows whether it is: start() again, and read.
        """
        self._require(State.READY)
        if self._used_up:
            self._take(renewing=True)
        self.state = State.NEW
        self._member.begin(alone=True)
        try:
            delivery = self.producer.send_batch(at, batch)
            self.producer.flush(strict=False)
        finally:
            self._member.end()
        if self._member.lost is not None:
            self._follow(self._member.lost)
            raise self._member.lost
        self.state = State.READY
        return delivery

    def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        member: GroupMember = NO_MEMBER,
        metadata: str = "",
    ) -> None:
        """The next offset to be read of each partition, as a commit of the group that counts with the transaction."""
        self._require(State.OPEN)
        self.check_lost()
        if not offsets:
            return
        self._member.begun = True
        try:
            if not self.identity.joins_by_produce:
                self._add_group(group)
            self._commit_offsets(group, offsets, member, metadata)
        except PeerError as error:
            self._member.lose(error)
            self._follow(error)
            raise

    def check_lost(self) -> None:
        """Raises what makes the open transaction abort-only, for who has more to send."""
        if self._member.lost is not None:
            self._follow(self._member.lost)
            raise self._member.abort_only()

    def commit(self) -> None:
        """Returns when the outcome is on the broker's disk. After `OutcomeUnknown` it may be called again."""
        if self.state is not State.ENDING:
            self._require(State.OPEN)
            self.producer.flush(strict=False)
            self.check_lost()
        if self._member.begun:
            self._end(committed=True)
        self._ended()

    def abort(self) -> None:
        self._require(State.OPEN)
        self.producer.discard()
        if self._member.begun:
            self._end(committed=False)
        self._ended()

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """Commits at the end, unless it was aborted inside; an exception aborts."""
        self.begin()
        try:
            yield self.producer
            if self.state is not State.READY:
                self.commit()
        except BaseException as error:
            if self.state is State.OPEN:
                try:
                    self.abort()
                except PeerError as failed:
                    error.add_note(f"the transaction was not aborted either: {failed}")
            raise

    def hand_over(self) -> ProducerIdentity:
        """For other processes to write under, by `join`, until this owner ends the transaction. One writer to a
        partition, this one included; who ends it waits for all of them first.
        """
        self._require(State.OPEN)
        if not self.identity.joins_by_produce and self.producer.has_written:
            if self._member.begun:
                raise UsageError(
                    f"the transaction of {self.transactional_id!r} was written to by its owner already, and this"
                    " cluster has transaction.version 1; hand it over right after begin()"
                )
            self._take(renewing=True)
        self._handed_over = self._member.begun = True
        return self.identity

    # States -----------------------------------------------------------------------------------------------------------

    def _require(self, wanted: State) -> None:
        if self.state is wanted:
            return
        advice = {
            State.NEW: "start() first",
            State.READY: "begin() one first",
            State.OPEN: "commit() or abort() it first",
            State.ENDING: "commit() again asks for its outcome",
            State.FENCED: "another owner began; stop this one, or take the id back by start()",
        }
        raise UsageError(f"the transaction of {self.transactional_id!r} is {self.state.value}; {advice[self.state]}")

    def _follow(self, error: BaseException) -> None:
        if isinstance(error, ProducerFenced):
            self._member.end()
            self.state = State.FENCED

    def _ended(self) -> None:
        if not self.identity.joins_by_produce:
            self._used_up = self._handed_over or self._member.lost is not None
        self._member.end()
        self.state = State.READY

    def _adopt(self, producer_id: int, producer_epoch: int, version: int) -> None:
        self._member.identity = ProducerIdentity(self.transactional_id, producer_id, producer_epoch, version)
        self._used_up = False
        self.producer.adopt(self._member)

    # Requests ---------------------------------------------------------------------------------------------------------

    def _take(self, *, renewing: bool) -> None:
        """`renewing`: the next epoch, if nobody else took the id."""

        def attempt() -> InitProducerIdResponse:
            coordinator = self.cluster.coordinator(self.transactional_id, TRANSACTION)
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
            )
            version = coordinator.version_of(InitProducerIdRequest)
            if renewing and version >= EXPECTS_SINCE:
                request.producer_id, request.producer_epoch = self.identity.producer_id, self.identity.producer_epoch
            answer = coordinator.call(request, InitProducerIdResponse, version=version)
            self._check(answer.error_code, f"transactional id {self.transactional_id!r}")
            return answer

        answer = self._retry(attempt)
        version = self._version if self._version is not None else transaction_version(self.cluster)
        self._adopt(answer.producer_id, answer.producer_epoch, version)

    def _add_group(self, group: str) -> None:
        identity = self.identity

        def attempt() -> None:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                group_id=group,
            )
            coordinator = self.cluster.coordinator(self.transactional_id, TRANSACTION)
            answer = coordinator.call(request, AddOffsetsToTxnResponse)
            self._check(answer.error_code, f"group {group!r} in the transaction of {self.transactional_id!r}")

        self._retry(attempt)

    def _commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], member: GroupMember, metadata: str
    ) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            generation_id=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
        )
        for topic, partitions in by_topic(offsets).items():
            places = [
                TxnOffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offsets[TopicPartition(topic, index)],
                    committed_metadata=metadata,
                )
                for index in partitions
            ]
            request.topics.append(TxnOffsetCommitRequestTopic(name=topic, partitions=places))

        def attempt() -> None:
            coordinator = self.cluster.coordinator(group, GROUP)
            highest = None if self.identity.joins_by_produce else GROUP_NAMED_BEFORE
            version = coordinator.version_of(TxnOffsetCommitRequest, highest=highest)
            answer = coordinator.call(request, TxnOffsetCommitResponse, version=version)
            for topic in answer.topics:
                for result in topic.partitions:
                    at = TopicPartition(topic.name, result.partition_index)
                    self._check(result.error_code, f"the offset of {at} for group {group!r}")

        self._retry(attempt)

    def _end(self, *, committed: bool) -> None:
        """Sends EndTxn until it is answered, and goes on with the producer id and epoch of the answer."""
        in_doubt = self.state is State.ENDING
        what = f"the {'commit' if committed else 'abort'} of {self.transactional_id!r}"

        def attempt() -> EndTxnResponse:
            nonlocal in_doubt
            coordinator = self.cluster.coordinator(self.transactional_id, TRANSACTION)
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.producer_epoch,
                committed=committed,
            )
            highest = None if self.identity.joins_by_produce else EPOCH_STAYS
            version = coordinator.version_of(EndTxnRequest, highest=highest)
            try:
                answer = coordinator.call(request, EndTxnResponse, version=version)
            except PeerError:
                in_doubt = True
                raise
            if answer.error_code == ErrorCode.INVALID_TXN_STATE and not committed:
                return answer  # nothing had come as far as the coordinator
            self._check(answer.error_code, what)
            return answer

        try:
            answer = self.cluster.retry(attempt)
        except PeerError as error:
            self._not_ended(error, what, committed=committed, in_doubt=in_doubt)
            raise
        if not answer.error_code and answer.producer_id >= 0:
            self._adopt(answer.producer_id, answer.producer_epoch, self.identity.version)

    def _not_ended(self, error: PeerError, what: str, *, committed: bool, in_doubt: bool) -> None:
        """Whether it is known that the transaction does not count, and what the owner may do next."""
        code = error.code if isinstance(error, BrokerError) else ErrorCode.NONE
        self._follow(error)
        if not committed:
            self._member.lose(error)
        elif code in FENCED and in_doubt:
            raise OutcomeUnknown(
                f"{what} was sent, its answer lost, and another owner began since; look whether what it wrote counts"
            ) from error
        elif code in NOT_COMMITTED:
            self.state = State.OPEN
            self._member.lose(error)
            raise self._member.abort_only() from error
        elif code not in FENCED and (in_doubt or not isinstance(error, Disconnected)):
            self._member.end()
            self.state = State.ENDING
            raise OutcomeUnknown(
                f"{what} was sent and not answered for {self.cluster.timeout_s:g} s ({error}); commit() again, or"
                " start() and look whether what it wrote counts"
            ) from error

    def _check(self, code: int, what: str) -> None:
        if code:
            raise refusal_of(code, what, self.identity)

    def _retry(self, attempt: Callable[[], Result]) -> Result:
        try:
            return self.cluster.retry(attempt)
        except ProducerFenced as error:
            self._follow(error)
            raise


def join(
    cluster: Cluster, identity: ProducerIdentity, *, compression: str = "none", batch_bytes: int = BATCH_BYTES
) -> Producer:
    """A producer inside the open transaction of another process, which handed its identity over. It flushes, says what
    became of it, and leaves the end to the owner: if a flush fails, the owner must abort.
    """
    member = Membership(identity, is_open=True)
    return Producer(cluster, compression=compression, batch_bytes=batch_bytes, membership=member)
