"""A capture that is taken away while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import pytest

import tidelog
from capture.databases import PostgresShop
from postgres_server import PostgresServer
from proving import proves
from tidelog.capture.checking import remove
from tidelog.capture.settings import CaptureSettings
from tidelog.client.cluster import Cluster
from tidelog.control.captures import read_captures
from tidelog.errors import AnotherCapture

LONG_S = 60.0


@proves("cdc.17")
def test_a_running_capture_lets_go_of_its_slot_and_is_removed_whole(
    tidelog_broker: tidelog.Broker, logical_server: PostgresServer
) -> None:
    def until(holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + LONG_S
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    active = "SELECT 1 FROM pg_replication_slots WHERE active AND database = current_database()"
    with closing(PostgresShop(logical_server)) as shop, Cluster(tidelog_broker.bootstrap) as cluster:
        writer = shop.writer()
        shop.make(writer)
        with pytest.raises(AnotherCapture), shop.capture(tidelog_broker.bootstrap):
            until(lambda: "shop" in read_captures(cluster) and writer.run(active))
            done = remove(cluster, CaptureSettings(url=shop.url, prefix="shop"))
        assert "dropped the replication slot tidelog_shop" in done
        assert "the progress of shop is removed; its topics stay" in done
        until(lambda: "shop" not in read_captures(cluster))
