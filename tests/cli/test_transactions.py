"""`tidelog transactions`: what is open is seen, and can be ended, on any broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

from cli.command import Command
from contract import Broker
from proving import proves

SECONDS = 180.0


def opened(broker: Broker, topic: str) -> Producer:
    """A producer with an open transaction, under the topic's name."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(SECONDS)
    return producer


@proves("F2", "T10")
def test_an_open_transaction_is_listed_described_and_aborted(tidelog: Command, broker: Broker, topic: str) -> None:
    tidelog.ok("topics", "create", topic)
    producer = opened(broker, topic)
    listed = tidelog.ok("transactions", "--json").json
    assert {"id": topic, "state": "Ongoing"}.items() <= next(one for one in listed if one["id"] == topic).items()
    assert tidelog.ok("transactions", "list", f"{topic[:6]}*", "--quiet").lines == [topic]
    assert topic not in tidelog.ok("transactions", "list", "--state", "CompleteAbort", "--quiet").lines
    (described,) = tidelog.ok("transactions", "describe", topic, "--json").json
    assert (described["state"], described["partitions"], described["timeout_ms"]) == ("Ongoing", [f"{topic}[0]"], 60000)
    assert tidelog.ok("transactions", "describe", topic).lines[0] == f"{topic}  Ongoing"
    assert "nothing hangs" in tidelog.ok("transactions", "hanging", topic).lines
    asked = tidelog("transactions", "abort", topic)
    assert asked.code == 2 and "--yes" in asked.err
    tidelog.ok("transactions", "abort", topic, "--yes")
    with pytest.raises(KafkaException):
        producer.commit_transaction(SECONDS)
    (described,) = tidelog.ok("transactions", "describe", topic, "--json").json
    assert (described["state"], described["partitions"]) == ("Empty", [])


@proves("F2")
def test_an_id_that_nobody_has_is_told_and_does_not_come_to_be(tidelog: Command) -> None:
    for action in (["describe"], ["abort", "--yes"]):
        told = tidelog("transactions", action[0], "nobody", *action[1:])
        assert told.code == 1 and "TRANSACTIONAL_ID_NOT_FOUND" in told.err and "tidelog transactions" in told.err
    assert "nobody" not in tidelog.ok("transactions", "list", "--quiet").lines
