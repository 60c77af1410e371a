"""Appends that go through only if nobody else has begun to write: a transaction under one name, shared by all gateways.

Kafka has no conditional append. What it has is fencing: of all producers that began under one transactional id, only
the last may write, and what those before it left open is aborted. So:

    fenced out    no epoch: at first, and when another gateway has begun since
    turn          `begin` has got an epoch. Whatever is committed by now can be read, and from here on nobody writes
                  without beginning, which takes this turn away
    written       `append` went through to its end in that turn; so nothing came between what was read and this

Whoever reads after `begin` and appends what follows from it, appends what follows from all that lies before.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from tidelog.client.cluster import TRANSACTION, Cluster
from tidelog.client.connection import Connection
from tidelog.client.metadata import TopicPartition
from tidelog.client.refusal import check
from tidelog.errors import BrokerError, Disconnected
from tidelog.record.columns import encode
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TRANSACTIONAL_ID = "tidelog.schemas"
TRANSACTION_TIMEOUT_MS = 10_000
ACKS_ALL = -1
PRODUCE_MAX = 11  # from 12 on, a partition is added by producing to it
ADD_MAX = 3  # from 4 on, the request is for brokers
END_MAX = 4  # from 5 on, every end changes the epoch

# Those after the first three mean that what the broker remembers of the turn is not what we do: it is over too.
FENCED = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)

Record = tuple[bytes, bytes | None]


class Fenced(Exception):
    """Another has begun since; nothing of what was appended counts. Begin, read and decide anew."""


class Turn(NamedTuple):
    producer_id: int
    epoch: int


class Writer:
    """Belongs to whoever holds the registry's lock. The cluster is each caller's own: the broker sees who writes."""

    def __init__(self, at: TopicPartition) -> None:
        self._at = at
        self._turn: Turn | None = None
        self._sequence = 0

    def begin(self, cluster: Cluster) -> None:
        """Does nothing in a turn of ours that has not been taken away, as far as is known."""
        if self._turn is not None:
            return
        request = InitProducerIdRequest(
            transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )

        def attempt() -> Turn:
            answer = self._coordinator(cluster).call(request, InitProducerIdResponse)
            check(answer.error_code, "the right to write schemas")
            return Turn(answer.producer_id, answer.producer_epoch)

        self._turn, self._sequence = cluster.retry(attempt), 0

    def append(self, cluster: Cluster, records: Sequence[Record], now_ms: int) -> int:
        """All of them or none; the offset of the last."""
        turn = self._turn
        assert turn is not None, "append without begin"
        try:
            cluster.retry(lambda: self._add_partition(cluster, turn))
            last = self._produce(cluster, turn, records, now_ms)
            self._end(cluster, turn)
        except BrokerError as error:
            self._give_up(cluster, turn)
            if error.code in FENCED:
                raise Fenced from error
            raise
        except BaseException:
            # Whether it went through is unknown. Beginning anew ends it one way or the other, and reading tells which.
            self._turn = None
            raise
        self._sequence += len(records)
        return last

    def _coordinator(self, cluster: Cluster) -> Connection:
        return cluster.coordinator(TRANSACTIONAL_ID, TRANSACTION)

    def _add_partition(self, cluster: Cluster, turn: Turn) -> None:
        topic = AddPartitionsToTxnTopic(name=self._at.topic, partitions=[self._at.partition])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=turn.producer_id,
            v3_and_below_producer_epoch=turn.epoch,
            v3_and_below_topics=[topic],
        )
        coordinator = self._coordinator(cluster)
        version = min(coordinator.version_of(AddPartitionsToTxnRequest), ADD_MAX)
        answer = coordinator.call(request, AddPartitionsToTxnResponse, version=version)
        for of_topic in answer.results_by_topic_v3_and_below:
            for result in of_topic.results_by_partition:
                check(result.partition_error_code, f"writing to {self._at}")

    def _produce(self, cluster: Cluster, turn: Turn, records: Sequence[Record], now_ms: int) -> int:
        batch = encode(
            [(key, value, (), now_ms) for key, value in records],
            producer_id=turn.producer_id,
            producer_epoch=turn.epoch,
            base_sequence=self._sequence,
            transactional=True,
        )
        data = PartitionProduceData(index=self._at.partition, records=batch)
        request = ProduceRequest(
            transactional_id=TRANSACTIONAL_ID,
            acks=ACKS_ALL,
            timeout_ms=int(cluster.timeout_s * 1000),
            topic_data=[TopicProduceData(name=self._at.topic, partition_data=[data])],
        )
        leader = cluster.leader(self._at)
        version = min(leader.version_of(ProduceRequest), PRODUCE_MAX)
        answer = leader.call(request, ProduceResponse, version=version)
        placed = answer.responses[0].partition_responses[0]
        check(placed.error_code, f"writing to {self._at}", placed.error_message)
        return int(placed.base_offset) + len(records) - 1

    def _end(self, cluster: Cluster, turn: Turn, *, commit: bool = True) -> None:
        request = EndTxnRequest(
            transactional_id=TRANSACTIONAL_ID, producer_id=turn.producer_id, producer_epoch=turn.epoch, committed=commit
        )
        coordinator = self._coordinator(cluster)
        answer = coordinator.call(request, EndTxnResponse, version=min(coordinator.version_of(EndTxnRequest), END_MAX))
        check(answer.error_code, "ending the write")

    def _give_up(self, cluster: Cluster, turn: Turn) -> None:
        """What was refused half-way is aborted, if it is still ours to abort."""
        self._turn = None
        with suppress(BrokerError, Disconnected):
            self._end(cluster, turn, commit=False)
