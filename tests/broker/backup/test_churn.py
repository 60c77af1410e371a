"""Backups while topics come, go and come back under the same name: no group knows of what a topic does not have."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from broker.backup.test_under_load import SETTINGS, load, quiet
from proving import proves
from tidelog.broker.backup.restoring import restore
from tidelog.broker.backup.taking import take
from tidelog.broker.backup.verifying import verify
from tidelog.broker.embedded import Broker
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.errors import BrokerError
from tidelog.log.files import RealFiles

BACKUPS = 3
NAMES = ("a", "b", "c")


def churns(bootstrap: str, name: str) -> Callable[[threading.Event], None]:
    def work(stopped: threading.Event) -> None:
        at, rounds = TopicPartition(name, 0), 0
        with Cluster(bootstrap) as cluster:
            while not stopped.is_set():
                rounds += 1
                with suppress(BrokerError):  # its own deletion may overtake it
                    topics.create(cluster, name)
                    with Producer(cluster) as producer:
                        for number in range(rounds % 7 * 10 + 1):
                            producer.send(name, b"%d" % number)
                    groups.commit(cluster, f"group-{name}", {at: list_offsets(cluster, {at: LATEST})[at].offset})
                    if rounds % 2:
                        time.sleep(0.05)
                    topics.delete(cluster, name)
                    cluster.forget()

    return work


@pytest.mark.full
@proves("T6")
def test_no_group_knows_of_what_a_topic_does_not_have(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data, settings=SETTINGS) as broker, load(*(churns(broker.bootstrap, name) for name in NAMES)):
        for number in range(BACKUPS):
            time.sleep(0.3)
            take(str(data), str(tmp_path / f"saved-{number}"), RealFiles(), quiet)
    for number in range(BACKUPS):
        saved, new = str(tmp_path / f"saved-{number}"), tmp_path / f"new-{number}"
        assert verify(saved, RealFiles(), quiet).faults == ()
        restore(saved, str(new), RealFiles(), quiet)
        with Broker(new, settings=SETTINGS) as again, Cluster(again.bootstrap) as cluster:
            there = set(topics.names(cluster))
            for name in NAMES:
                for at, one in groups.committed(cluster, f"group-{name}").items():
                    assert at.topic in there, f"backup {number}: {at} is known to a group and to nobody else"
                    end = list_offsets(cluster, {at: LATEST})[at].offset
                    assert one.offset <= end, f"backup {number}: {at} ends at {end}"
