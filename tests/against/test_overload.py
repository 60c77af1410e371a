"""Overload, as librdkafka and Java meet it: they wait, lose nothing that was acked, and are told of the rest."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from against.java_machine import JavaMachine
from against.patience import eventually
from against.rebalancing import create
from against.tidelog_process import TidelogProcess
from proving import proves
from tidelog.client import Cluster
from tidelog.control.status import read_status

LIMIT = 1000
BATCH = 200
COUNT = 12_000
READ_AT_ONCE = 50
PAUSE_S = 0.02
JAVA_BATCH = 200  # records of a hundred bytes in its 16 KB, and a few more
MEMORY_MAX = 48 << 20
BLOCK = {
    "tidelog_overload_policy": "block",
    "tidelog_overload_records": str(LIMIT),
    "tidelog_overload_groups": "billing",
}


class SlowReader(Thread):
    """Reads a little, commits it, and rests: two thousand a second at the most. What it had is in `read`."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.read: list[int] = []
        self.furthest = 0
        self._topic = topic
        self._over = Event()
        settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 45_000}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", **settings})
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def run(self) -> None:
        at = TopicPartition(self._topic, 0)
        while not self._over.is_set():
            messages = [one for one in self._consumer.consume(READ_AT_ONCE, 0.2) if one.error() is None]
            if not messages:
                continue
            self.read += [int((one.value() or b"").split()[0]) for one in messages]
            committed = (messages[-1].offset() or 0) + 1
            end = self._consumer.get_watermark_offsets(at, cached=True)[1]
            self.furthest = max(self.furthest, end - committed)
            self._commit(committed)
            time.sleep(PAUSE_S)
        self._consumer.close()

    def _commit(self, offset: int) -> None:
        try:
            self._consumer.commit(offsets=[TopicPartition(self._topic, 0, offset)], asynchronous=False)
        except Exception:
            return  # the broker is away; the next one counts

    def end(self) -> None:
        self._over.set()
        self.join()


class Sent:
    """What librdkafka says became of what was sent."""

    def __init__(self, bootstrap: str, **settings: object) -> None:
        usual = {"batch.num.messages": BATCH, "linger.ms": 5, "request.timeout.ms": 2000}
        self.acked: list[int] = []
        self.failed: list[int] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, **usual, **settings})

    def send(self, topic: str, numbers: range) -> None:
        for number in numbers:
            while True:
                try:
                    self._producer.produce(topic, f"{number} {0:0100}", on_delivery=self._told)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(180) == 0

    def _told(self, error: KafkaError | None, message: object) -> None:
        if error is None:
            self.acked.append(int(message.value().split()[0]))  # type: ignore[attr-defined]
        else:
            self.failed.append(error.code())


def memory(process: TidelogProcess) -> int:
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096


def figures(process: TidelogProcess, topic: str) -> dict[str, object]:
    with Cluster(process.bootstrap) as cluster:
        told = [one.figures["overload"] for one in read_status(cluster) if one.kind == "broker"]
    return told[0].get(topic, {}) if told else {}


@proves("T5")
@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"enable.idempotence": True}, {"acks": "all"}, {"acks": 0}], ids=str)
def test_a_fast_producer_goes_at_the_pace_of_its_slow_consumer_and_nothing_is_lost(
    tidelog_process: TidelogProcess, topic: str, settings: dict[str, object]
) -> None:
    broker = tidelog_process
    create(broker.bootstrap, topic, 1, **BLOCK)
    sent, reader = Sent(broker.bootstrap, **settings), SlowReader(broker.bootstrap, topic)
    reader.start()
    sent.send(topic, range(1000))
    before = memory(broker)
    sent.send(topic, range(1000, COUNT))
    sent.flush()
    if settings.get("acks") != 0:
        assert len(reader.read) >= COUNT - 2 * LIMIT - BATCH, "it was done when the reader was nearly done"
    eventually(lambda: len(set(reader.read)), lambda count: count == COUNT)
    reader.end()
    assert (sent.failed, len(sent.acked)) == ([], COUNT)
    assert reader.furthest <= 2 * LIMIT + 2 * BATCH
    assert memory(broker) - before < MEMORY_MAX
    assert eventually(lambda: figures(broker, topic))["held"]
    if "enable.idempotence" in settings:
        assert reader.read == list(range(COUNT)), "each once, in order"


@proves("T5")
@pytest.mark.slow
def test_a_broker_that_is_killed_in_between_loses_nothing_that_was_acked(
    tidelog_process: TidelogProcess, topic: str
) -> None:
    broker = tidelog_process
    create(broker.bootstrap, topic, 1, **BLOCK)
    sent, reader = Sent(broker.bootstrap, **{"enable.idempotence": True}), SlowReader(broker.bootstrap, topic)
    reader.start()
    sending = Thread(target=sent.send, args=(topic, range(6000)))
    sending.start()
    eventually(lambda: len(reader.read), lambda count: count > 2000)
    broker.kill()
    broker.start()
    sending.join()
    sent.flush()
    eventually(lambda: len(set(reader.read)), lambda count: count == 6000)
    reader.end()
    assert (sent.failed, sorted(set(sent.acked))) == ([], list(range(6000)))
    assert sorted(set(reader.read)) == list(range(6000))


