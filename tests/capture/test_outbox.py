"""The outbox: rows that are messages, of a SQLite file. What such a table is for: docs/guide/capture.md."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tidelog
from capture.captured import envelopes, records
from capture.crashing import Killed, killing
from capture.test_running import TOPIC, orders, shop
from proving import proves
from tidelog.capture import running
from tidelog.capture.sources.sqlite.changelog import Changelog
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.errors import UsageError

__all__ = ["orders"]


@proves("D2", "cdc.32")
def test_a_message_of_an_outbox_that_is_too_large_stops_or_becomes_a_dead_letter(
    tidelog_broker: tidelog.Broker, database: sqlite3.Connection, path: Path
) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "shop.order", partitions=1, configs={"max.message.bytes": "2000"})
    database.execute("CREATE TABLE outbox (id TEXT, aggregatetype TEXT, aggregateid TEXT, type TEXT, payload TEXT)")
    database.execute("INSERT INTO outbox VALUES ('m1', 'order', '7', ?, ?)", ("t" * 100, "x" * 1850))
    database.execute("INSERT INTO outbox VALUES ('m2', 'order', '8', 'a', 'small')")
    with pytest.raises(UsageError, match=r"a row of main\.outbox with key 7 is a record of 1850 bytes"):
        shop(tidelog_broker, path, outbox="main.outbox").catch_up()
    shop(tidelog_broker, path, outbox="main.outbox", dead_letters="letters").catch_up()
    assert [one.key for one in records(tidelog_broker.bootstrap, "shop.order")] == [b"8"]
    (letter,) = records(tidelog_broker.bootstrap, "letters")
    assert letter.key == b"7" and dict(letter.headers)["__connect.errors.topic"] == b"shop.order"


@proves("cdc.32")
def test_rows_of_an_outbox_are_messages_of_the_topic_that_they_name(
    tidelog_broker: tidelog.Broker, database: sqlite3.Connection, path: Path
) -> None:
    database.execute("CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregatetype, aggregateid, type, payload TEXT)")
    database.executescript(
        "ALTER TABLE outbox RENAME TO old; DROP TABLE old;"
        "CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, type TEXT, payload TEXT);"
    )
    shop(tidelog_broker, path, outbox="main.outbox").catch_up()
    database.executescript(
        "BEGIN; INSERT INTO outbox VALUES ('m1', 'order', '7', 'created', '{\"a\":1}');"
        "DELETE FROM outbox; COMMIT; INSERT INTO outbox VALUES ('m2', 'order', '7', 'gone', NULL);"
    )
    shop(tidelog_broker, path, outbox="main.outbox").catch_up()
    found = records(tidelog_broker.bootstrap, "shop.order")
    assert [(one.key, one.value) for one in found] == [(b"7", b'{"a":1}'), (b"7", None)]
    assert dict(found[0].headers) == {"id": b"m1", "eventType": b"created"}
    database.execute("UPDATE outbox SET payload = 'x'")
    with pytest.raises(UsageError, match="was updated, and what was sent cannot be changed"):
        shop(tidelog_broker, path, outbox="main.outbox").catch_up()


@proves("cdc.3", "cdc.32", "cdc.33")
def test_messages_of_an_outbox_have_no_place_among_rows_after_a_crash_either(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "READ_EVENTS", 4)
    monkeypatch.setattr(running, "ROWS", 6)
    settings: dict[str, Any] = {"outbox": "main.outbox", "transactions": True}
    orders.execute("CREATE TABLE outbox (id TEXT, aggregatetype TEXT, aggregateid TEXT, type TEXT, payload TEXT)")
    shop(tidelog_broker, path, **settings).catch_up()
    orders.execute("BEGIN")
    for number in range(10):
        orders.execute("INSERT INTO orders VALUES (?, 'tea', 2.5)", (number,))
        orders.execute("INSERT INTO outbox VALUES (?, 'order', ?, 'created', 'x')", (str(number), str(number)))
    orders.execute("COMMIT")
    with killing(monkeypatch, Changelog, "after commit", 1), suppress(Killed):
        shop(tidelog_broker, path, **settings).catch_up()
    shop(tidelog_broker, path, **settings).catch_up()
    places = [one["transaction"]["total_order"] for one in envelopes(tidelog_broker.bootstrap, TOPIC)]
    assert places == list(range(1, 11))
    (ended,) = [one for one in envelopes(tidelog_broker.bootstrap, "shop.transaction") if one["status"] == "END"]
    assert ended["event_count"] == 10 and len(records(tidelog_broker.bootstrap, "shop.order")) == 10


@proves("cdc.32")
def test_a_text_in_a_column_of_bytes_of_an_outbox_is_refused_with_what_to_do(
    tidelog_broker: tidelog.Broker, database: sqlite3.Connection, path: Path
) -> None:
    """SQLite takes anything in a column that has no type."""
    database.execute("CREATE TABLE outbox (id, aggregatetype TEXT, aggregateid TEXT, type TEXT, payload TEXT)")
    shop(tidelog_broker, path, outbox="main.outbox").catch_up()
    database.execute("INSERT INTO outbox VALUES ('m1', 'order', '7', 'created', 'x')")
    with pytest.raises(UsageError, match="has a text in id, a column of bytes; declare it as one of text"):
        shop(tidelog_broker, path, outbox="main.outbox").catch_up()
