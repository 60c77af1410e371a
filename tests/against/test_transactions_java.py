"""Transactions with the Java client 4.3, and what its AdminClient is told of them."""

from __future__ import annotations

import pytest

from against.brokers import Broker
from against.java_machine import JavaMachine
from against.rebalancing import create
from proving import proves

pytestmark = pytest.mark.external


@proves("F2", "T10")
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
    assert seen["described"] == ["Ongoing", f"[{topic}-0]", 30000]
    assert (seen["listed"], seen["open_since"], seen["still_open"]) == ("Ongoing", 0, False)
    assert seen["fenced"] != "committed"