@proves("T5")
@pytest.mark.slow
def test_who_moves_records_of_a_topic_into_itself_by_transactions_does_not_wait_for_itself(
    tidelog_process: TidelogProcess, topic: str
) -> None:
    """Nobody else reads: held, neither its reading nor its writing could go on."""
    broker, rounds, at_once = tidelog_process, 12, 200
    create(broker.bootstrap, topic, 1, **BLOCK)
    sent = Sent(broker.bootstrap, **{"message.timeout.ms": 1500})
    sent.send(topic, range(2 * LIMIT + BATCH + 1000))
    sent.flush()
    assert set(sent.failed) == {KafkaError._MSG_TIMED_OUT}, "everybody else is refused by now"
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    mover = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "message.timeout.ms": 10_000})
    mover.init_transactions(60)
    moved = 0
    for _ in range(rounds):
        messages = eventually(lambda: [one for one in consumer.consume(at_once, 1.0) if one.error() is None])
        mover.begin_transaction()
        for message in messages:
            mover.produce(topic, message.value())
        moved += len(messages)
        mover.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 60
        )
        mover.commit_transaction(60)
    consumer.close()
    assert end_of(broker, topic) == len(sent.acked) + moved + rounds  # a marker each


@proves("T5")
@pytest.mark.external
@pytest.mark.story
@pytest.mark.parametrize("idempotent", ["true", pytest.param("false", marks=pytest.mark.twin)])
def test_javas_producer_goes_at_the_pace_of_its_slow_consumer_and_nothing_is_lost(
    tidelog_process: TidelogProcess, java: JavaMachine, topic: str, idempotent: str
) -> None:
    broker = tidelog_process
    create(broker.bootstrap, topic, 1, **BLOCK)
    reader = SlowReader(broker.bootstrap, topic)
    reader.start()
    seen = java.run("Records", broker.bootstrap, "hurry", topic, str(COUNT), idempotent, "120000").json()
    assert (seen["acked"], seen["failed"]) == (COUNT, {})
    assert len(reader.read) >= COUNT - 2 * LIMIT - 2 * JAVA_BATCH
    eventually(lambda: len(set(reader.read)), lambda count: count == COUNT)
    reader.end()
    assert reader.furthest <= 2 * LIMIT + 2 * JAVA_BATCH
    if idempotent == "true":
        assert reader.read == list(range(COUNT)), "each once, in order"


@proves("T5")
@pytest.mark.parametrize("idempotent", [True, False])
def test_when_its_time_is_over_librdkafka_says_what_was_not_stored(
    tidelog_process: TidelogProcess, topic: str, idempotent: bool
) -> None:
    """Nobody reads; the group has committed once, so that it is waited for."""
    broker = tidelog_process
    create(broker.bootstrap, topic, 1, **BLOCK)
    sent = Sent(broker.bootstrap, **{"enable.idempotence": idempotent, "message.timeout.ms": 3000})
    sent.send(topic, range(4000))
    sent.flush()
    assert set(sent.failed) == {KafkaError._MSG_TIMED_OUT}
    assert 2 * LIMIT < len(sent.acked) <= 2 * LIMIT + 2 * BATCH
    assert end_of(broker, topic) == len(sent.acked) == 4000 - len(sent.failed)


@proves("T5")
@pytest.mark.external
def test_when_its_time_is_over_java_says_what_was_not_stored(
    tidelog_process: TidelogProcess, java: JavaMachine, topic: str
) -> None:
    broker = tidelog_process
    create(broker.bootstrap, topic, 1, **BLOCK)
    seen = java.run("Records", broker.bootstrap, "hurry", topic, "4000", "true", "3000").json()
    assert list(seen["failed"]) == ["TimeoutException"]
    assert end_of(broker, topic) == seen["acked"] == 4000 - seen["failed"]["TimeoutException"]


def end_of(broker: TidelogProcess, topic: str, spec: OffsetSpec | None = None) -> int:
    at = TopicPartition(topic, 0)
    asked = {at: spec or OffsetSpec.latest()}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return int(admin.list_offsets(asked)[at].result(60).offset)


@proves("T5")
@pytest.mark.slow
def test_under_drop_memory_is_flat_and_what_each_group_lost_is_counted_exactly(
    tidelog_process: TidelogProcess, topic: str
) -> None:
    """One group never reads on, and one reads what there is after each burst. Seen and lost are all that was sent."""
    broker, rounds, burst = tidelog_process, 6, 20_000
    create(broker.bootstrap, topic, 1, tidelog_overload_policy="drop", tidelog_overload_records=str(LIMIT))
    at = TopicPartition(topic, 0, 0)
    reading = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "bootstrap.servers": broker.bootstrap}
    asleep, awake = Consumer({**reading, "group.id": "asleep"}), Consumer({**reading, "group.id": "awake"})
    for consumer in (asleep, awake):
        consumer.commit(offsets=[at], asynchronous=False)
    awake.assign([at])
    sent, seen, position, before = Sent(broker.bootstrap), 0, 0, 0
    for number in range(rounds):
        sent.send(topic, range(number * burst, (number + 1) * burst))
        sent.flush()
        end = (number + 1) * burst
        eventually(lambda: end_of(broker, topic, OffsetSpec.earliest()), lambda start, end=end: start == end - LIMIT)
        before = before or memory(broker)
        awake.seek(TopicPartition(topic, 0, position))
        while position < end:
            messages = [one for one in awake.consume(LIMIT, 0.5) if one.error() is None]
            seen += len(messages)
            position = (messages[-1].offset() or 0) + 1 if messages else position
        awake.commit(offsets=[TopicPartition(topic, 0, position)], asynchronous=False)
    assert seen == rounds * LIMIT
    wanted = {"asleep": rounds * burst - LIMIT, "awake": rounds * burst - seen}
    eventually(lambda: figures(broker, topic).get("lost"), lambda lost: lost == wanted)
    assert memory(broker) - before < MEMORY_MAX
    broker.kill()
    broker.start()
    sent.send(topic, range(10))
    sent.flush()
    wanted = {"asleep": wanted["asleep"] + 10, "awake": wanted["awake"]}
    eventually(lambda: figures(broker, topic).get("lost"), lambda lost: lost == wanted)
    asleep.close()
    awake.close()
