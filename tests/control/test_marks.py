"""Marks: their bytes, what follows from one, and that the last committed one is found, whatever lies behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import TIMEOUT_S
from proving import proves
from tidelog.client.admin import configs, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.client.transactions import Transactions
from tidelog.control import marks
from tidelog.control.marks import FIRST_LOOK, Mark, Sources
from tidelog.errors import LostCheckpoint, MalformedMark, PeerError, UsageError
from tidelog.testing.broker import TestBroker

ORDERS = TopicPartition("orders", 0)
EXAMPLE = Mark(
    sink="totals",
    generation=3,
    query_id="7f0c",
    batch_id=12,
    sources=Sources({TopicPartition("orders", 10): 7, TopicPartition("orders", 2): 5}, {"shop": "0/16B3748"}),
    ends={TopicPartition("totals", 1): 9, TopicPartition("totals", 0): 4},
    time_ms=1_700_000_000_000,
)
EXAMPLE_VALUE = (
    b'{"v":1,"sink":"totals","generation":3,"query":"7f0c","batch":12,'
    b'"sources":{"offsets":{"orders":{"2":5,"10":7}},"positions":{"shop":"0/16B3748"}},'
    b'"ends":{"totals":{"0":4,"1":9}},"time_ms":1700000000000}'
)

names = st.text("abcXYZ019._-", min_size=1, max_size=12)
offsets = st.dictionaries(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1))
any_mark = st.builds(
    Mark,
    sink=names,
    query_id=st.text(max_size=40),
    batch_id=st.integers(0, 2**63 - 1),
    sources=st.builds(Sources, offsets, st.dictionaries(st.text(max_size=9), st.text(max_size=20))),
    ends=offsets,
    time_ms=st.integers(0, 2**53),
    generation=st.integers(0, 2**31),
    ids=st.dictionaries(names, st.text("0123456789abcdef", min_size=32, max_size=32)),
    counts=st.fixed_dictionaries(
        {"records": st.dictionaries(names, st.dictionaries(names, st.integers(1, 9), min_size=1), min_size=1)}
    ),
    watermark_ms=st.none() | st.integers(-1, 2**53),
    watermarks=st.dictionaries(names, st.integers(0, 2**53)),
)


def mark_of(sink: str, batch_id: int, query_id: str = "q") -> Mark:
    return Mark(sink, query_id, batch_id, Sources({ORDERS: batch_id}), {}, 0)


@pytest.fixture
def sink(topic: str) -> str:
    return f"s-{topic}"


@pytest.fixture
def owner(cluster: Cluster, sink: str) -> Iterator[Transactions]:
    marks.ensure_topic(cluster, sink)
    with Transactions(cluster, marks.transactional_id_of(sink)) as started:
        yield started


def write(owner: Transactions, mark: Mark) -> None:
    key, value = marks.encode(mark)
    owner.producer.send(marks.topic_of(mark.sink), value, key=key, partition=0)


# Bytes ----------------------------------------------------------------------------------------------------------------


@proves("eo.3")
def test_a_mark_is_these_bytes() -> None:
    """As docs/formats/mark.md says; a change here is a new version."""
    assert marks.encode(EXAMPLE) == (b"totals", EXAMPLE_VALUE)
    assert marks.decode(EXAMPLE_VALUE) == EXAMPLE


@proves("eo.3")
@given(any_mark)
def test_any_mark_comes_back_as_it_was(mark: Mark) -> None:
    key, value = marks.encode(mark)
    assert key == mark.sink.encode()
    assert marks.decode(value) == mark


@proves("eo.3")
@given(any_mark, st.randoms())
def test_equal_marks_are_equal_bytes_in_whatever_order_they_were_made(mark: Mark, random: object) -> None:
    turned = Mark(
        mark.sink,
        mark.query_id,
        mark.batch_id,
        Sources(
            dict(reversed(mark.sources.offsets.items())),
            dict(reversed(mark.sources.positions.items())),
        ),
        dict(reversed(mark.ends.items())),
        mark.time_ms,
        mark.generation,
        dict(reversed(mark.ids.items())),
        {kind: dict(reversed(names.items())) for kind, names in mark.counts.items()},
        watermark_ms=mark.watermark_ms,
        watermarks=dict(reversed(mark.watermarks.items())),
    )
    assert marks.encode(turned) == marks.encode(mark)


@proves("eo.3")
def test_a_newer_version_is_refused_and_says_whose_mark_it_is() -> None:
    newer = json.dumps({**json.loads(EXAMPLE_VALUE), "v": 2}).encode()
    with pytest.raises(MalformedMark, match=r"sink 'totals' has format version 2.*version 1; use the newer one"):
        marks.decode(newer)


@proves("eo.3")
def test_a_field_that_is_not_known_is_passed_over() -> None:
    assert marks.decode(json.dumps({**json.loads(EXAMPLE_VALUE), "mood": "calm"}).encode()) == EXAMPLE


@proves("eo.3")
@pytest.mark.parametrize(
    "value", [b"", b"\xff\x00", b"[]", b"1", b"{}", b'{"v":1}', b'{"v":"1"}', b'{"v":1,"sink":"s","sources":[]}']
)
def test_what_is_no_mark_is_refused(value: bytes) -> None:
    with pytest.raises(MalformedMark):
        marks.decode(value)


@proves("eo.3")
@given(st.binary(max_size=60) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_no_bytes_do_anything_but_be_refused(value: bytes | str) -> None:
    with pytest.raises(MalformedMark):
        marks.decode(value if isinstance(value, bytes) else value.encode())


# Decisions ------------------------------------------------------------------------------------------------------------


@proves("eo.5", "eo.6")
def test_a_batch_is_due_until_a_mark_at_or_above_it_is_there() -> None:
    assert marks.is_due(None, "s", "q", 0)
    assert marks.is_due(None, "s", "q", 7), "a checkpoint from another sink"
    mark = mark_of("s", 5)
    assert [marks.is_due(mark, "s", "q", batch) for batch in (4, 5, 6)] == [False, False, True]


@proves("eo.6")
def test_a_mark_of_another_query_is_a_lost_checkpoint_and_the_choice_is_named() -> None:
    with pytest.raises(LostCheckpoint, match=r"query old .*go on from the mark's sources.*rebuild into a new topic"):
        marks.is_due(mark_of("s", 5, "old"), "s", "new", 6)


@proves("eo.9")
def test_a_batch_without_rows_has_a_mark_if_it_moves_a_source() -> None:
    before = mark_of("s", 5)
    assert not marks.is_worth_a_mark(before, before.sources, rows=0)
    assert marks.is_worth_a_mark(before, before.sources, rows=1)
    assert marks.is_worth_a_mark(before, Sources({ORDERS: 6}), rows=0)
    assert marks.is_worth_a_mark(before, Sources({ORDERS: 5}, {"shop": "1"}), rows=0)
    assert marks.is_worth_a_mark(None, before.sources, rows=0)


@proves("eo.9", "D8")
def test_a_batch_without_rows_has_a_mark_if_it_moves_the_watermark() -> None:
    before = replace(mark_of("s", 5), watermark_ms=1_000)
    worth = partial(marks.is_worth_a_mark, before, before.sources, rows=0)
    assert not worth(watermark_ms=1_000)
    assert worth(watermark_ms=1_001)
    assert not worth(watermark_ms=None), "nobody knows it"
    assert not worth(watermark_ms=marks.NOTHING_HELD), "nobody waits for it"


@proves("eo.3")
def test_a_partition_that_was_not_written_repeats_its_last_end() -> None:
    targets = [TopicPartition("t", index) for index in range(4)]
    before = Mark("s", "q", 1, Sources(), {targets[0]: 10, targets[1]: 20}, 0)
    found = marks.ends_after(before, {targets[0]: 15, targets[2]: 3}, targets, {targets[1]: 99, targets[3]: 8})
    assert found == {targets[0]: 15, targets[1]: 20, targets[2]: 3, targets[3]: 8}
    assert marks.ends_after(None, {}, targets[:1], {targets[0]: 4}) == {targets[0]: 4}


@proves("eo.1")
@pytest.mark.parametrize("sink", ["", "a b", "a/b", "ü", "x" * 232])
def test_a_name_that_no_topic_can_have_is_refused(sink: str) -> None:
    for named in (marks.topic_of, marks.staging_topic_of, marks.transactional_id_of):
        with pytest.raises(UsageError, match="sinkName"):
            named(sink)
    assert marks.topic_of("x" * 231).startswith("__tidelog.marks.")


# On a broker ----------------------------------------------------------------------------------------------------------


@proves("eo.2", "T10")
def test_the_topic_has_one_partition_is_compacted_and_keeps_marks_for_the_horizon(cluster: Cluster, sink: str) -> None:
    at = marks.ensure_topic(cluster, sink, horizon_ms=123_000)
    assert marks.ensure_topic(cluster, sink, horizon_ms=456_000) == at, "it is there already, and stays"
    (described,) = topics.describe(cluster, [at.topic])
    assert list(described.partitions) == [0]
    found = {one.name: one.value for one in configs.describe(cluster, configs.TOPIC, at.topic)}
    assert (found["cleanup.policy"], found["min.compaction.lag.ms"]) == ("compact", "123000")


@proves("eo.4", "T10")
def test_without_a_topic_or_a_mark_there_is_none(cluster: Cluster, sink: str) -> None:
    assert marks.read_mark(cluster, sink) is None
    assert marks.read_mark(cluster, sink, marks.end_of_marks(cluster, sink)) is None
    marks.ensure_topic(cluster, sink)
    assert marks.read_mark(cluster, sink) is None
    assert marks.read_mark(cluster, sink, marks.end_of_marks(cluster, sink)) is None


@proves("eo.2", "eo.4", "T10")
def test_the_last_committed_mark_is_read(owner: Transactions, cluster: Cluster, sink: str) -> None:
    for batch in range(3):
        owner.begin()
        write(owner, mark_of(sink, batch))
        owner.commit()
    owner.start()
    end = marks.end_of_marks(cluster, sink)
    assert marks.read_mark(cluster, sink, end) == marks.read_mark(cluster, sink) == mark_of(sink, 2)
    assert marks.read_mark(cluster, sink, 4) == mark_of(sink, 1), "below the end that was given"


@proves("eo.4", "T10")
def test_aborted_marks_are_passed_over_however_many_there_are(owner: Transactions, cluster: Cluster, sink: str) -> None:
    owner.begin()
    write(owner, mark_of(sink, 1))
    owner.commit()
    for _ in range(FIRST_LOOK):
        owner.begin()
        write(owner, mark_of(sink, 2))
        owner.producer.flush()
        owner.abort()
    owner.start()
    end = marks.end_of_marks(cluster, sink)
    assert end > 2 * FIRST_LOOK
    assert marks.read_mark(cluster, sink, end) == mark_of(sink, 1)


@proves("eo.4", "T10")
def test_a_mark_that_is_not_committed_yet_is_none(owner: Transactions, cluster: Cluster, sink: str) -> None:
    owner.begin()
    write(owner, mark_of(sink, 1))
    owner.commit()
    owner.start()
    owner.begin()
    write(owner, mark_of(sink, 2))
    owner.producer.flush()
    assert marks.read_mark(cluster, sink) == mark_of(sink, 1)
    # What is open before the end is waited for: only its end says whether it counts.
    with Cluster([str(address) for address in cluster.bootstrap], timeout_s=TIMEOUT_S) as impatient:
        end = marks.end_of_marks(impatient, sink)
        impatient.timeout_s = 1  # now that it is connected, however long that took
        with pytest.raises(PeerError, match="a transaction is open there"):
            marks.read_mark(impatient, sink, end)
    heir = Transactions(cluster, owner.transactional_id)
    heir.start()
    assert marks.read_mark(cluster, sink, marks.end_of_marks(cluster, sink)) == mark_of(sink, 1)


@proves("eo.2", "T8")
def test_a_mark_outlives_compaction_and_the_broker(tidelog_broker: TestBroker) -> None:
    sink = "kept"
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        marks.ensure_topic(cluster, sink, horizon_ms=1)
        with Transactions(cluster, marks.transactional_id_of(sink)) as owner:
            for batch in range(5):
                owner.begin()
                write(owner, mark_of(sink, batch))
                owner.commit()
    for _ in range(2):
        tidelog_broker.restart()
        with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
            assert marks.read_mark(cluster, sink) == mark_of(sink, 4)


@proves("eo.2", "eo.8")
def test_clients_make_write_alter_cut_and_delete_topics_of_sinks_and_no_other_internal_ones(
    tidelog_broker: TestBroker,
) -> None:
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        staging = TopicPartition(marks.staging_topic_of("orders"), 0)
        topics.create(cluster, staging.topic, partitions=1, configs={"tidelog.durability": "memory"})
        marks.ensure_topic(cluster, "orders")
        with Producer(cluster) as producer:
            for number in range(4):
                producer.send(staging.topic, b"%d" % number, partition=0)
        assert topics.delete_records(cluster, {staging: 3}) == {staging: 3}
        configs.alter(cluster, configs.TOPIC, staging.topic, set={"retention.ms": "86400000"})
        assert topics.names(cluster) == [], "who reads everything does not read notes"
        tidelog_broker.restart()
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        found = {one.name: one.value for one in configs.describe(cluster, configs.TOPIC, staging.topic)}
        assert (found["retention.ms"], found["tidelog.durability"]) == ("86400000", "memory")
        assert [one.name for one in topics.describe(cluster, [staging.topic, marks.topic_of("orders")])]
        topics.delete(cluster, staging.topic)
        for name in ("__tidelog.marks", "__tidelog.other.orders"):
            with pytest.raises(PeerError, match="the broker's own"):
                topics.create(cluster, name)
        with pytest.raises(PeerError, match="the broker's own"):
            topics.delete(cluster, "__tidelog.groups")
