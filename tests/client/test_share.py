"""A share group by our own client, against a real broker: acquired, done, given back, rejected, renewed, taken over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import tidelog
from against.patience import eventually
from proving import proves
from tidelog.client import Cluster, Producer, TopicPartition
from tidelog.client.acknowledgements import ranges
from tidelog.client.admin import configs, excisions, share_groups, topics
from tidelog.client.share import ACCEPT, LAST_EPOCH, REJECT, RELEASE, AcquiredRecord, ShareReader, next_epoch

JOBS = TopicPartition("jobs", 0)
GROUP = "workers"


@pytest.fixture
def broker() -> Iterator[tidelog.Broker]:
    settings = {"group.share.min.record.lock.duration.ms": "1000", "tidelog.log.level": "ERROR"}
    with tidelog.Broker(in_process=True, settings=settings) as running:
        with Cluster(running.bootstrap) as cluster:
            topics.create(cluster, JOBS.topic, partitions=2)
            own = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000"}
            configs.alter(cluster, configs.GROUP, GROUP, set=own)
        yield running


Reader = Callable[..., ShareReader]


@pytest.fixture
def reader(broker: tidelog.Broker) -> Iterator[Reader]:
    made: list[tuple[ShareReader, Cluster]] = []

    def make(**options: int) -> ShareReader:
        cluster = Cluster(broker.bootstrap)
        made.append((ShareReader(cluster, GROUP, [JOBS.topic], **options), cluster))
        return made[-1][0]

    yield make
    for one, cluster in made:
        one.close()
        cluster.close()


def send(broker: tidelog.Broker, count: int, partition: int = 0) -> None:
    with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
        for number in range(count):
            producer.send(JOBS.topic, str(number).encode(), partition=partition)


def read(reader: ShareReader, count: int) -> list[AcquiredRecord]:
    found: list[AcquiredRecord] = []
    while len(found) < count:
        found += reader.fetch()
    return found


def acknowledge(reader: ShareReader, records: list[AcquiredRecord], kind: int) -> list[tuple[TopicPartition, int]]:
    kinds: dict[TopicPartition, dict[int, int]] = {}
    for one in records:
        kinds.setdefault(one.at, {})[one.row.offset] = kind
    return reader.acknowledge(kinds)


@proves("T4")
def test_what_is_accepted_does_not_come_again_and_what_is_released_does(broker: tidelog.Broker, reader: Reader) -> None:
    send(broker, 6)
    send(broker, 4, partition=1)
    first = reader()
    records = read(first, 10)
    assert sorted((one.at.partition, one.row.offset) for one in records) == [
        *((0, offset) for offset in range(6)),
        *((1, offset) for offset in range(4)),
    ]
    assert {one.delivery for one in records} == {1}
    ours = [one for one in records if one.at == JOBS]
    assert acknowledge(first, [one for one in ours if one.row.offset % 2], ACCEPT) == []
    assert acknowledge(first, [one for one in ours if one.row.offset in (0, 2)], RELEASE) == []
    assert acknowledge(first, [one for one in ours if one.row.offset == 4], REJECT) == []
    again = [(one.row.offset, one.delivery) for one in read(first, 2)]
    assert again == [(0, 2), (2, 2)]
    assert first.fetch(max_wait_ms=50) == []


@proves("T4")
def test_a_lock_that_ran_out_is_told_and_a_renewed_one_holds(broker: tidelog.Broker, reader: Reader) -> None:
    send(broker, 2)
    first, second = reader(), reader()
    kept, lost = sorted(read(first, 2), key=lambda one: one.row.offset)
    assert first.lock_ms == 1000
    taken: list[AcquiredRecord] = []

    def take() -> bool:
        assert first.renew([(kept.at, kept.row.offset)]) == []
        taken.extend(second.fetch(max_wait_ms=50))
        return bool(taken)

    eventually(take)
    assert [(one.row.offset, one.delivery) for one in taken] == [(lost.row.offset, 2)]
    assert acknowledge(first, [lost], ACCEPT) == [(lost.at, lost.row.offset)]
    assert acknowledge(first, [kept], ACCEPT) == []
    assert acknowledge(second, taken, ACCEPT) == []


@proves("T4")
def test_what_a_reader_had_is_for_others_when_it_closes(broker: tidelog.Broker, reader: Reader) -> None:
    send(broker, 3)
    first, second = reader(), reader()
    read(first, 3)
    first.close()
    assert [one.row.offset for one in read(second, 3)] == [0, 1, 2]


@proves("T4")
def test_a_reader_goes_on_after_a_restart_of_the_broker(tmp_path: object) -> None:
    with tidelog.Broker(str(tmp_path), in_process=True, settings={"tidelog.log.level": "ERROR"}) as broker:
        address = broker.bootstrap
        with Cluster(address) as cluster:
            topics.create(cluster, JOBS.topic, partitions=1)
            configs.alter(cluster, configs.GROUP, GROUP, set={"share.auto.offset.reset": "earliest"})
            send(broker, 4)
            reader = ShareReader(cluster, GROUP, [JOBS.topic], max_records=2)
            done = read(reader, 2)
            assert acknowledge(reader, done, ACCEPT) == []
        broker.stop()
        again = tidelog.Broker(str(tmp_path), in_process=True, listen=address)
        with again, Cluster(address) as cluster:
            reader._cluster = cluster
            assert [one.row.offset for one in read(reader, 2)] == [2, 3]
            reader.close()


@proves("T4")
def test_offsets_whose_records_are_gone_are_done_with_and_not_tried_again(
    broker: tidelog.Broker, reader: Reader
) -> None:
    """Records 1, 2 and 4 of one batch were taken out of it; a marker of a transaction is a gap on Apache Kafka."""
    send(broker, 5)
    with Cluster(broker.bootstrap) as cluster:
        excisions.excise(cluster, JOBS.topic, {0: [(1, 2), (4, 4)]}, "a person asked")
        one = reader()
        records = read(one, 2)
        assert [record.row.offset for record in records] == [0, 3]
        assert acknowledge(one, records, ACCEPT) == []
        (queue,) = [found for found in share_groups.offsets(cluster, GROUP) if found.at == JOBS]
        assert (queue.start, queue.lag) == (5, 0)


@proves("T4")
def test_offsets_are_told_as_few_ranges_and_epochs_go_round() -> None:
    assert ranges([5, 1, 2, 3, 7, 6, 2]) == [(1, 3), (5, 7)]
    assert ranges([]) == []
    assert (next_epoch(0), next_epoch(7), next_epoch(LAST_EPOCH)) == (1, 8, 1)
