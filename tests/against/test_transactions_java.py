"""Transactions with the Java client 4.3, and what its AdminClient is told of them."""

from __future__ import annotations

import pytest

from against.brokers import Broker
from against.confluent import producer_of, read_partition
from against.java_machine import JavaMachine, run_alone
from against.rebalancing import create
from proving import proves

pytestmark = pytest.mark.external
SECONDS = 180.0
MESSAGES = 200
TOOLS = "org.apache.kafka.tools."


@proves("F2", "T10")
@pytest.mark.story
def test_java_commits_and_aborts_records_and_offsets(broker: Broker, java: JavaMachine, topic: str, group: str) -> None:
    create(broker.bootstrap, topic, 2)
    seen = java.run("Transactions", broker.bootstrap, "ends", topic, group).json()
    assert seen == {"committed": ["a", "c"], "offset": ord("c")}


@proves("F3")
def test_java_is_fenced_by_the_next_of_its_id(broker: Broker, java: JavaMachine, topic: str, group: str) -> None:
    create(broker.bootstrap, topic, 1)
    seen = java.run("Transactions", broker.bootstrap, "fencing", topic, group).json()
    assert seen["first"] in ("ProducerFencedException", "InvalidProducerEpochException")
    assert seen["committed"] == ["of the second"]


@proves("F2")
def test_java_runs_many_transactions_one_behind_the_other(
    broker: Broker, java: JavaMachine, topic: str, group: str
) -> None:
    create(broker.bootstrap, topic, 1)
    seen = java.run("Transactions", broker.bootstrap, "many", topic, group).json()
    assert seen == {"read": 133, "wrong": 0}


@proves("F2", "T10")
def test_the_admin_client_sees_transactions_and_ends_them(
    broker: Broker, java: JavaMachine, topic: str, group: str
) -> None:
    create(broker.bootstrap, topic, 1)
    seen = java.run("Transactions", broker.bootstrap, "administration", topic, group).json()
    assert seen["described"] == ["Ongoing", f"[{topic}-0]", 300000]
    assert (seen["listed"], seen["open_since"], seen["still_open"]) == ("Ongoing", 0, False)
    assert seen["fenced"] != "committed"


@proves("F2", "T10")
def test_kafkas_own_copier_copies_every_message_once_though_it_aborts_at_random(
    broker: Broker, topic: str, group: str
) -> None:
    copy = f"{topic}-copy"
    create(broker.bootstrap, topic, 1)
    create(broker.bootstrap, copy, 1)
    producer = producer_of(broker)
    for number in range(MESSAGES):
        producer.produce(topic, str(number), key=str(number), partition=0)
    producer.flush(SECONDS)
    places = ("--input-topic", topic, "--input-partition", "0", "--output-topic", copy)
    sizes = ("--max-messages", str(MESSAGES), "--transaction-size", "20", "--enable-random-aborts")
    names = ("--broker-list", broker.bootstrap, "--transactional-id", topic, "--consumer-group", group)
    done = run_alone(f"{TOOLS}TransactionalMessageCopier", *places, *sizes, *names)
    assert done.status == 0, done.out + done.err
    copied = read_partition(broker, copy, MESSAGES, isolation_level="read_committed")
    assert [int(message.value()) for message in copied] == list(range(MESSAGES))


@proves("F2", "T10")
def test_kafkas_own_tool_shows_transactions(broker: Broker, java: JavaMachine, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    producer = producer_of(broker, transactional_id=topic)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(SECONDS)

    def told(*arguments: str) -> list[list[str]]:
        turn = java.run(f"{TOOLS}TransactionsCommand", "--bootstrap-server", broker.bootstrap, *arguments)
        assert turn.status == 0, turn.out + turn.err
        return [line.split() for line in turn.lines()]

    [listed] = [row for row in told("list") if row[0] == topic]
    assert listed[-1] == "Ongoing"
    [header, described] = told("describe", "--transactional-id", topic)[-2:]
    shown = dict(zip(header, described, strict=False))
    assert (shown["TransactionalId"], shown["TransactionState"]) == (topic, "Ongoing")

    def opened() -> tuple[int, int]:
        [header, row] = told("describe-producers", "--topic", topic, "--partition", "0")[-2:]
        shown = dict(zip(header, row, strict=False))
        return int(shown["CurrentTransactionStartOffset"]), int(shown["LatestCoordinatorEpoch"])

    assert opened() == (0, -1), "no transaction has ended here before"
    producer.abort_transaction(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(SECONDS)
    assert opened() == (2, 0), "the epoch of the coordinator that ended the last one"
    producer.abort_transaction(SECONDS)
