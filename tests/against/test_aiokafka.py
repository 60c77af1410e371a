"""aiokafka, which speaks the oldest versions of most requests: it produces, consumes, commits, rebalances and
administers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError

from against.brokers import HEARTBEAT_MS, SESSION_MS, Broker
from against.rebalancing import create, members_come_go_and_crash, produce_round, ways
from proving import proves

SECONDS = 180.0
LONG_WAIT_MS = 250_000  # brokers may end it after a minute
WOKEN_SECONDS = 50.0  # before that: by the record and nothing else
QUICK = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
WAYS_TO_SHARE = {
    "range": "range.RangePartitionAssignor",
    "roundrobin": "roundrobin.RoundRobinPartitionAssignor",
    "sticky": "sticky.sticky_assignor.StickyPartitionAssignor",
}


@asynccontextmanager
async def producer_of(broker: Broker, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        yield producer


@asynccontextmanager
async def consumer_of(broker: Broker, *topics: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "metadata_max_age_ms": 500}
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=broker.bootstrap, **{**defaults, **settings})
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def admin_of(broker: Broker) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def read(consumer: AIOKafkaConsumer, count: int, seconds: float = SECONDS) -> list[Any]:
    records: list[Any] = []
    async with asyncio.timeout(seconds):
        while len(records) < count:
            got = await consumer.getmany(timeout_ms=200, max_records=count - len(records))
            records += [record for batch in got.values() for record in batch]
    return records


async def read_partition(broker: Broker, topic: str, count: int, offset: int = 0) -> list[Any]:
    async with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), offset)
        return await read(consumer, count)


async def eventually(look: Callable[[], Awaitable[Any]], wanted: Any, seconds: float = SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while await look() != wanted:
            await asyncio.sleep(0.05)


@proves("T1", "T10")
def test_keys_values_headers_nulls_and_timestamps_come_back_as_they_were_sent(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    sent = [
        (b"key", b"value", (("a", b"1"), ("a", b"2"), ("none", None)), 1_700_000_000_000),
        (None, b"no key", (), 1_600_000_000_001),
        (b"no value", None, (), 1_700_000_000_002),
        (b"", b"", (("only", "ä€".encode()),), 1_700_000_000_003),
    ]

    async def run() -> list[Any]:
        async with producer_of(broker) as producer:
            for key, value, headers, timestamp in sent:
                await producer.send_and_wait(
                    topic, value, key, partition=0, timestamp_ms=timestamp, headers=list(headers)
                )
        return await read_partition(broker, topic, len(sent))

    got = asyncio.run(run())
    assert [(r.key, r.value, r.headers, r.timestamp) for r in got] == sent
    assert [r.offset for r in got] == list(range(len(sent)))


@proves("T1")
@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_come_back(broker: Broker, topic: str, compression: str | None) -> None:
    create(broker.bootstrap, topic, 1)
    values = [b"the same words again %d " % number * 20 for number in range(100)]

    async def run() -> list[Any]:
        async with producer_of(broker, compression_type=compression, linger_ms=20) as producer:
            await asyncio.gather(*[await producer.send(topic, value, b"k") for value in values])
        return await read_partition(broker, topic, len(values))

    assert [r.value for r in asyncio.run(run())] == values


@proves("T1")
@pytest.mark.parametrize("settings", [{"acks": 0}, {"acks": 1}, {"acks": "all"}, {"enable_idempotence": True}], ids=str)
def test_every_kind_of_ack_delivers(broker: Broker, topic: str, settings: dict[str, Any]) -> None:
    create(broker.bootstrap, topic, 1)

    async def run() -> list[Any]:
        async with producer_of(broker) as first:  # without acks nobody hears that a new partition is not ready
            await first.send_and_wait(topic, b"0")
        async with producer_of(broker, max_batch_size=100, **settings) as producer:
            for number in range(1, 100):
                await producer.send(topic, b"%d" % number)
            await producer.flush()
        return await read_partition(broker, topic, 100)

    assert [int(r.value) for r in asyncio.run(run())] == list(range(100))


@proves("T1")
def test_a_message_up_to_the_limit_is_taken_and_one_above_is_refused(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1, max_message_bytes="2000000")

    async def run() -> list[Any]:
        async with producer_of(broker, max_request_size=8_000_000, max_batch_size=8_000_000) as producer:
            await producer.send_and_wait(topic, b"x" * 1_999_000)
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic, b"y" * 2_000_001)
            await producer.send_and_wait(topic, b"after")
        return await read_partition(broker, topic, 2)

    assert [len(r.value) for r in asyncio.run(run())] == [1_999_000, 5]


@proves("T1")
def test_an_unknown_topic_is_made_by_the_first_produce(broker: Broker, topic: str) -> None:
    async def run() -> list[Any]:
        async with producer_of(broker) as producer:
            assert (await producer.send_and_wait(topic, b"first")).offset == 0
        return await read_partition(broker, topic, 1)

    assert [r.value for r in asyncio.run(run())] == [b"first"]


@proves("T7")
def test_a_consumer_seeks_by_offset_by_time_and_to_both_ends(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    start = 1_700_000_000_000
    partition = TopicPartition(topic, 0)

    async def run() -> None:
        async with producer_of(broker, linger_ms=50) as producer:
            for number in range(50):
                await producer.send(topic, b"%d" % number, timestamp_ms=start + number * 1000)
            await producer.flush()
        async with consumer_of(broker) as consumer:
            consumer.assign([partition])
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 50}
            for offset in (31, 0, 49, 7):
                consumer.seek(partition, offset)
                assert int((await read(consumer, 1))[0].value) == offset
            found = (await consumer.offsets_for_times({partition: start + 30_500}))[partition]
            assert (found.offset, found.timestamp) == (31, start + 31_000)
            assert (await consumer.offsets_for_times({partition: start + 60_000}))[partition] is None
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 50

    asyncio.run(run())


@proves("T7")
def test_an_offset_out_of_range_is_told(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)

    async def run() -> None:
        async with consumer_of(broker, auto_offset_reset="none") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek(TopicPartition(topic, 0), 1000)
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.getone()

    asyncio.run(asyncio.wait_for(run(), SECONDS))


@proves("T2")
def test_a_consumer_at_the_end_is_woken_by_the_next_record(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)

    async def run() -> bytes | None:
        async with consumer_of(
            broker, fetch_max_wait_ms=LONG_WAIT_MS, request_timeout_ms=LONG_WAIT_MS + 30_000
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert await consumer.getmany(timeout_ms=1000) == {}
            async with producer_of(broker) as producer:
                await producer.send_and_wait(topic, b"wake up")
            value: bytes | None = (await asyncio.wait_for(consumer.getone(), WOKEN_SECONDS)).value
            return value

    assert asyncio.run(run()) == b"wake up"


@pytest.mark.full
@proves("T3", "T7")
@pytest.mark.parametrize("way", ways(WAYS_TO_SHARE, "roundrobin"))
def test_members_come_go_and_crash_and_each_record_is_read_once(
    broker: Broker, topic: str, group: str, way: str
) -> None:
    strategy = {"partition_assignment_strategy": WAYS_TO_SHARE[way]}
    members_come_go_and_crash(broker, "aiokafka", group, topic, **QUICK, **strategy)


@proves("T7")
def test_a_group_resumes_where_it_committed(broker: Broker, topic: str, group: str) -> None:
    create(broker.bootstrap, topic, 1)
    produce_round(broker.bootstrap, topic, "r", 1)
    partition = TopicPartition(topic, 0)

    async def run() -> None:
        async with consumer_of(broker, topic, group_id=group, **QUICK) as consumer:
            await read(consumer, 10)
            await consumer.commit({partition: (10, "ten of them")})
            assert await consumer.committed(partition) == 10
        async with consumer_of(broker, topic, group_id=group, **QUICK) as consumer:
            assert (await read(consumer, 1))[0].offset == 10

    asyncio.run(run())


@proves("T3")
def test_a_new_topic_that_matches_a_pattern_is_picked_up(broker: Broker, topic: str, group: str) -> None:
    create(broker.bootstrap, f"{topic}.first", 1)

    async def run() -> set[str]:
        async with consumer_of(broker, group_id=group, **QUICK) as consumer:
            consumer.subscribe(pattern=f"^{topic}\\..*")

            async def topics() -> set[str]:
                await consumer.getmany(timeout_ms=50)
                return {partition.topic for partition in consumer.assignment()}

            await eventually(topics, {f"{topic}.first"})
            create(broker.bootstrap, f"{topic}.second", 1)
            await eventually(topics, {f"{topic}.first", f"{topic}.second"})
            produce_round(broker.bootstrap, f"{topic}.second", "new", 1)
            return {record.topic for record in await read(consumer, 40)}

    assert asyncio.run(run()) == {f"{topic}.second"}


@proves("T3")
def test_a_static_member_comes_back_to_what_it_had(broker: Broker, topic: str, group: str) -> None:
    create(broker.bootstrap, topic, 2)
    static = {"group_id": group, "group_instance_id": "same", **QUICK}

    async def run() -> None:
        for _ in range(2):
            async with consumer_of(broker, topic, **static) as consumer:

                async def held(consumer: AIOKafkaConsumer = consumer) -> int:
                    await consumer.getmany(timeout_ms=50)
                    return len(consumer.assignment())

                await eventually(held, 2)

    asyncio.run(run())


@proves("T10")
def test_topics_configs_and_records_are_administered(broker: Broker, topic: str) -> None:
    async def run() -> None:
        async with admin_of(broker) as admin:
            made = await admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "86400000"})])
            assert made.topic_errors[0][:2] == (topic, 0)

            async def partitions() -> int:
                return len((await admin.describe_topics([topic]))[0]["partitions"])

            await eventually(partitions, 2)
            assert topic in await admin.list_topics()
            await admin.create_partitions({topic: NewPartitions(3)})
            await eventually(partitions, 3)
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            entries = (await admin.describe_configs([resource]))[0].resources[0][4]
            assert {entry[0]: entry[1] for entry in entries}["retention.ms"] == "86400000"
            shorter = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "5000"})
            assert (await admin.alter_configs([shorter]))[0].resources[0][0] == 0
            produce_round(broker.bootstrap, topic, "r", 1)
            gone = await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=7)})
            assert gone == {TopicPartition(topic, 0): 7}
            assert (await admin.delete_topics([topic])).topic_error_codes == [(topic, 0)]
            cluster = await admin.describe_cluster()
            assert [one["port"] for one in cluster["brokers"]] == [broker.port]

    asyncio.run(run())


@proves("T3", "T10")
def test_groups_are_listed_and_described(broker: Broker, topic: str, group: str) -> None:
    create(broker.bootstrap, topic, 1)

    async def run() -> None:
        async with (
            consumer_of(broker, topic, group_id=group, **QUICK) as consumer,
            admin_of(broker) as admin,
        ):
            partition = TopicPartition(topic, 0)
            await consumer.commit({partition: (5, "five")})
            assert (group, "consumer") in await admin.list_consumer_groups()
            described = (await admin.describe_consumer_groups([group]))[0].groups[0]
            assert described[1:4] == (group, "Stable", "consumer")
            offsets = await admin.list_consumer_group_offsets(group)
            assert {place: kept.offset for place, kept in offsets.items()} == {partition: 5}

    asyncio.run(run())
