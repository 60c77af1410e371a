"""One data folder has one broker: a second one is refused, and learns whose it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proving import proves
from tidelog.broker.embedded import Broker
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.errors import TidelogError

SETTINGS = {"tidelog.log.level": "ERROR"}


def create(broker: Broker, name: str) -> None:
    with Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, name)


def names(broker: Broker) -> list[str]:
    with Cluster(broker.bootstrap) as cluster:
        return topics.names(cluster)


@proves("T6")
def test_a_second_broker_is_refused_with_the_pid_of_the_first_which_goes_on(tmp_path: Path) -> None:
    with Broker(tmp_path, settings=SETTINGS) as first:
        create(first, "before")
        files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
        with pytest.raises(TidelogError, match=rf"{tmp_path} .*process {first.pid}; stop that one"):
            Broker(tmp_path, settings=SETTINGS).start()
        assert {path: path.stat().st_mtime_ns for path in files} == files, "the second one touched the folder"
        create(first, "after")
        assert names(first) == ["after", "before"]


@proves("T6")
def test_the_folder_of_a_broker_that_was_killed_is_free(tmp_path: Path) -> None:
    first = Broker(tmp_path, settings=SETTINGS).start()
    create(first, "t")
    first.kill()
    with Broker(tmp_path, settings=SETTINGS) as second:
        assert names(second) == ["t"]


@proves("T6")
def test_two_brokers_in_one_process_do_not_share_a_folder_either(tmp_path: Path) -> None:
    with Broker(tmp_path, settings=SETTINGS, in_process=True):
        with pytest.raises(TidelogError, match=f"process {os.getpid()}"):
            Broker(tmp_path, settings=SETTINGS, in_process=True).start()
        with pytest.raises(TidelogError, match=f"process {os.getpid()}"):
            Broker(tmp_path, settings=SETTINGS).start()
    with Broker(tmp_path, settings=SETTINGS) as second:
        assert second.pid != os.getpid()
