"""Rows of topics: up to an end, what is new, and what comes until a deadline; never those of an open transaction."""

from __future__ import annotations

import time

import pytest

from contract import TIMEOUT_S
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.client.transactions import Transactions
from tidelog.control.reading import Span, follow, news, read, read_all, span
from tidelog.errors import BrokerError, OpenTransaction
from tidelog.wire.error_code import ErrorCode


@pytest.fixture
def at(cluster: Cluster, topic: str) -> TopicPartition:
    topics.create(cluster, topic, partitions=2)
    write(cluster, topic, b"a", b"b", b"c")
    return TopicPartition(topic, 0)


def write(cluster: Cluster, topic: str, *values: bytes, partition: int = 0) -> None:
    with Producer(cluster) as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


@proves("T10")
def test_a_stretch_ends_before_its_end_and_a_topic_that_is_not_there_has_no_rows(
    cluster: Cluster, at: TopicPartition
) -> None:
    assert [row.value for _, row in read(cluster, {at: 1}, {at: 2})] == [b"b"]
    assert [row.value for row in read_all(cluster, at)] == [b"a", b"b", b"c"]
    assert span(cluster, at) == Span(0, 3)
    nowhere = TopicPartition(f"{at.topic}.gone", 0)
    assert (span(cluster, nowhere), list(read_all(cluster, nowhere))) == (None, [])


@proves("T10")
def test_news_move_their_positions_also_past_what_does_not_count(cluster: Cluster, at: TopicPartition) -> None:
    positions = {at: 1}
    assert [row.value for _, row in news(cluster, positions)] == [b"b", b"c"]
    assert (positions, news(cluster, positions)) == ({at: 3}, [])
    with Transactions(cluster, f"id-{at.topic}") as owner:
        owner.begin()
        owner.producer.send(at.topic, b"not this", partition=0)
        owner.producer.flush()
        assert (news(cluster, positions), positions) == ([], {at: 3})
        owner.abort()
    deadline = time.monotonic() + TIMEOUT_S
    while positions[at] < 5:  # the record and its marker
        assert time.monotonic() < deadline
        assert news(cluster, positions, within_s=1.0) == []


@proves("T10")
def test_what_comes_is_followed_until_the_deadline_from_several_partitions(
    cluster: Cluster, at: TopicPartition
) -> None:
    other = TopicPartition(at.topic, 1)
    positions = {at: 3, other: 0}
    came = follow(cluster, positions, time.monotonic() + TIMEOUT_S)
    for number, where in enumerate((at, other, at)):
        write(cluster, at.topic, b"%d" % number, partition=where.partition)
        found, row = next(came)
        assert (found, row.value) == (where, b"%d" % number)
    assert positions == {at: 5, other: 1}


@proves("T10")
def test_a_deadline_that_has_passed_leaves_one_fetch_which_is_also_the_question_whether_one_may(
    cluster: Cluster, at: TopicPartition
) -> None:
    assert [row.value for _, row in follow(cluster, {at: 2}, time.monotonic() - 1)] == [b"c"]
    with pytest.raises(BrokerError) as said:
        list(follow(cluster, {at: 99}, time.monotonic() - 1))
    assert said.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@proves("T10")
def test_an_open_transaction_before_the_end_is_waited_for_and_named(cluster: Cluster, at: TopicPartition) -> None:
    with Transactions(cluster, f"id-{at.topic}") as owner:
        owner.begin()
        owner.producer.send(at.topic, b"d", partition=0)
        owner.producer.flush()
        rows = read_all(cluster, at, within_s=0.1)
        assert [next(rows).value for _ in range(3)] == [b"a", b"b", b"c"]
        with pytest.raises(OpenTransaction, match="only up to 3"):
            next(rows)
        assert [row.value for row in read_all(cluster, at, committed=False)] == [b"a", b"b", b"c", b"d"]
        owner.commit()
    assert [row.value for row in read_all(cluster, at)] == [b"a", b"b", b"c", b"d"]
