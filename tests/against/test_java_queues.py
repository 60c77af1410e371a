"""Java's share consumer and Kafka's own command-line tool for share groups."""

from __future__ import annotations

import pytest

from against.brokers import Broker
from against.confluent import producer_of
from against.java_machine import JavaMachine, Turn
from against.queues import configure
from against.rebalancing import create
from proving import proves

pytestmark = pytest.mark.external
TOOLS = "org.apache.kafka.tools."
TOOL = f"{TOOLS}consumer.group.ShareGroupCommand"


@pytest.fixture
def queue(broker: Broker, topic: str, group: str) -> tuple[str, str]:
    """A topic with 10 records, and a group that begins with the first of them."""
    create(broker.bootstrap, topic, 1)
    configure(broker.bootstrap, group, share_auto_offset_reset="earliest", share_record_lock_duration_ms="1000")
    producer = producer_of(broker)
    for number in range(10):
        producer.produce(topic, str(number))
    assert producer.flush(180) == 0
    return topic, group


@proves("T4")
@pytest.mark.story
def test_javas_share_consumer_accepts_releases_and_rejects(
    broker: Broker, java: JavaMachine, queue: tuple[str, str]
) -> None:
    seen = java.run("Queues", broker.bootstrap, "acknowledge", *queue).json()
    assert seen == {"failed": False, "more": 0, "given": sorted([*(f"{n}/1" for n in range(10)), "3/2"])}


@proves("T4")
def test_javas_share_consumer_renews_its_locks(broker: Broker, java: JavaMachine, queue: tuple[str, str]) -> None:
    seen = java.run("Queues", broker.bootstrap, "renew", *queue).json()
    assert seen == {"lock": 1000, "others": 0, "failed": False}


@proves("T4")
def test_two_java_consumers_share_one_partition(broker: Broker, java: JavaMachine, queue: tuple[str, str]) -> None:
    seen = java.run("Queues", broker.bootstrap, "two", *queue).json()
    assert seen == {"given": "10 of 10", "both": True}


@proves("T4")
@pytest.mark.story
def test_kafkas_tool_lists_describes_resets_and_deletes_share_groups(
    broker: Broker, java: JavaMachine, queue: tuple[str, str]
) -> None:
    topic, group = queue

    def tool(*arguments: str) -> Turn:
        return java.run(TOOL, "--bootstrap-server", broker.bootstrap, *arguments)

    assert java.run("Queues", broker.bootstrap, "acknowledge", *queue).status == 0
    assert group in tool("--list").out.split()
    described = _table(tool("--describe", "--group", group))
    # Apache Kafka tells a start that may lie behind; nothing is left to do on either.
    assert described[topic][:3] == [group, topic, "0"] and described[topic][4] == "0"
    assert "Empty" in tool("--describe", "--group", group, "--state").out
    reset = tool("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert reset.status == 0, reset.out + reset.err
    assert _table(tool("--describe", "--group", group))[topic] == [group, topic, "0", "0", "10"]
    dropped = tool("--delete-offsets", "--group", group, "--topic", topic)
    assert dropped.status == 0 and "Error" not in dropped.out, dropped.out + dropped.err
    deleted = tool("--delete", "--group", group)
    assert deleted.status == 0 and "successful" in deleted.out, deleted.out + deleted.err
    assert group not in tool("--list").out.split()


@proves("T4")
def test_kafkas_console_and_performance_tools_take_each_record_of_a_queue_once(
    broker: Broker, java: JavaMachine, queue: tuple[str, str]
) -> None:
    topic, group = queue
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", group)
    shown = java.run(f"{TOOLS}consumer.ConsoleShareConsumer", *where, "--max-messages", "10", "--timeout-ms", "60000")
    assert sorted(shown.out.split()) == [str(number) for number in range(10)], shown.err
    producer = producer_of(broker)
    for number in range(10, 30):
        producer.produce(topic, str(number))
    assert producer.flush(180) == 0
    measured = java.run(f"{TOOLS}ShareConsumerPerformance", *where, "--num-records", "20")
    (heading, figures) = [line for line in measured.out.splitlines() if line.count(",") > 3]
    told = dict(zip(*(line.replace(" ", "").split(",") for line in (heading, figures)), strict=True))
    assert told["data.consumed.in.nMsg"] == "20", measured.out


def _table(turn: Turn) -> dict[str, list[str]]:
    """The tool's rows by topic: group, topic, partition, start offset, lag."""
    rows = [line.split() for line in turn.out.splitlines() if line.strip()]
    assert len(rows) > 1, turn.out + turn.err
    return {row[1]: row[:3] + row[-2:] for row in rows[1:]}
