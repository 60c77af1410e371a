"""What a capture must not break, nor miss in silence: foreign keys of MariaDB, PostgreSQL's tables without identity."""

from __future__ import annotations

import psycopg
import pytest

import tidelog
from capture.databases import MariaDbShop, PostgresShop
from capture.replaying import told
from capture.sources.mysql.mariadb_server import MariaDbServer
from cli.command import Command
from postgres_server import PostgresServer
from proving import proves
from tidelog.errors import UsageError


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
