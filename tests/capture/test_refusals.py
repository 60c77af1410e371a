"""What a capture must not break, nor miss in silence: foreign keys of MariaDB, PostgreSQL's tables without identity."""

from __future__ import annotations

import time

import psycopg
import pytest

import tidelog
from capture.captured import records
from capture.databases import MariaDbShop, PostgresShop
from capture.replaying import told
from capture.sources.mysql.mariadb_server import MariaDbServer
from cli.command import Command
from postgres_server import PostgresServer
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control.status import read_status
from tidelog.errors import UsageError

LONG_S = 60.0


@proves("D1")
@pytest.mark.external
def test_rows_that_cascades_change_are_refused_unless_that_is_accepted(
    tidelog_broker: tidelog.Broker, mariadb: MariaDbServer
) -> None:
    shop, bootstrap = MariaDbShop(mariadb), tidelog_broker.bootstrap
    shop.writer().run(
        "CREATE TABLE orders (id INT PRIMARY KEY)",
        "CREATE TABLE items (id INT PRIMARY KEY, o INT, FOREIGN KEY (o) REFERENCES orders (id) ON DELETE CASCADE)",
        "INSERT INTO orders VALUES (1)",
        "INSERT INTO items VALUES (10, 1)",
    )
    with pytest.raises(UsageError, match=r"ON DELETE CASCADE.*--accept-cascades"):
        shop.capture(bootstrap).catch_up()
    command = Command(bootstrap)
    refused = command("capture", "check", shop.url)
    assert refused.code == 1 and "does not write these changes to its binlog" in refused.out
    assert command("capture", "check", shop.url, "--accept-cascades").code == 0
    shop.capture(bootstrap, accept_cascades=True).catch_up()
    shop.writer().run("DELETE FROM orders")
    shop.capture(bootstrap, accept_cascades=True).catch_up()
    assert [change["op"] for _, change in told(bootstrap, shop.topic())] == ["r", "d"]
    assert [change["op"] for _, change in told(bootstrap, shop.topic("items"))] == ["r"], "as was accepted: it stays"
    shop.close()


@proves("D1", "cdc.9")
def test_a_table_without_a_replica_identity_is_never_broken_for_who_writes_it(
    tidelog_broker: tidelog.Broker, logical_server: PostgresServer
) -> None:
    shop, bootstrap = PostgresShop(logical_server), tidelog_broker.bootstrap
    writer = shop.writer()
    writer.run("CREATE TABLE orders (id int, n int)", "INSERT INTO orders VALUES (1, 1)")
    shop.capture(bootstrap).catch_up()
    with psycopg.connect(shop.url, autocommit=True) as other:
        other.execute("UPDATE orders SET n = 2")
        other.execute("INSERT INTO orders VALUES (2, 2)")
        other.execute("DELETE FROM orders WHERE id = 1")
    shop.capture(bootstrap).catch_up()
    assert [change["op"] for _, change in told(bootstrap, shop.topic())] == ["r", "c"], "its inserts alone"
    checked = Command(bootstrap)("capture", "check", shop.url)
    assert checked.code == 0 and "ALTER TABLE" in checked.out and "REPLICA IDENTITY" in checked.out
    shop.close()


@proves("D1", "hostile")
def test_a_logical_message_that_is_too_large_stops_or_becomes_a_dead_letter(
    tidelog_broker: tidelog.Broker, logical_server: PostgresServer
) -> None:
    """Any program may write one, and there is nobody who could take it back."""
    shop, bootstrap = PostgresShop(logical_server), tidelog_broker.bootstrap
    writer = shop.writer()
    shop.make(writer)
    shop.capture(bootstrap).catch_up()
    writer.run("SELECT pg_logical_emit_message(true, 'large', repeat('x', 2000000))")
    writer.run("INSERT INTO debit VALUES (1, 1)")
    with pytest.raises(
        UsageError, match=r"a logical message of 'large' .* is a record of \d+ bytes, and topic shop\.message"
    ):
        shop.capture(bootstrap).catch_up()
    shop.capture(bootstrap, dead_letters="letters").catch_up()
    assert [change["op"] for _, change in told(bootstrap, shop.topic("debit"))] == ["c"]
    assert len(records(bootstrap, "letters")) == 1
    shop.close()


@proves("D8", "cdc.6")
def test_a_slot_that_keeps_too_much_is_told_in_status_and_logged_once(
    tidelog_broker: tidelog.Broker, logical_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    shop, bootstrap, deadline = PostgresShop(logical_server), tidelog_broker.bootstrap, time.monotonic() + LONG_S
    shop.make(shop.writer())
    with shop.capture(bootstrap, alarm_bytes=1), Cluster(bootstrap) as cluster:
        said: list[str] = []
        while not any("more than 1 (--alarm-bytes): its disk fills" in one for one in said):
            assert time.monotonic() < deadline, said
            time.sleep(0.05)
            said = [str(one.figures.get("warning")) for one in read_status(cluster) if one.kind == "capture"]
    assert caplog.text.count("(--alarm-bytes)") == 1
    shop.close()
