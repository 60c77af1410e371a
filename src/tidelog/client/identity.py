"""Who writes in a transaction: the identity that a transactional id's owner has, and how a partition joins by it.

An identity is plain data and may be handed to another process, which then writes under it (`transactions.join`).
`version` is the transaction version that the cluster had finalized when the identity was given:

    1    partitions are named by AddPartitionsToTxn before anything is written to them; the epoch stays over an end
    2    the first Produce to a partition names it; every end moves the epoch (KIP-890)

Sequences in a partition begin at 0 for each epoch. So whoever writes under an identity that somebody else has written
with needs a partition of its own, or an epoch of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.client.cluster import TRANSACTION, Cluster
from tidelog.client.metadata import TopicPartition, by_topic
from tidelog.client.refusal import refused
from tidelog.errors import AbortOnly, BrokerError, ProducerFenced, TidelogError, UsageError
from tidelog.wire.error_code import ErrorCode, name
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)

FEATURE = "transaction.version"
JOINS_BY_PRODUCE = 2  # the transaction version
LAST_FOR_CLIENTS = 3  # the last version of AddPartitionsToTxn that clients use; later ones are between brokers
FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)


class ProducerIdentity(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int = JOINS_BY_PRODUCE

    @property
    def joins_by_produce(self) -> bool:
        return self.version >= JOINS_BY_PRODUCE


def transaction_version(cluster: Cluster) -> int:
    """What the cluster has finalized; brokers that do not say have version 1."""
    return min(max(cluster.any_node().finalized.get(FEATURE, 1), 1), JOINS_BY_PRODUCE)


def refusal_of(code: int, what: str, identity: ProducerIdentity, said: str | None = None) -> BrokerError:
    """A `ProducerFenced` where the code means that."""
    if code not in FENCED:
        return refused(code, what, said)
    return ProducerFenced(
        code,
        f"{what} was refused with {name(code)} ({int(code)}): producer {identity.producer_id} at epoch"
        f" {identity.producer_epoch} no longer owns {identity.transactional_id!r}: another owner began, or"
        " a transaction was open longer than its timeout_ms; stop this one, or take the id back by start()",
    )


def add_partitions(cluster: Cluster, identity: ProducerIdentity, partitions: Iterable[TopicPartition]) -> None:
    """Version 1's way to name them. Returns when the coordinator has them on disk."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=identity.transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in by_topic(partitions).items()
        ],
    )

    def attempt() -> None:
        coordinator = cluster.coordinator(identity.transactional_id, TRANSACTION)
        version = coordinator.version_of(AddPartitionsToTxnRequest, highest=LAST_FOR_CLIENTS)
        answer = coordinator.call(request, AddPartitionsToTxnResponse, version=version)
        codes = {
            TopicPartition(topic.name, result.partition_index): result.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }
        # One that is refused has the others answered OPERATION_NOT_ATTEMPTED, which says nothing.
        told = {at: code for at, code in codes.items() if code not in (0, ErrorCode.OPERATION_NOT_ATTEMPTED)}
        for at, code in (told or {at: code for at, code in codes.items() if code}).items():
            raise refusal_of(code, f"{at} in the transaction of {identity.transactional_id!r}", identity)

    cluster.retry(attempt)


class Membership:
    """One writer's part in the transactions of an identity: what of the open one it has named, and what it has lost."""

    def __init__(self, identity: ProducerIdentity, *, is_open: bool) -> None:
        self.identity = identity
        self.is_open = is_open
        self.is_alone = False  # what is sent is in no transaction: each batch counts by itself
        self.begun = False  # whether the coordinator may know of the open transaction
        self.lost: TidelogError | None = None  # then it can only be aborted
        self._named: set[TopicPartition] = set()

    def begin(self, *, alone: bool = False) -> None:
        self.is_open = True
        self.is_alone = alone
        self.begun = False
        self.lost = None
        self._named.clear()

    def end(self) -> None:
        self.is_open = False

    def check_open(self) -> None:
        if not self.is_open:
            raise UsageError(f"no transaction of {self.identity.transactional_id!r} is open; begin() one first")

    def lose(self, error: TidelogError) -> None:
        self.lost = self.lost or error

    def name(self, cluster: Cluster, partitions: Iterable[TopicPartition]) -> None:
        """Before anything is written to them."""
        new = [at for at in partitions if at not in self._named]
        if new:
            self.begun = True
            if not self.identity.joins_by_produce:
                add_partitions(cluster, self.identity, new)
            self._named.update(new)

    def abort_only(self) -> TidelogError:
        """What to raise, once something was lost."""
        assert self.lost is not None
        if isinstance(self.lost, ProducerFenced):
            return self.lost
        error = AbortOnly(
            f"the transaction of {self.identity.transactional_id!r} cannot be committed: {self.lost}; abort it and"
            " begin again"
        )
        error.__cause__ = self.lost
        return error
