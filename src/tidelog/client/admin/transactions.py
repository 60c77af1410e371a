"""Transactions: which transactional ids there are, what their transactions have touched, and how to end one.

An id's coordinator knows its transaction; a partition knows which producers have one open in it. A transaction that is
open in a partition and known to no coordinator *hangs*: it holds up everybody who reads committed records, for ever,
until somebody ends it there (KIP-664).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.client.cluster import TRANSACTION, Cluster
from tidelog.client.metadata import TopicPartition, by_topic
from tidelog.client.refusal import check
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

FENCING_TIMEOUT_MS = 1  # no transaction is begun with it; as Kafka's own tools do
NOTHING_OPEN = -1
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


class Listed(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


class Open(NamedTuple):
    """A transaction as a partition sees it."""

    at: TopicPartition
    producer_id: int
    epoch: int
    start_offset: int
    last_ms: int
    coordinator_epoch: int


def list_all(cluster: Cluster, states: Iterable[str] = ()) -> list[Listed]:
    """Each broker knows the ids that it coordinates."""
    request = ListTransactionsRequest(state_filters=list(states))

    def attempt() -> list[Listed]:
        cluster.ask_metadata(())
        found = []
        for node_id in cluster.nodes:
            answer = cluster.node(node_id).call(request, ListTransactionsResponse)
            check(answer.error_code, f"transactions of node {node_id}")
            found += [
                Listed(one.transactional_id, one.producer_id, one.transaction_state)
                for one in answer.transaction_states
            ]
        return sorted(found)

    return cluster.retry(attempt)


def describe(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    def attempt() -> TransactionDescription:
        coordinator = cluster.coordinator(transactional_id, TRANSACTION)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (given,) = coordinator.call(request, DescribeTransactionsResponse).transaction_states
        check(given.error_code, f"transactional id {transactional_id!r}")
        return TransactionDescription(
            transactional_id,
            given.transaction_state,
            given.producer_id,
            given.producer_epoch,
            given.transaction_timeout_ms,
            given.transaction_start_time_ms if given.transaction_start_time_ms >= 0 else None,
            tuple(TopicPartition(topic.topic, index) for topic in given.topics for index in topic.partitions),
        )

    return cluster.retry(attempt)


def abort(cluster: Cluster, transactional_id: str) -> None:
    """Takes the id from whoever holds it: its open transaction is aborted, and its producer fenced."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS)

    def attempt() -> None:
        coordinator = cluster.coordinator(transactional_id, TRANSACTION)
        check(coordinator.call(request, InitProducerIdResponse).error_code, f"fencing {transactional_id!r}")

    cluster.retry(attempt)


def open_in(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[Open]:
    """Every transaction that is open in these partitions."""
    wanted = list(partitions)
    return cluster.retry(lambda: _open_in(cluster, wanted))


def _open_in(cluster: Cluster, partitions: list[TopicPartition]) -> list[Open]:
    found = []
    for node_id, places in cluster.by_leader(partitions).items():
        topics = [TopicRequest(name=topic, partition_indexes=indexes) for topic, indexes in by_topic(places).items()]
        answer = cluster.node(node_id).call(DescribeProducersRequest(topics=topics), DescribeProducersResponse)
        for topic in answer.topics:
            for part in topic.partitions:
                at = TopicPartition(topic.name, part.partition_index)
                check(part.error_code, f"producers of {at}", part.error_message)
                found += [
                    Open(
                        at,
                        one.producer_id,
                        one.producer_epoch,
                        one.current_txn_start_offset,
                        one.last_timestamp,
                        one.coordinator_epoch,
                    )
                    for one in part.active_producers
                    if one.current_txn_start_offset != NOTHING_OPEN
                ]
    return sorted(found)


def hanging(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[Open]:
    """Those of the open transactions that no coordinator is going to end."""
    candidates = open_in(cluster, partitions)
    if not candidates:
        return []
    known = {one.producer_id: one.transactional_id for one in list_all(cluster, OPEN_STATES)}
    touched = {name: frozenset(describe(cluster, name).partitions) for name in known.values()}
    return [
        one
        for one in candidates
        if one.producer_id not in known or one.at not in touched.get(known[one.producer_id], frozenset())
    ]


def abort_hanging(cluster: Cluster, one: Open) -> None:
    """Ends it in its partition alone: nobody else knows of it."""
    topic = WritableTxnMarkerTopic(name=one.at.topic, partition_indexes=[one.at.partition])
    marker = WritableTxnMarker(
        producer_id=one.producer_id,
        producer_epoch=one.epoch,
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=max(one.coordinator_epoch, 0),
    )

    def attempt() -> None:
        answer = cluster.leader(one.at).call(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
        code = answer.markers[0].topics[0].partitions[0].error_code
        check(code, f"ending the transaction of producer {one.producer_id} in {one.at}")

    cluster.retry(attempt)
