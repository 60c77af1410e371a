"""Excision by a running broker: ordered by an admin client, noted, carried out, and finished after any crash."""

from __future__ import annotations

import fcntl
import os
import time
from json import loads
from pathlib import Path

import pytest

from log.test_excising import files_with
from proving import proves
from tidelog.broker.access import acls
from tidelog.broker.excision.order import OFFSETS_MAX, parse
from tidelog.client.admin import access, configs, excisions
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.errors import BrokerError, ConfigError
from tidelog.log.folder import BACKUP
from tidelog.testing.broker import TestBroker
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

SECRET = "alice@example.org"
AUDIT = "__tidelog.excisions"
WAIT_S = 30


def secret_files(data: Path) -> list[str]:
    return files_with(data, SECRET.encode())


def audit(broker: TestBroker) -> list[dict[str, object]]:
    return [loads(row.value or b"") for row in broker.records(AUDIT)]


def wait_for_no_copy(data: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while secret_files(data):
        assert time.monotonic() < deadline, secret_files(data)
        time.sleep(0.05)


@proves("E6", "es.21")
def test_an_order_takes_a_record_out_of_every_file_and_leaves_a_note(tidelog_broker: TestBroker) -> None:
    tidelog_broker.create_topic("mails", partitions=2)
    tidelog_broker.produce("mails", ["a", (SECRET, SECRET), "c"], partition=1)
    assert secret_files(tidelog_broker.data) != [], "the search finds what is there"
    excisions.excise(tidelog_broker.cluster, "mails", {1: [(1, 1)]}, "ticket 4711")
    assert secret_files(tidelog_broker.data) == []
    rows = tidelog_broker.records("mails", 1)
    assert [(row.offset, row.value) for row in rows] == [(0, b"a"), (2, b"c")]
    ordered, done = audit(tidelog_broker)
    assert (ordered["state"], done["state"], done["removed"]) == ("ordered", "done", 1)
    assert (done["topic"], done["partition"], done["offsets"]) == ("mails", 1, [[1, 1]])
    assert (done["reason"], done["by"]) == ("ticket 4711", "User:ANONYMOUS")
    tidelog_broker.produce("mails", ["d"], partition=1)
    tidelog_broker.restart()
    assert [row.offset for row in tidelog_broker.records("mails", 1)] == [0, 2, 3]
    assert secret_files(tidelog_broker.data) == []
    assert len(audit(tidelog_broker)) == 2


@proves("E6")
def test_an_order_is_not_a_setting(tidelog_broker: TestBroker) -> None:
    tidelog_broker.produce("mails", [SECRET])
    cluster = tidelog_broker.cluster
    excisions.excise(cluster, "mails", {0: [(0, 0)]}, "why", validate_only=True)
    assert secret_files(tidelog_broker.data) != []
    excisions.excise(cluster, "mails", {0: [(0, 0)]}, "why")
    found = configs.describe(cluster, configs.TOPIC, "mails")
    assert excisions.EXCISE not in {one.name for one in found}
    with pytest.raises(BrokerError, match="is an order, not a setting; send it in a request of its own"):
        configs.alter(cluster, configs.TOPIC, "mails", set={excisions.EXCISE: "0:0 why", "retention.ms": "1000"})
    with pytest.raises(BrokerError, match=r"unknown|not a"):
        tidelog_broker.create_topic("others", configs={excisions.EXCISE: "0:0 why"})


@proves("E6")
@pytest.mark.parametrize(
    ("topic", "order", "why"),
    [
        ("mails", "0:1 why", "offset 1 is not in partition 0 of mails, which ends at 1"),
        ("mails", "3:0 why", "mails has no partition 3; it has 0 to 0"),
        ("mails", "0:0", "has no reason"),
        ("mails", "zero why", "'zero' of tidelog.excise is not a place"),
        ("mails", "0:5-2 why", "is not a place"),
        ("nothing", "0:0 why", "'nothing' is not one"),
        ("__tidelog.groups", "0:0 why", "the broker's own decisions"),
    ],
)
def test_an_order_that_cannot_be_is_refused_and_not_noted(
    tidelog_broker: TestBroker, topic: str, order: str, why: str
) -> None:
    tidelog_broker.produce("mails", ["a"])
    with pytest.raises(BrokerError, match=why):
        configs.alter(tidelog_broker.cluster, configs.TOPIC, topic, set={excisions.EXCISE: order})
    assert audit(tidelog_broker) == []
    assert len(tidelog_broker.records("mails")) == 1


@proves("E6")
def test_places_are_read_once_each_and_in_bounds() -> None:
    found = parse("2:7,0:5-6,2:3-6,0:9   because\n of this ")
    assert found.places == {0: [(5, 6), (9, 9)], 2: [(3, 7)]}
    assert found.reason == "because of this"
    with pytest.raises(ConfigError, match="at most"):
        parse(f"0:0-{OFFSETS_MAX} why")


@proves("E6")
@pytest.mark.slow
def test_an_order_that_a_crash_cut_short_is_carried_out_after_the_next_start(tidelog_broker: TestBroker) -> None:
    """Killed at any moment. An order that was noted needs nobody to give it again."""
    finished = 0
    for number in range(12):
        topic = f"mails{number}"
        tidelog_broker.produce(topic, ["a" * 300, SECRET, "c"])
        noted = len(audit(tidelog_broker))
        connection = tidelog_broker.cluster.any_node()
        connection.send(_order(topic), IncrementalAlterConfigsResponse, patience_s=60)
        time.sleep(number * 0.002)
        tidelog_broker.kill()
        tidelog_broker.start()
        if len(audit(tidelog_broker)) == noted:  # it did not come so far, and is as if it had never been given
            excisions.excise(tidelog_broker.cluster, topic, {0: [(1, 1)]}, "again")
        else:
            finished += 1
        wait_for_no_copy(tidelog_broker.data)
        assert [row.offset for row in tidelog_broker.records(topic)] == [0, 2]
    assert finished > 0, "no order was noted before a crash"
    assert {one["state"] for one in audit(tidelog_broker)} == {"ordered", "done"}


def _order(topic: str) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name=excisions.EXCISE, config_operation=0, value="0:1 why")
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


