"""One transaction of very many rows: split over transactions of the log, in little memory, whole in the end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

import tidelog
from capture.databases import Shop
from capture.replaying import told, transactions
from postgres_server import PostgresServer
from proving import proves
from tidelog.capture import running
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.captures import read_captures
from tidelog.control.owner import Outgoing, Owner
from tidelog.control.reading import span

ROWS = 3_000
MANY = 5_000_000
FLAT_MB = 200.0
PATIENCE_S = 120.0  # in which no row comes


def filled(shop: Shop, rows: int) -> str:
    series = {"postgres": f"generate_series(1, {rows}) AS g(n)"}
    series |= {"mariadb": f"(SELECT seq AS n FROM seq_1_to_{rows}) AS g"}
    counted = f"(WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {rows}) SELECT n FROM g)"
    return f"INSERT INTO orders SELECT n, 'tea', n, NULL FROM {series.get(shop.kind, counted)}"


@proves("D1", "D2", "cdc.3")
def test_a_large_transaction_is_many_of_the_log_and_never_held_whole(
    tidelog_broker: tidelog.Broker, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap, commits, held = tidelog_broker.bootstrap, list[int](), list[int]()
    shop.capture(bootstrap, transactions=True).catch_up()
    monkeypatch.setattr(running, "READ_EVENTS", 100)
    monkeypatch.setattr(running, "ROWS", 300)
    owned, read = Owner.transaction, shop.stream.read

    @contextmanager
    def counted(self: Owner) -> Iterator[Outgoing]:
        with owned(self) as outgoing:
            yield outgoing
        commits.append(1)

    def watched(self: Any, limit: int, wait_s: float) -> Sequence[Any]:
        events: Sequence[Any] = read(self, limit, wait_s)
        held.append(len(events))
        return events

    monkeypatch.setattr(Owner, "transaction", counted)
    monkeypatch.setattr(shop.stream, "read", watched)
    shop.writer().run(filled(shop, ROWS))
    shop.capture(bootstrap, transactions=True).catch_up()
    assert len(commits) >= ROWS // 400, "it was split"
    assert max(held) <= 110, "no read gave more than it was asked for"
    changes = [change for _, change in told(bootstrap, shop.topic())]
    assert [one["after"]["id"] for one in changes] == list(range(1, ROWS + 1))
    assert [len(one) for one in transactions(bootstrap, [shop.topic()])] == [ROWS], "and is one again for who asks"


@proves("D1", "D2", "cdc.3")
@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_five_million_rows_of_one_transaction_pass_in_flat_memory(
    tidelog_broker: tidelog.Broker, logical_server: PostgresServer
) -> None:
    from capture.databases import PostgresShop

    shop = PostgresShop(logical_server)
    shop.make(shop.writer())
    words = [sys.executable, "-m", "tidelog", "capture", "run", shop.url, "--prefix", "shop", "--bootstrap"]
    process = subprocess.Popen([*words, tidelog_broker.bootstrap], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    at, peak = TopicPartition(shop.topic(), 0), 0.0
    try:
        with Cluster(tidelog_broker.bootstrap) as cluster:
            heard = time.monotonic()
            while (found := read_captures(cluster).get("shop")) is None or not found.progress["position"]:  # type: ignore[index]
                assert process.poll() is None and time.monotonic() < heard + PATIENCE_S
                time.sleep(0.1)
            shop.writer().run(filled(shop, MANY))
            heard, end = time.monotonic(), 0
            while end < MANY:
                there, before = span(cluster, at, committed=True), end
                end = 0 if there is None else there.end
                peak = max(peak, psutil.Process(process.pid).memory_info().rss / 1e6)
                heard = time.monotonic() if end > before else heard
                assert process.poll() is None and time.monotonic() < heard + PATIENCE_S, f"{end} of {MANY} rows came"
                time.sleep(0.1)
            position = None
            while position is None:
                position = read_captures(cluster)["shop"].progress
                assert position is not None
                position = position if position["open"] is None else None
    finally:
        process.terminate()
        process.wait(60)
        shop.close()
    print(f"{MANY} rows of one transaction; at most {peak:.0f} MB")
    assert peak < FLAT_MB
