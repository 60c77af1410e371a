"""A reader waits for its own write by its database's position: from the capture's mark on, hop by hop."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import tidelog
from capture.databases import Shop
from proving import proves
from tidelog.capture import running
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.captures import sink_of
from tidelog.control.catalog import Generation
from tidelog.control.marks import Sources, read_mark
from tidelog.control.positions import check, is_at_least, text_of
from tidelog.errors import NotYetApplied, UsageError
from tidelog.views.stores.opening import open_store
from tidelog.views.waiting import parse_after, wait
from views.applying import applying
from views.writing import Pipeline, declare_view

LONG_S, SHORT_S = 60.0, 0.3


def own_position(shop: Shop, capture: str = "shop") -> str:
    """Of what was committed last, as a program asks its database for it."""
    asked = {
        "postgres": "SELECT pg_current_wal_insert_lsn()::text",
        "mariadb": "SELECT @@gtid_binlog_pos",
        "sqlite": f"SELECT seq FROM sqlite_sequence WHERE name LIKE '%{capture}_changes'",
    }
    return str(shop.writer().run(asked[shop.kind])[0][0])


@proves("D8", "eo.10", "eo.22")
def test_a_reader_waits_for_its_own_write_by_its_databases_position(
    tidelog_broker: tidelog.Broker, shop: Shop, tmp_path: Path
) -> None:
    bootstrap, writer, url = tidelog_broker.bootstrap, shop.writer(), f"sqlite:///{tmp_path}/views.db"
    shop.capture(bootstrap).catch_up()
    with Cluster(bootstrap) as cluster:
        view = declare_view(cluster, "revenue", inputs=(shop.topic(),))
        store = open_store(url, "revenue")
        with applying(bootstrap, url), shop.capture(bootstrap):
            writer.run("INSERT INTO orders VALUES (1, 'tea', 2, NULL)")
            after = parse_after(f"shop@{own_position(shop)}")
            with pytest.raises(NotYetApplied):
                wait(cluster, "revenue", after, SHORT_S, store=store)
            writes = Thread(target=pipes, args=(bootstrap, view.generations[0], shop))
            writes.start()
            place = wait(cluster, "revenue", after, LONG_S, store=store)
            writes.join()
        assert place.mark is not None and place.mark.sources.offsets[TopicPartition(shop.topic(), 0)] >= 1
        with pytest.raises(UsageError, match="no capture is called 'other'; there are: shop"):
            wait(cluster, "revenue", parse_after("other@0/1"), SHORT_S, store=store)
        store.close()


def pipes(bootstrap: str, generation: Generation, shop: Shop, capture: str = "shop") -> None:
    """What a query does: it reads what the capture wrote, and says so by its mark."""
    with Cluster(bootstrap) as cluster:
        at, end = TopicPartition(shop.topic(), 0), 0
        while not end:
            mark = read_mark(cluster, sink_of(capture))
            end = 0 if mark is None else mark.ends.get(at, 0)
        Pipeline(cluster, generation).batch({"tea": 2}, sources=Sources({at: end}))


@proves("D8", "eo.10")
def test_a_captures_mark_stands_where_a_transaction_ends(tidelog_broker: tidelog.Broker, shop: Shop) -> None:
    bootstrap, writer = tidelog_broker.bootstrap, shop.writer()
    writer.run("INSERT INTO debit VALUES (1, 0)")
    shop.capture(bootstrap, partitions=2).catch_up()
    with Cluster(bootstrap) as cluster:
        first = read_mark(cluster, sink_of("shop"))
        with writer.transaction():
            writer.run("INSERT INTO orders VALUES (1, 'tea', 2, NULL)", "UPDATE debit SET n = 1")
        position = own_position(shop) if shop.kind != "postgres" else ""
        shop.capture(bootstrap, partitions=2).catch_up()
        mark = read_mark(cluster, sink_of("shop"))
        assert first is not None and mark is not None and mark.batch_id > first.batch_id
        moved = {at.topic for at, end in mark.ends.items() if end > first.ends.get(at, 0)}
        assert moved == {shop.topic(), shop.topic("debit")}
        assert not position or is_at_least(mark.sources.positions["shop"], position)
        shop.capture(bootstrap, partitions=2).catch_up()
        again = read_mark(cluster, sink_of("shop"))
        assert again is not None and again.ends == mark.ends, "a capture that goes on knows where its topics end"


@proves("D8")
@pytest.mark.parametrize(
    ("position", "text"),
    [
        ({"lsn": "0/16B3748", "system": "73"}, "0/16B3748"),
        ({"gtid": "0-1-42,1-1-7", "file": "binlog.000003", "pos": 4}, "0-1-42,1-1-7 binlog.000003:4"),
        ({"gtid": None, "file": "binlog.000003", "pos": 4}, "binlog.000003:4"),
        ({"id": 57}, "57"),
        ({"log": "a", "system": "7", "seen": "750:753:751,752"}, "750:753:751|752"),
    ],
)
def test_a_position_is_its_databases_own_words(position: dict[str, Any], text: str) -> None:
    assert text_of(position) == text


UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@proves("D8")
@pytest.mark.parametrize(
    ("position", "asked", "is_there"),
    [
        ("0/16B3748", "0/16B3748", True),
        ("1/0", "0/FFFFFFFF", True),
        ("0/9F", "0/A0", False),
        ("0-2-43 binlog.000001:4", "0-1-42", True),
        ("0-1-42,1-1-7", "1-1-8", False),
        ("0-1-42,1-1-7", "0-1-42,1-1-7", True),
        ("0-1-9", "0-1-10", False),
        (f"{UUID}:1-42", f"{UUID.upper()}:42", True),
        (f"{UUID}:1-5:9-42", f"{UUID}:7", False),
        ("0-1-1 binlog.000010:4", "binlog.000009:900", True),
        ("57", "58", False),
        ("100", "99", True),
        ("750:753:751|752", "749", True),
        ("750:753:751|752", "751", False),
        ("750:753:", "752", True),
        ("750:753:", "753", False),
        ("", "99", False),
    ],
)
def test_positions_are_compared_as_their_databases_do(position: str, asked: str, is_there: bool) -> None:
    assert is_at_least(position, asked) is is_there


@proves("D8")
def test_what_is_not_a_position_of_the_database_is_refused() -> None:
    for wrong in ("", "yesterday", "0/", "1-2", "9" * 5000):
        with pytest.raises(UsageError, match="is not a position of a database"):
            check(wrong)
    with pytest.raises(UsageError, match="is not a position of this source, which is at 0/9F"):
        is_at_least("0/9F", "0-1-42")
    after = parse_after("shop@0-1-42,shop@1-1-7,orders:0:3")
    assert after.positions == {"shop": "0-1-42,1-1-7"} and str(after) == "orders:0:3, shop@0-1-42,1-1-7"


@proves("D1", "D2", "cdc.5")
@pytest.mark.parametrize("method", [None, pytest.param("triggers", marks=pytest.mark.full)])
def test_a_heartbeat_comes_while_other_tables_change_without_a_pause(
    tidelog_broker: tidelog.Broker, shop: Shop, monkeypatch: pytest.MonkeyPatch, method: str | None
) -> None:
    """Who waits for a table in which nothing changes waits for that alone."""
    monkeypatch.setattr(running._Session, "_rest", lambda *_: None)  # as if nothing ever paused
    bootstrap, writer = tidelog_broker.bootstrap, shop.writer()
    writer.run("INSERT INTO debit VALUES (1, 0)")
    shop.capture(bootstrap, method=method).catch_up()

    def complete_ms(cluster: Cluster) -> int:
        found = read_mark(cluster, sink_of("shop"))
        return 0 if found is None else found.complete_ms or 0

    with Cluster(bootstrap) as cluster, shop.capture(bootstrap, method=method, heartbeat_s=0.1):
        for _ in range(2):
            before_ms, deadline = int(time.time() * 1000), time.monotonic() + LONG_S
            while complete_ms(cluster) < before_ms:
                assert time.monotonic() < deadline, "it was not told"
                writer.run("UPDATE debit SET n = n + 1")
                time.sleep(0.01)
            assert complete_ms(cluster) <= int(time.time() * 1000) + 1000


@proves("D1", "cdc.5")
def test_a_heartbeat_says_up_to_when_everything_was_told(
    tidelog_broker: tidelog.Broker, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "WAIT_S", 0.05)
    bootstrap, before_ms = tidelog_broker.bootstrap, int(time.time() * 1000)
    with shop.capture(bootstrap, heartbeat_s=0.1), Cluster(bootstrap) as cluster:
        deadline, found = time.monotonic() + LONG_S, None
        while (found is None or (found.complete_ms or 0) < before_ms) and time.monotonic() < deadline:
            time.sleep(0.05)
            found = read_mark(cluster, sink_of("shop"))
    assert found is not None and found.complete_ms is not None
    assert before_ms <= found.complete_ms <= int(time.time() * 1000) + 1000