@proves("E6")
def test_a_backup_that_is_taken_holds_up_the_word_that_all_is_gone(tidelog_broker: TestBroker) -> None:
    """It has second names of old files in the data folder."""
    tidelog_broker.produce("mails", ["a", SECRET])
    pins = tidelog_broker.data / BACKUP
    pins.mkdir()
    (found,) = (path for path in tidelog_broker.data.glob("*/*.log") if SECRET.encode() in path.read_bytes())
    os.link(found, pins / "file")
    held = os.open(pins, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    connection = tidelog_broker.cluster.any_node()
    sent = connection.send(_order("mails"), IncrementalAlterConfigsResponse, patience_s=60)
    time.sleep(0.3)
    with Cluster(tidelog_broker.bootstrap) as other:
        at = TopicPartition(AUDIT, 0)
        assert list_offsets(other, {at: LATEST})[at].offset == 1, "it is ordered, and not done"
    os.close(held)  # as a backup that was killed: the names stay, and are removed
    (result,) = connection.receive(sent).responses
    assert result.error_code == 0
    assert secret_files(tidelog_broker.data) == []


@proves("E6", "T10")
def test_only_who_may_alter_a_topic_may_excise_from_it(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": True}
    with TestBroker(tmp_path / "data", settings=settings) as broker:
        broker.produce("mails", [SECRET])
        broker.produce("others", ["a"])
        rules = [
            access.Acl(acls.TOPIC, acls.LITERAL, "mails", "User:ANONYMOUS", "*", operation, permission)
            for operation, permission in ((acls.ALL, acls.ALLOW), (acls.ALTER_CONFIGS, acls.DENY))
        ]
        access.create_acls(broker.cluster, rules)
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            excisions.excise(broker.cluster, "mails", {0: [(0, 0)]}, "why")
        assert secret_files(broker.data) != []
        excisions.excise(broker.cluster, "others", {0: [(0, 0)]}, "why")
