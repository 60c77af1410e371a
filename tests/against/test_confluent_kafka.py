"""confluent-kafka (librdkafka) writes and reads: payloads, compression, sizes, acks, idempotence, positions, a broker
that restarts.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from against.brokers import Broker
from against.confluent import SECONDS, consumer_of, producer_of, read, read_partition, reports
from against.rebalancing import create
from proving import proves

LONG_WAIT = {"fetch_wait_max_ms": 250_000, "socket_timeout_ms": 280_000}  # brokers may end it after a minute
WOKEN_SECONDS = 50.0  # before that: by the record and nothing else


@proves("T1", "T10")
def test_keys_values_headers_nulls_and_timestamps_come_back_as_they_were_sent(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    sent = [
        (b"key", b"value", [("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None)], 1_700_000_000_000),
        (None, b"no key", None, 1_700_000_000_001),
        (b"no value", None, None, 1_600_000_000_000),
        (b"", b"", None, 1_700_000_000_002),
        (None, None, [("only", "ä€".encode())], 1_700_000_000_003),
    ]
    producer = producer_of(broker)
    for key, value, headers, timestamp in sent:
        producer.produce(topic, key=key, value=value, headers=headers, timestamp=timestamp)
    assert producer.flush(SECONDS) == 0
    got = read_partition(broker, topic, len(sent))
    assert [(m.key(), m.value(), m.headers(), m.timestamp()[1]) for m in got] == sent
    assert [m.timestamp()[0] for m in got] == [TIMESTAMP_CREATE_TIME] * len(sent)
    assert [m.offset() for m in got] == list(range(len(sent)))


@proves("T1", "T10")
def test_every_partition_keeps_its_own_dense_order(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 3)
    producer = producer_of(broker, linger_ms=5, batch_num_messages=7)
    for number in range(300):
        producer.produce(topic, value=b"%d" % number, partition=number % 3)
    assert producer.flush(SECONDS) == 0
    for partition in range(3):
        got = read_partition(broker, topic, 100, partition)
        assert [m.offset() for m in got] == list(range(100))
        assert [int(m.value()) for m in got] == list(range(partition, 300, 3))


@proves("T1")
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_come_back(broker: Broker, topic: str, compression: str) -> None:
    create(broker.bootstrap, topic, 1)
    producer = producer_of(broker, compression_type=compression, linger_ms=20)
    values = [b"the same words again %d " % number * 20 for number in range(200)]
    for value in values:
        producer.produce(topic, key=b"k", value=value, headers=[("h", value[:10])])
    assert producer.flush(SECONDS) == 0
    assert [m.value() for m in read_partition(broker, topic, len(values))] == values


@proves("T1")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_ack_delivers(broker: Broker, topic: str, acks: str) -> None:
    create(broker.bootstrap, topic, 1)
    delivered: list[tuple[KafkaError | None, Message]] = []
    producer = producer_of(broker, acks=acks)
    for number in range(50):
        producer.produce(topic, value=b"%d" % number, on_delivery=reports(delivered))
    assert producer.flush(SECONDS) == 0
    assert [error for error, _ in delivered] == [None] * 50
    assert [int(m.value()) for m in read_partition(broker, topic, 50)] == list(range(50))


@proves("T1")
def test_an_idempotent_producer_numbers_batches_without_gap_or_repeat(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 2)
    delivered: list[tuple[KafkaError | None, Message]] = []
    producer = producer_of(broker, enable_idempotence=True, batch_num_messages=3, linger_ms=1)
    for number in range(400):
        producer.produce(topic, value=b"%d" % number, partition=number % 2, on_delivery=reports(delivered))
    assert producer.flush(SECONDS) == 0
    assert [error for error, _ in delivered] == [None] * 400
    for partition in range(2):
        got = read_partition(broker, topic, 200, partition)
        assert [int(m.value()) for m in got] == list(range(partition, 400, 2))


@proves("T1")
def test_a_message_up_to_the_limit_is_taken_and_one_above_is_refused(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1, max_message_bytes="3000000")
    delivered: list[tuple[KafkaError | None, Message]] = []
    producer = producer_of(broker, message_max_bytes=8_000_000)
    producer.produce(topic, value=b"x" * 2_999_000, on_delivery=reports(delivered))
    assert producer.flush(SECONDS) == 0
    producer.produce(topic, value=b"y" * 3_000_001, on_delivery=reports(delivered))
    assert producer.flush(SECONDS) == 0
    producer.produce(topic, value=b"after", on_delivery=reports(delivered))
    assert producer.flush(SECONDS) == 0
    assert [error and error.code() for error, _ in delivered] == [None, KafkaError.MSG_SIZE_TOO_LARGE, None]
    got = read_partition(broker, topic, 2)
    assert [(m.offset(), len(m.value())) for m in got] == [(0, 2_999_000), (1, 5)]


@proves("T1")
def test_the_default_limit_of_a_message_is_kafkas(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    delivered: list[tuple[KafkaError | None, Message]] = []
    producer = producer_of(broker, message_max_bytes=8_000_000, linger_ms=0)
    for size in (1_048_576, 1_048_588 + 1):
        producer.produce(
            topic, value=b"x" * (size - 100 if size == 1_048_576 else size), on_delivery=reports(delivered)
        )
        assert producer.flush(SECONDS) == 0
    assert [error and error.code() for error, _ in delivered] == [None, KafkaError.MSG_SIZE_TOO_LARGE]


@proves("T1")
def test_a_fetch_smaller_than_a_batch_still_makes_progress(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    producer = producer_of(broker, linger_ms=50)
    for number in range(20):
        producer.produce(topic, value=b"%02d" % number * 20_000)
    assert producer.flush(SECONDS) == 0
    limits = {"fetch_message_max_bytes": 1000, "fetch_max_bytes": 1_000_000, "receive_message_max_bytes": 100_000_000}
    assert [int(m.value()[:2]) for m in read_partition(broker, topic, 20, **limits)] == list(range(20))


@proves("T1")
def test_an_unknown_topic_is_made_by_the_first_produce(broker: Broker, topic: str) -> None:
    producer = producer_of(broker)
    producer.produce(topic, value=b"first")
    assert producer.flush(SECONDS) == 0
    assert [m.value() for m in read_partition(broker, topic, 1)] == [b"first"]


@proves("T7")
def test_a_consumer_seeks_anywhere_also_into_the_middle_of_a_batch(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    producer = producer_of(broker, linger_ms=100)
    for number in range(100):
        producer.produce(topic, value=b"%d" % number)
    assert producer.flush(SECONDS) == 0
    consumer = consumer_of(broker)
    consumer.assign([TopicPartition(topic, 0, 57)])
    assert int(read(consumer, 1)[0].value()) == 57
    for offset in (3, 99, 0, 42):
        consumer.seek(TopicPartition(topic, 0, offset))
        assert int(read(consumer, 1)[0].value()) == offset
    consumer.close()


@proves("T7")
def test_watermarks_say_where_the_log_begins_and_ends(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    consumer = consumer_of(broker)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS) == (0, 0)
    producer = producer_of(broker)
    for _ in range(7):
        producer.produce(topic, value=b"x")
    assert producer.flush(SECONDS) == 0
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS) == (0, 7)
    consumer.close()


@proves("T7")
def test_an_offset_out_of_range_is_told_or_reset_as_asked(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    producer = producer_of(broker)
    producer.produce(topic, value=b"x")
    assert producer.flush(SECONDS) == 0
    strict = consumer_of(broker, auto_offset_reset="error")
    strict.assign([TopicPartition(topic, 0, 1000)])
    with pytest.raises(KafkaException) as told:
        read(strict, 1)
    assert told.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
    strict.close()
    lenient = consumer_of(broker, auto_offset_reset="earliest")
    lenient.assign([TopicPartition(topic, 0, 1000)])
    assert read(lenient, 1)[0].offset() == 0
    lenient.close()


@proves("T7")
def test_offsets_are_found_by_time(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    producer = producer_of(broker, batch_num_messages=4, linger_ms=5)
    for number in range(50):
        producer.produce(topic, value=b"%d" % number, timestamp=1_700_000_000_000 + number * 1000)
    assert producer.flush(SECONDS) == 0
    consumer = consumer_of(broker)

    def offset_at(timestamp: int) -> int:
        found: int = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=SECONDS)[0].offset
        return found

    assert offset_at(1) == 0
    assert offset_at(1_700_000_000_000 + 17_000) == 17
    assert offset_at(1_700_000_000_000 + 17_001) == 18
    assert offset_at(1_700_000_000_000 + 49_000) == 49
    assert offset_at(1_700_000_000_000 + 49_001) in (-1, 50)
    consumer.assign([TopicPartition(topic, 0, offset_at(1_700_000_000_000 + 30_500))])
    assert int(read(consumer, 1)[0].value()) == 31
    consumer.close()


@proves("T1")
def test_append_time_replaces_the_producers_time(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1, message_timestamp_type="LogAppendTime")
    producer = producer_of(broker, compression_type="lz4")
    before = int(time.time() * 1000) - 1000
    for _ in range(5):
        producer.produce(topic, value=b"x", timestamp=1_000_000)
    assert producer.flush(SECONDS) == 0
    kinds, times = zip(*(m.timestamp() for m in read_partition(broker, topic, 5)), strict=True)
    assert set(kinds) == {TIMESTAMP_LOG_APPEND_TIME}
    assert all(before <= stamp <= before + 600_000 for stamp in times)


@proves("T2")
def test_a_consumer_at_the_end_is_woken_by_the_next_record(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    consumer = consumer_of(broker, **LONG_WAIT)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.consume(1, 1.0) == []
    producer = producer_of(broker)
    producer.produce(topic, value=b"wake up")
    assert producer.flush(SECONDS) == 0
    assert read(consumer, 1, seconds=WOKEN_SECONDS)[0].value() == b"wake up"
    consumer.close()


@proves("T2")
def test_fetch_min_bytes_holds_a_fetch_back_until_there_is_enough(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    consumer = consumer_of(broker, fetch_min_bytes=5_000, **LONG_WAIT)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.consume(1, 0.5) == []
    producer = producer_of(broker)
    producer.produce(topic, value=b"small")
    assert producer.flush(SECONDS) == 0
    assert consumer.consume(1, 1.0) == []
    producer.produce(topic, value=b"x" * 10_000)
    assert producer.flush(SECONDS) == 0
    assert [len(m.value()) for m in read(consumer, 2, seconds=WOKEN_SECONDS)] == [5, 10_000]
    consumer.close()


@proves("T1", "T6")
@pytest.mark.ends_broker
def test_clients_go_on_when_the_broker_restarts(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    producer = producer_of(broker, enable_idempotence=True, reconnect_backoff_max_ms=500)
    consumer = consumer_of(broker, reconnect_backoff_max_ms=500)
    consumer.assign([TopicPartition(topic, 0, 0)])
    for life in range(2):
        if life:
            broker.restart()
        for number in range(50):
            producer.produce(topic, value=b"%d" % (life * 50 + number))
        assert producer.flush(SECONDS) == 0
        got = read(consumer, 50)
        assert [(m.offset(), int(m.value())) for m in got] == [(n, n) for n in range(life * 50, life * 50 + 50)]
    consumer.close()


@proves("T1", "T6")
@pytest.mark.ends_broker
def test_nothing_acked_is_lost_when_the_broker_is_killed(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    delivered: list[tuple[KafkaError | None, Message]] = []
    producer = producer_of(broker, enable_idempotence=True, reconnect_backoff_max_ms=500)
    for number in range(100):
        producer.produce(topic, value=b"%d" % number, on_delivery=reports(delivered))
    assert producer.flush(SECONDS) == 0
    broker.kill()
    for number in range(100, 200):
        producer.produce(topic, value=b"%d" % number, on_delivery=reports(delivered))
    broker.start()
    assert producer.flush(SECONDS) == 0
    assert [error for error, _ in delivered] == [None] * 200
    assert [int(m.value()) for m in read_partition(broker, topic, 200)] == list(range(200))
