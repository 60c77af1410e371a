"""The requests of transactions, in every version, against a real broker without sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.topics.serving import Served, after_a_crash, serving, versions
from proving import proves
from tidelog.record.codec import check
from tidelog.record.columns import encode
from tidelog.wire.error_code import ErrorCode as E
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.list_transactions import ListTransactionsRequest
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

NAME, GROUP, TOPIC = "payments-1", "readers", "orders"
NOW_MS = 1_700_000_000_000


@pytest.fixture
def orders(served: Served) -> Served:
    create(served)
    return served


def create(served: Served) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
    served.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)


class Client:
    """A transactional producer, one request at a time."""

    def __init__(self, served: Served, name: str = NAME) -> None:
        self.served = served
        self.name = name
        self.take()

    @property
    def me(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def take(self) -> None:
        reply = self.served.ask(InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000), 4)
        assert reply.error_code == E.NONE
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch

    def add(self, *indexes: int, version: int = 3, topic: str = TOPIC, verify_only: bool = False) -> list[int]:
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))]
        if version >= 4:
            one = AddPartitionsToTxnTransaction(topics=topics, verify_only=verify_only, **self.me)
            reply = self.served.ask(AddPartitionsToTxnRequest(transactions=[one]), version)
            [result] = reply.results_by_transaction
            found = result.topic_results
        else:
            me = {f"v3_and_below_{key}": value for key, value in self.me.items()}
            found = self.served.ask(
                AddPartitionsToTxnRequest(v3_and_below_topics=topics, **me), version
            ).results_by_topic_v3_and_below
        return [one.partition_error_code for one in found[0].results_by_partition]

    def add_offsets(self, version: int = 3) -> int:
        code: int = self.served.ask(AddOffsetsToTxnRequest(group_id=GROUP, **self.me), version).error_code
        return code

    def commit_offset(self, offset: int, version: int = 3) -> int:
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])]
        reply = self.served.ask(TxnOffsetCommitRequest(group_id=GROUP, topics=topics, **self.me), version)
        code: int = reply.topics[0].partitions[0].error_code
        return code

    def write(self, *indexes: int) -> None:
        """What Produce does behind its checks."""
        for index in indexes:
            append(self.served, index, self.producer_id, self.epoch)

    def end(self, commit: bool, version: int = 3) -> int:
        reply = self.served.ask(EndTxnRequest(committed=commit, **self.me), version)
        if version >= 5 and not reply.error_code:
            self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
        code: int = reply.error_code
        return code


def append(served: Served, index: int, producer_id: int, epoch: int) -> None:
    partition = served.broker.partition(TOPIC, index)
    assert partition is not None
    batch = encode(
        [(None, b"x", (), NOW_MS)], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True
    )
    partition.log.append(memoryview(batch), check(batch), NOW_MS)


def open_in(served: Served, index: int = 0) -> dict[int, int]:
    partition = served.broker.partition(TOPIC, index)
    assert partition is not None
    return dict(partition.log.open_transactions())


def state_of(served: Served, name: str = NAME) -> Any:
    """What is told of an id, once the markers of its last transaction are written."""
    while True:
        [one] = served.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states
        if not one.transaction_state.startswith("Prepare"):
            return one
        served.turn()


def offset_of(served: Served) -> int | None:
    found = served.broker.groups.offsets.get(GROUP, {}).get((TOPIC, 0))
    return None if found is None else found.offset


@proves("F2", "T10")
@pytest.mark.parametrize("version", versions(24))
def test_partitions_are_added_in_every_version(orders: Served, version: int) -> None:
    client = Client(orders)
    assert client.add(0, 1, version=version) == [E.NONE, E.NONE]
    assert client.add(0, version=version) == [E.NONE]
    assert client.add(0, 7, version=version) == [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert client.add(0, version=version, topic="__tidelog.groups") == [E.TOPIC_AUTHORIZATION_FAILED]
    found = state_of(orders)
    assert (found.transaction_state, found.producer_id) == ("Ongoing", client.producer_id)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [(TOPIC, [0, 1])]
    client.epoch -= 1
    assert client.add(0, version=version) == [E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH]


@proves("F2")
@pytest.mark.parametrize("version", [4, 5])
def test_partitions_are_only_verified_where_that_is_asked(orders: Served, version: int) -> None:
    client = Client(orders)
    assert client.add(0, version=version, verify_only=True) == [E.TRANSACTION_ABORTABLE]
    client.add(0)
    assert client.add(0, version=version, verify_only=True) == [E.NONE]


@proves("F2", "T10")
@pytest.mark.parametrize("version", versions(26))
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_in_every_version(orders: Served, version: int, commit: bool) -> None:
    client = Client(orders)
    client.add(0, 1)
    client.write(0, 1)
    assert client.end(commit, version) == E.NONE
    assert state_of(orders).transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    assert (open_in(orders, 0), open_in(orders, 1)) == ({}, {})
    client.epoch -= 1
    assert client.end(commit, 4) == E.PRODUCER_FENCED
    assert client.end(commit, 1) == E.INVALID_PRODUCER_EPOCH


@proves("F2", "T10")
@pytest.mark.parametrize("version", versions(28))
def test_offsets_are_committed_with_the_transaction_in_every_version(orders: Served, version: int) -> None:
    client = Client(orders)
    if version < 5:
        refused = E.TRANSACTION_ABORTABLE if version >= 4 else E.INVALID_TXN_STATE
        assert client.commit_offset(4, version) == refused, "the group was not added"
        assert client.add_offsets(min(version, 4)) == E.NONE
    assert client.commit_offset(4, version) == E.NONE
    assert offset_of(orders) is None
    assert [topic.topic for topic in state_of(orders).topics] == ["__tidelog.groups"]
    assert client.end(True) == E.NONE
    assert state_of(orders).transaction_state == "CompleteCommit"
    assert offset_of(orders) == 4
    client.epoch -= 1
    assert client.commit_offset(5, version) == E.INVALID_PRODUCER_EPOCH


@proves("F2", "T6")
@pytest.mark.parametrize("commit", [True, False])
def test_after_a_crash_what_was_prepared_is_marked(orders: Served, tmp_path: Path, commit: bool) -> None:
    """The outcome is on disk. Of the markers none may be, or some."""
    client = Client(orders)
    client.add(0, 1)
    client.add_offsets()
    client.commit_offset(9)
    client.write(0, 1)
    assert client.end(commit) == E.NONE
    with after_a_crash(orders, tmp_path / "again") as again:
        assert state_of(again).transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
        assert (open_in(again, 0), open_in(again, 1)) == ({}, {})
        assert offset_of(again) == (9 if commit else None)


@proves("F2")
def test_a_partition_whose_topic_is_deleted_holds_up_no_end(orders: Served) -> None:
    client = Client(orders)
    client.add(0)
    client.write(0)
    orders.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000), 6)
    assert client.end(True) == E.NONE
    assert state_of(orders).transaction_state == "CompleteCommit"


@proves("F3")
def test_taking_an_id_aborts_what_was_open_and_waits_for_its_markers(orders: Served) -> None:
    first = Client(orders)
    first.add(0)
    first.write(0)
    second = Client(orders)
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 2)
    assert open_in(orders) == {}
    assert first.end(True) == E.PRODUCER_FENCED


@proves("F2", "T10")
@pytest.mark.parametrize("version", versions(66))
def test_transactions_are_listed_in_every_version(orders: Served, version: int) -> None:
    clients = [Client(orders, name) for name in ("a-1", "a-2", "b-1")]
    clients[0].add(0)

    def listed(**filters: Any) -> list[str]:
        reply = orders.ask(ListTransactionsRequest(**filters), version)
        assert reply.error_code == E.NONE
        return sorted(one.transactional_id for one in reply.transaction_states)

    assert listed() == ["a-1", "a-2", "b-1"]
    assert listed(state_filters=["Ongoing"]) == ["a-1"]
    assert listed(producer_id_filters=[clients[2].producer_id]) == ["b-1"]
    unknown = orders.ask(ListTransactionsRequest(state_filters=["Sleeping"]), version)
    assert (unknown.unknown_state_filters, unknown.transaction_states) == (["Sleeping"], [])
    if version >= 1:
        assert listed(duration_filter=10_000) == []
    if version >= 2:
        assert listed(transactional_id_pattern="a-.*") == ["a-1", "a-2"]
        bad = orders.ask(ListTransactionsRequest(transactional_id_pattern="a("), version)
        assert bad.error_code == E.INVALID_REGULAR_EXPRESSION


@proves("F2")
def test_an_id_that_is_not_known_is_said_so(orders: Served) -> None:
    assert state_of(orders, "nobody").error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert state_of(orders, "").error_code == E.INVALID_REQUEST


@proves("F2", "T10")
@pytest.mark.parametrize("version", versions(27))
def test_a_transaction_that_hangs_is_ended_by_hand(orders: Served, version: int) -> None:
    append(orders, 0, 77, 3)
    assert open_in(orders) == {77: 0}
    assert write_marker(orders, version, 77, 3) == E.NONE
    assert open_in(orders) == {}
    assert write_marker(orders, version, 77, 2) == E.INVALID_PRODUCER_EPOCH
    assert write_marker(orders, version, 77, 3, topic="gone") == E.UNKNOWN_TOPIC_OR_PARTITION


@proves("F2")
def test_a_transaction_that_is_known_is_ended_by_hand_everywhere_or_not_at_all(orders: Served) -> None:
    client = Client(orders)
    client.add(0, 1)
    client.write(0, 1)
    assert write_marker(orders, 2, client.producer_id, client.epoch, commit=True) == E.INVALID_TXN_STATE
    assert state_of(orders).transaction_state == "Ongoing"
    assert write_marker(orders, 2, client.producer_id, client.epoch) == E.NONE
    assert (open_in(orders, 0), open_in(orders, 1)) == ({}, {})
    assert client.end(True) == E.PRODUCER_FENCED


def write_marker(
    served: Served, version: int, producer_id: int, epoch: int, *, commit: bool = False, topic: str = TOPIC
) -> int:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
    )
    reply = served.ask(WriteTxnMarkersRequest(markers=[marker]), version)
    code: int = reply.markers[0].topics[0].partitions[0].error_code
    return code


@proves("F2")
def test_producers_show_what_they_have_open(orders: Served) -> None:
    client = Client(orders)
    client.add(0)
    client.write(0)
    asked = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0])])
    [found] = orders.ask(asked, 0).topics[0].partitions[0].active_producers
    assert (found.producer_id, found.current_txn_start_offset) == (client.producer_id, 0)
    assert found.coordinator_epoch == -1, "nothing has ended here yet"


@proves("F2", "T6")
def test_producers_show_which_coordinator_ended_their_last_transaction(orders: Served, tmp_path: Path) -> None:
    client = Client(orders)
    client.add(0)
    client.write(0)
    assert client.end(True) == E.NONE
    assert state_of(orders).transaction_state == "CompleteCommit"
    asked = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0])])
    [found] = orders.ask(asked, 0).topics[0].partitions[0].active_producers
    assert (found.current_txn_start_offset, found.coordinator_epoch) == (-1, 0)
    with after_a_crash(orders, tmp_path / "again") as again:
        [found] = again.ask(asked, 0).topics[0].partitions[0].active_producers
        assert (found.current_txn_start_offset, found.coordinator_epoch) == (-1, 0)


@proves("F2")
def test_the_number_of_ids_is_bounded_and_who_is_refused_reads_why(tmp_path: Path) -> None:
    with serving(tmp_path / "few", **{"tidelog.max.transactional.ids": "1"}) as served:
        Client(served, "first")
        reply = served.ask(InitProducerIdRequest(transactional_id="second", transaction_timeout_ms=1000), 4)
        assert reply.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert "tidelog.max.transactional.ids=1" in served.log_lines.getvalue()


@proves("F2", "T10")
@pytest.mark.parametrize("version", versions(10))
def test_the_coordinator_of_a_transactional_id_is_found(orders: Served, version: int) -> None:
    if version == 0:
        return
    keys = {"coordinator_keys": [NAME]} if version >= 4 else {"key": NAME}
    reply = orders.ask(FindCoordinatorRequest(key_type=1, **keys), version)
    found = reply.coordinators[0] if version >= 4 else reply
    assert (found.error_code, found.port) == (E.NONE, 9092)


@proves("F2", "T6")
def test_a_transaction_that_nobody_knows_of_is_ended_when_its_partition_is_loaded(
    orders: Served, tmp_path: Path
) -> None:
    """The decisions about it are lost for good, say: nobody else would end it."""
    orders.produce(TOPIC, 0, b"before it")
    append(orders, 0, 77, 3)
    orders.produce(TOPIC, 0, b"behind it")
    assert open_in(orders) == {77: 1}
    with after_a_crash(orders, tmp_path / "again") as again:
        assert again.broker.partition(TOPIC, 0) is not None
        while open_in(again):
            again.turn()
        assert "transaction ended" in again.log_lines.getvalue()
