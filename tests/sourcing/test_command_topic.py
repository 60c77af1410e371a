"""What others put into the command topic: wrong places, values that cannot be told, commands that are cut. Each gets an
answer, and the next command is decided.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from threading import Event
from typing import Any

import pytest

from against.patience import eventually
from contract import Broker
from proving import proves
from sourcing.seats import Cancel, Reserve, Seat, seats
from tidelog.client.admin import configs, topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.errors import BrokerError, Disconnected, OutcomeUnknown, UsageError
from tidelog.sourcing import EventStore
from tidelog.sourcing.checking import check
from tidelog.sourcing.command_reading import CommandReader
from tidelog.sourcing.store_topics import place_of

pytestmark = pytest.mark.timeout(300)

PARTITIONS = 4
SMALL = {"max.message.bytes": "3000"}
WITHIN_S = 60.0


def put(
    cluster: Cluster, name: str, partition: int, entity: str, id: str, type: str, value: Any, to: str | None = None
) -> None:
    texts = {"type": type, "command": id, "to": id if to is None else to}
    headers: list[tuple[str, bytes | None]] = [(header, text.encode()) for header, text in texts.items()]
    data = json.dumps(value).encode()
    with Producer(cluster) as producer:
        producer.send(f"{name}.commands", data, key=entity.encode(), headers=headers, partition=partition)


def answers(cluster: Cluster, name: str, *to: str, partitions: int = PARTITIONS) -> Mapping[str, Any]:
    """Returns when all that are named have been answered."""
    consumer = Consumer(cluster, read_committed=True)
    consumer.assign({TopicPartition(f"{name}.replies", number): 0 for number in range(partitions)})
    found: dict[str, Any] = {}
    while not found.keys() >= set(to):
        for fetched in consumer.fetch():
            for row in fetched.rows():
                found[(dict(row.headers)["to"] or b"").decode()] = json.loads(row.value or b"")
    return found


@proves("E4", "es.2", "hostile")
def test_a_command_in_a_wrong_partition_is_decided_by_the_owner_of_its_entity(
    broker: Broker, topic: str, cluster: Cluster
) -> None:
    with EventStore(topic, seats(), bootstrap=broker.bootstrap, partitions=PARTITIONS) as store:
        for number in range(PARTITIONS):
            put(cluster, topic, number, "A1", f"c{number}", "Reserve", {"who": f"p{number}"})
        told = answers(cluster, topic, *(f"c{number}" for number in range(PARTITIONS)))
        assert sorted(next(iter(one)) for one in told.values()) == ["receipt", "refused", "refused", "refused"]
        assert store.state("A1").version == 1
        assert store.figures()["handed_on"] == PARTITIONS - 1
        right = place_of(topic, b"A1", PARTITIONS).partition
        assert {one["receipt"]["partition"] for one in told.values() if "receipt" in one} == {right}
    assert check(cluster, topic, seats().types) == (1, [])


@proves("E4", "hostile")
def test_a_command_that_cannot_be_handed_on_is_refused_with_the_remedy(
    broker: Broker, topic: str, cluster: Cluster
) -> None:
    with EventStore(topic, seats(), bootstrap=broker.bootstrap, partitions=PARTITIONS) as store:
        wrong = (place_of(topic, b"A1", PARTITIONS).partition + 1) % PARTITIONS
        several = [
            {"entity": f"A{n}", "type": "Reserve", "command": f"t/{n}", "expected": None, "value": {"who": "anna"}}
            for n in range(9)
        ]
        put(cluster, topic, wrong, "A0", "t", "tidelog.together", several)
        headers: list[tuple[str, bytes | None]] = [
            ("type", b"Reserve"),
            ("command", b"c"),
            ("to", b"c"),
            ("handed-on", b"1"),
        ]
        with Producer(cluster) as producer:
            producer.send(f"{topic}.commands", b'{"who":"anna"}', key=b"A1", headers=headers, partition=wrong)
        told = answers(cluster, topic, "t", "c")
        assert told["t"]["error"]["type"] == told["c"]["error"]["type"] == "UsageError"
        assert "partitions=1" in told["t"]["error"]["message"]
        assert "partitioner=murmur2_random" in told["c"]["error"]["message"]
        assert store.state("A1").state == Seat()
        assert store.send("A1", Reserve("bob")).version == 1


@proves("E1", "E4")
def test_by_topic_a_member_that_is_not_known_is_passed_over_unless_the_sender_is_strict(
    broker: Broker, topic: str, cluster: Cluster
) -> None:
    value = b'{"who":"anna","since":2019}'
    with EventStore(topic, seats(), bootstrap=broker.bootstrap, partitions=1) as store, Producer(cluster) as producer:
        for id, strict in (("strict", b"1"), ("old", b"")):
            name = id.encode()
            headers: list[tuple[str, bytes | None]] = [("type", b"Reserve"), ("command", name), ("to", name)]
            headers.append(("strict", strict))
            producer.send(f"{topic}.commands", value, key=b"A1", headers=headers, partition=0)
        producer.flush()
        told = answers(cluster, topic, "strict", "old", partitions=1)
        said = {"type": "UsageError", "message": "Reserve does not have a member 'since'; it has who"}
        assert told["strict"] == {"error": said}
        assert told["old"]["receipt"]["version"] == store.state("A1").version == 1


def single(broker: Broker, name: str, **more: Any) -> EventStore[Seat]:
    return EventStore(name, seats(), bootstrap=broker.bootstrap, partitions=1, **more)


@proves("E4", "hostile")
def test_an_answer_that_cannot_be_told_is_said_to_be_so_and_the_next_command_is_decided(
    broker: Broker, topic: str, cluster: Cluster
) -> None:
    with single(broker, topic) as store:
        store.send("A1", Reserve("x" * 9_000))
    configs.alter(cluster, configs.TOPIC, f"{topic}.replies", set=SMALL)
    with single(broker, topic) as store:
        together = [
            {"entity": "A2", "type": kind, "command": f"t/{n}", "expected": None, "value": {"who": "anna"}}
            for n, kind in enumerate(["Reserve", "Cancel"] * 20)
        ]
        put(cluster, topic, 0, "A2", "together", "tidelog.together", together)
        put(cluster, topic, 0, "A1", "state", "tidelog.state", {})
        put(cluster, topic, 0, "A1", "refused", "Reserve", {"who": "anna"})
        put(cluster, topic, 0, "A2", "next", "Reserve", {"who": "bob"})
        told = answers(cluster, topic, "together", "state", "refused", "next", partitions=1)
        for to, kind, words in (
            ("together", "OutcomeUnknown", "it is done"),
            ("state", "UsageError", "nothing was done"),
            ("refused", "UsageError", "nothing was done"),
        ):
            assert told[to]["error"]["type"] == kind
            assert words in told[to]["error"]["message"]
            assert f"too many for {topic}.replies" in told[to]["error"]["message"]
        assert told["next"]["receipt"]["version"] == 41
        with EventStore(topic, seats(), bootstrap=broker.bootstrap, serve=False) as elsewhere:
            with pytest.raises(UsageError, match="nothing was done"):
                elsewhere.state("A1")
            with pytest.raises(OutcomeUnknown, match="it is done"):
                elsewhere.send_together([("A3", Reserve("anna")), ("A3", Cancel("anna"))] * 20)
            assert elsewhere.state("A3").version == 40


@proves("E4", "hostile")
def test_names_that_cannot_be_written_stop_no_owner(tidelog_broker: Broker, topic: str) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster, single(tidelog_broker, topic) as store:
        lone = [{"entity": "A1", "type": "Reserve", "command": "\ud800", "expected": None, "value": {"who": "anna"}}]
        put(cluster, topic, 0, "A1", "a", "tidelog.together", lone)
        put(cluster, topic, 0, "A1", "b", "Reserve", {"who": "anna"}, to="t" * 10_001)
        put(cluster, topic, 0, "A1", "c", "Reserve", {"who": "bob"})
        assert answers(cluster, topic, "c", partitions=1).keys() == {"c"}
        assert store.state("A1").state.holder == "bob"
        with pytest.raises(UsageError, match="UTF-8"):
            store.send("A1", Reserve("anna"), id="\ud800")


@proves("E4")
def test_what_cannot_be_sent_is_its_senders_to_know_and_others_go_on(broker: Broker, store: EventStore[Seat]) -> None:
    with EventStore(store.name, seats(), bootstrap=broker.bootstrap, serve=False) as elsewhere:
        answers = [
            elsewhere.send_soon("A1", Reserve("anna"), metadata={"at": datetime.now()}),
            elsewhere.send_soon("A2", Reserve("anna")),
            elsewhere.send_soon("A3", Reserve("x" * 2_000_000)),
            elsewhere.send_soon("A4", Reserve("anna")),
        ]
        with pytest.raises(UsageError, match="datetime is not JSON"):
            answers[0].result(WITHIN_S)
        with pytest.raises(BrokerError, match=r"max\.message\.bytes"):
            answers[2].result(WITHIN_S)
        assert [answers[n].result(WITHIN_S).version for n in (1, 3)] == [1, 1]
        assert elsewhere.send("A3", Reserve("bob")).version == 1


@proves("E4", "F3")
def test_an_answer_that_came_while_the_connection_was_lost_is_found(
    broker: Broker, store: EventStore[Seat], monkeypatch: pytest.MonkeyPatch
) -> None:
    losing, entered, original = Event(), Event(), Consumer.fetch

    def fetch(consumer: Consumer) -> Any:
        if losing.is_set() and any(at.topic == store.topics.replies for at in consumer.positions):
            entered.set()
            eventually(lambda: store.find("A2", "c"), lambda found: found is not None)
            losing.clear()
            raise Disconnected("the test has cut it")
        return original(consumer)

    with EventStore(store.name, seats(), bootstrap=broker.bootstrap, serve=False) as elsewhere:
        elsewhere.send("A1", Reserve("anna"))
        monkeypatch.setattr(Consumer, "fetch", fetch)
        losing.set()
        assert entered.wait(WITHIN_S), "what was asked before has come"
        assert elsewhere.send("A2", Reserve("anna"), id="c", timeout_s=WITHIN_S).version == 1
        assert not losing.is_set()


@proves("E4")
def test_commands_that_were_deleted_before_they_were_decided_hold_up_no_others(
    broker: Broker, topic: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As retention does to an owner that was paused for a day."""
    read, going_on = Event(), Event()

    def waits(_: CommandReader) -> None:
        read.set()
        going_on.wait(WITHIN_S)

    monkeypatch.setattr(CommandReader, "_wait_for_room", waits)
    at = TopicPartition(f"{topic}.commands", 0)
    with single(broker, topic) as store:
        put(cluster, topic, 0, "A1", "a", "Reserve", {"who": "anna"})
        assert read.wait(WITHIN_S)
        put(cluster, topic, 0, "A2", "b", "Reserve", {"who": "anna"})
        topics.delete_records(cluster, {at: list_offsets(cluster, {at: LATEST})[at].offset})
        put(cluster, topic, 0, "A3", "c", "Reserve", {"who": "anna"})
        going_on.set()
        assert answers(cluster, topic, "a", "c", partitions=1).keys() == {"a", "c"}
        assert [store.state(f"A{n}").version for n in (1, 2, 3)] == [1, 0, 1]
    assert "from offset 1 to 2 were deleted" in caplog.text
