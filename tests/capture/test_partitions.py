"""Partitions that come to a captured table, or leave it, with their rows: PostgreSQL's log does not tell that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tidelog
from capture.databases import PostgresShop
from capture.replaying import replayed, told
from postgres_server import PostgresServer
from proving import proves
from tidelog.capture.change import TRUNCATE

TABLE = "CREATE TABLE parts (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)"
PART = "CREATE TABLE {} PARTITION OF parts FOR VALUES FROM ({}) TO ({})"
ATTACH = "ALTER TABLE parts ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})"


@pytest.fixture(params=[None, pytest.param("triggers", marks=pytest.mark.slow)])
def shop(logical_server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[PostgresShop]:
    made = PostgresShop(logical_server)
    made.method = request.param
    made.writer().run(TABLE, PART.format("low", 0, 10), "INSERT INTO parts VALUES (1, 1)")
    yield made
    made.close()


def caught_up(shop: PostgresShop, broker: tidelog.Broker) -> tuple[Any, list[str]]:
    """The table as its topic tells it, and what was told."""
    shop.capture(broker.bootstrap, tables="public.parts").catch_up()
    changes = told(broker.bootstrap, "shop.public.parts")
    return replayed(changes, ("id", "n")), [change["op"] for _, change in changes]


@proves("D1", "cdc.14", "cdc.17")
def test_rows_of_partitions_that_are_attached_and_detached_come_and_go(
    shop: PostgresShop, tidelog_broker: tidelog.Broker
) -> None:
    run = shop.writer().run
    assert caught_up(shop, tidelog_broker)[0] == {(1,): (1, 1)}
    run("CREATE TABLE high (id int PRIMARY KEY, n int)", "INSERT INTO high VALUES (11, 11)")
    run(ATTACH.format("high", 10, 20), "INSERT INTO parts VALUES (12, 12)")
    found, ops = caught_up(shop, tidelog_broker)
    assert found == {(1,): (1, 1), (11,): (11, 11), (12,): (12, 12)}
    assert TRUNCATE not in ops, "what was told is right"
    run("INSERT INTO parts VALUES (2, 2)", "ALTER TABLE parts DETACH PARTITION low", "UPDATE parts SET n = 0")
    assert caught_up(shop, tidelog_broker)[0] == {(11,): (11, 0), (12,): (12, 0)}
    run("DROP TABLE high")
    assert caught_up(shop, tidelog_broker)[0] == {}
    run("DELETE FROM low WHERE id = 1", ATTACH.format("low", 0, 10))
    assert caught_up(shop, tidelog_broker)[0] == {(2,): (2, 2)}


@proves("cdc.14", "cdc.17")
def test_a_partition_that_is_made_as_one_has_nothing_read_again(
    shop: PostgresShop, tidelog_broker: tidelog.Broker
) -> None:
    caught_up(shop, tidelog_broker)
    shop.writer().run(PART.format("high", 10, 20), "INSERT INTO parts VALUES (11, 11)")
    assert caught_up(shop, tidelog_broker) == ({(1,): (1, 1), (11,): (11, 11)}, ["r", "c"])
    shop.writer().run("DROP TABLE high")
    assert caught_up(shop, tidelog_broker)[0] == {(1,): (1, 1)}, "it is known by then"


@proves("D1", "cdc.17")
def test_a_partition_that_goes_and_comes_back_is_read_again(shop: PostgresShop, tidelog_broker: tidelog.Broker) -> None:
    """In one transaction also: made, filled and attached."""
    caught_up(shop, tidelog_broker)
    shop.writer().run(
        "ALTER TABLE parts DETACH PARTITION low",
        "DELETE FROM low",
        "INSERT INTO low VALUES (3, 3)",
        ATTACH.format("low", 0, 10),
        "CREATE TABLE high AS SELECT 11 AS id, 11 AS n; ALTER TABLE high ALTER id SET NOT NULL;"
        + ATTACH.format("high", 10, 20),
    )
    assert caught_up(shop, tidelog_broker)[0] == {(3,): (3, 3), (11,): (11, 11)}
