"""A capture from a SQLite file to topics: settings, commands, faults. What holds of all databases: test_contract.py."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pytest

import tidelog
from capture.captured import envelopes, folded, records, rows_of
from capture.crashing import Killed, killing
from proving import proves
from tidelog.capture import running, snapshotting
from tidelog.capture.change import SourceLag
from tidelog.capture.checking import remove
from tidelog.capture.chunking import ask_for_snapshot
from tidelog.capture.running import Capture
from tidelog.capture.settings import CaptureSettings
from tidelog.capture.sources.sqlite.changelog import Changelog
from tidelog.capture.telling import alarm_of
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.client.refusal import refused
from tidelog.control.captures import read_captures, sink_of
from tidelog.control.health import told_state
from tidelog.control.marks import read_mark
from tidelog.control.owner import Owner
from tidelog.control.status import read_status, send_command
from tidelog.errors import AnotherCapture, Disconnected, OutcomeUnknown, SourceLost, UsageError
from tidelog.wire.error_code import ErrorCode

COLUMNS, KEY = ("id", "item", "price"), ("id",)
TOPIC = "shop.main.orders"


@pytest.fixture
def orders(database: sqlite3.Connection) -> sqlite3.Connection:
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price REAL)")
    return database


def shop(broker: tidelog.Broker, path: Path, **settings: Any) -> Capture:
    found: Capture = tidelog.capture(f"sqlite:///{path}", prefix="shop", bootstrap=broker.bootstrap, **settings)
    return found


def table(orders: sqlite3.Connection) -> Any:
    return rows_of(orders, "orders", COLUMNS, KEY)


@proves("cdc.33", "E4")
def test_the_elder_of_two_captures_of_one_name_is_fenced(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path
) -> None:
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5)")
    elder = shop(tidelog_broker, path)
    shop(tidelog_broker, path).catch_up()
    orders.execute("INSERT INTO orders VALUES (2, 'milk', 1.0)")
    read, done = Changelog.read, []

    def overtaken(self: Changelog, limit: int, wait_s: float) -> Any:
        if not done:
            done.append(1)
            events = read(self, limit, wait_s)
            Changelog.read = read  # type: ignore[method-assign]
            shop(tidelog_broker, path).catch_up()
            return events
        return read(self, limit, wait_s)

    Changelog.read = overtaken  # type: ignore[method-assign]
    try:
        with pytest.raises(AnotherCapture, match="another capture named 'shop' has begun"):
            elder.catch_up()
    finally:
        Changelog.read = read  # type: ignore[method-assign]
    told = envelopes(tidelog_broker.bootstrap, TOPIC)
    assert [one["after"]["id"] for one in told] == [1, 2]
    with Cluster(tidelog_broker.bootstrap) as cluster:
        assert state_of(cluster) == "stopped", "as the younger one told; the elder tells nothing by that name"


@proves("cdc.33", "D3")
def test_a_large_transaction_is_split_and_many_small_ones_are_put_together(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop(tidelog_broker, path).catch_up()
    monkeypatch.setattr(running, "READ_EVENTS", 100)
    monkeypatch.setattr(running, "ROWS", 200)
    commits: list[int] = []
    transaction = Owner.transaction

    @contextmanager
    def counted(self: Owner) -> Iterator[Any]:
        with transaction(self) as outgoing:
            yield outgoing
        commits.append(1)

    monkeypatch.setattr(Owner, "transaction", counted)
    orders.executemany("INSERT INTO orders VALUES (?, 'tea', 1.0)", [(number,) for number in range(1000)])
    shop(tidelog_broker, path).catch_up()
    assert len(commits) == 5, "a thousand transactions of the source are five of the log"
    assert len(envelopes(tidelog_broker.bootstrap, TOPIC)) == 1000


@proves("D2")
@pytest.mark.parametrize(
    ("open_s", "read", "whole", "enough"),
    [
        (0.001, 1, True, True),
        (0.001, 1, False, False),
        (0.03, running.READ_EVENTS, True, False),
        (3.0, running.READ_EVENTS, True, True),
        (3.0, 1, False, True),
    ],
)
def test_a_change_waits_for_no_later_one_but_a_backlog_is_taken_along(
    open_s: float, read: int, whole: bool, enough: bool
) -> None:
    assert running.is_enough(open_s, read, whole=whole) is enough


@proves("D3")
def test_snapshot_and_changes_are_the_table_while_others_write(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By ranges in several threads, each moment of which another connection writes."""
    from tidelog.capture.sources.sqlite import source

    monkeypatch.setattr(source, "ROWS_WORTH_SPLITTING", 10)
    monkeypatch.setattr(snapshotting, "CHUNK_ROWS", 20)
    orders.executemany("INSERT INTO orders VALUES (?, 'tea', 1.0)", [(number,) for number in range(400)])

    def write() -> None:
        writer = sqlite3.connect(path, isolation_level=None, timeout=30)
        chance = Random(7)
        for _ in range(150):
            ids = chance.randrange(500), chance.randrange(500)
            writer.execute("UPDATE OR REPLACE orders SET id = ? WHERE id = ?", ids)
            writer.execute("UPDATE orders SET price = price + 1 WHERE id = ?", (chance.randrange(500),))
            writer.execute("DELETE FROM orders WHERE id = ?", (chance.randrange(500),))
            time.sleep(0.001)
        writer.close()

    writing = Thread(target=write)
    writing.start()
    shop(tidelog_broker, path).catch_up()
    writing.join()
    shop(tidelog_broker, path).catch_up()
    told = envelopes(tidelog_broker.bootstrap, TOPIC)
    assert sum(one["op"] == "r" for one in told) >= 300 and any(one["op"] != "r" for one in told)
    assert folded(told, KEY) == table(orders)


@proves("D3")
@pytest.mark.parametrize(
    ("mode", "ops"),
    [("initial", "rc"), ("initial_only", "r"), ("no_data", "c"), ("always", "rrc"), ("when_needed", "rc")],
)
def test_a_snapshot_is_taken_when_its_mode_says_so(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path, mode: str, ops: str
) -> None:
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5)")
    shop(tidelog_broker, path, snapshot=mode).catch_up()
    if mode == "always":
        shop(tidelog_broker, path, snapshot=mode).catch_up()
    orders.execute("INSERT INTO orders VALUES (2, 'milk', 2.5)")
    shop(tidelog_broker, path, snapshot="initial_only" if mode == "initial_only" else "initial").catch_up()
    assert "".join(one["op"] for one in envelopes(tidelog_broker.bootstrap, TOPIC)) == ops


@proves("D3", "D8")
def test_a_capture_that_leaves_its_snapshot_and_takes_no_rows_is_waited_for_all_the_same(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5)")
    with killing(monkeypatch, Changelog, "after commit", 1), suppress(Killed):
        shop(tidelog_broker, path).catch_up()
    shop(tidelog_broker, path, snapshot="no_data").catch_up()
    orders.execute("INSERT INTO orders VALUES (2, 'milk', 2.5)")
    shop(tidelog_broker, path, snapshot="no_data").catch_up()
    with Cluster(tidelog_broker.bootstrap) as cluster:
        mark = read_mark(cluster, sink_of("shop"))
    assert mark is not None and mark.ends[TopicPartition(TOPIC, 0)] > 0


@proves("D2", "cdc.3", "cdc.33")
def test_tables_are_not_changed_while_a_part_of_a_transaction_is_stored(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored of it is a number of rows, and other tables have others."""
    monkeypatch.setattr(running, "READ_EVENTS", 4)
    monkeypatch.setattr(running, "ROWS", 6)
    orders.execute("CREATE TABLE users (id INTEGER PRIMARY KEY)")
    shop(tidelog_broker, path, tables="main.orders").catch_up()
    orders.executemany("INSERT INTO orders VALUES (?, 'tea', 2.5)", [(number,) for number in range(20)])
    with killing(monkeypatch, Changelog, "after commit", 1), suppress(Killed):
        shop(tidelog_broker, path, tables="main.orders").catch_up()
    told = len(envelopes(tidelog_broker.bootstrap, TOPIC))
    assert 0 < told < 20
    with pytest.raises(UsageError, match=r"is stored, of the tables main\.orders; let the capture run with --tables"):
        shop(tidelog_broker, path, tables=["main.orders", "main.users"]).catch_up()
    shop(tidelog_broker, path, tables="main.orders").catch_up()
    shop(tidelog_broker, path, tables=["main.orders", "main.users"]).catch_up()
    assert [one["after"]["id"] for one in envelopes(tidelog_broker.bootstrap, TOPIC)] == list(range(20))


@proves("D2", "cdc.6")
def test_a_source_that_lost_changes_stops_and_is_read_anew_where_that_was_chosen(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path
) -> None:
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5)")
    shop(tidelog_broker, path).catch_up()
    from tidelog.capture.sources.sqlite.source import connect

    source = connect(f"sqlite:///{path}", "shop", ["*"])
    source.remove()
    source.close()
    orders.execute("REPLACE INTO orders VALUES (2, 'milk', 1.0)")
    orders.execute("DELETE FROM orders WHERE id = 1")
    with pytest.raises(SourceLost, match="does not have the changes after"):
        shop(tidelog_broker, path).catch_up()
    shop(tidelog_broker, path, snapshot="when_needed").catch_up()
    assert folded(envelopes(tidelog_broker.bootstrap, TOPIC), KEY) == table(orders)


@proves("D2")
def test_a_row_that_is_too_large_stops_or_becomes_a_dead_letter(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path
) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, TOPIC, partitions=1, configs={"max.message.bytes": "2000"})
    orders.execute("INSERT INTO orders VALUES (1, ?, 2.5), (2, 'milk', 1.0)", ("x" * 3000,))
    with pytest.raises(UsageError, match=r'a row of main\.orders with key \{"id":1\} is a record of \d+ bytes'):
        shop(tidelog_broker, path).catch_up()
    shop(tidelog_broker, path, dead_letters="letters").catch_up()
    assert [one["after"]["id"] for one in envelopes(tidelog_broker.bootstrap, TOPIC)] == [2]
    (letter,) = records(tidelog_broker.bootstrap, "letters")
    headers = dict(letter.headers)
    assert letter.key == b'{"id":1}' and letter.value is not None and b"xxx" in letter.value
    assert headers["__connect.errors.topic"] == TOPIC.encode()
    assert b"max.message.bytes" in (headers["__connect.errors.exception.message"] or b"")


@proves("D2", "D3")
def test_a_capture_that_begins_again_after_it_was_removed_has_no_rows_that_are_gone(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path
) -> None:
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5), (2, 'milk', 1.0)")
    shop(tidelog_broker, path).catch_up()
    with Cluster(tidelog_broker.bootstrap) as cluster:
        remove(cluster, CaptureSettings(url=f"sqlite:///{path}", prefix="shop"))
    orders.execute("DELETE FROM orders WHERE id = 1")
    shop(tidelog_broker, path).catch_up()
    told = envelopes(tidelog_broker.bootstrap, TOPIC)
    assert "".join(one["op"] for one in told) == "rrtr"
    assert folded(told, KEY) == table(orders)


@proves("D2", "cdc.13")
def test_a_truncate_that_rows_alone_cannot_tell_is_logged(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5), (2, 'milk', 1.0)")
    shop(tidelog_broker, path, envelope="row").catch_up()
    assert "stay in topic" not in caplog.text
    with Cluster(tidelog_broker.bootstrap) as cluster:
        remove(cluster, CaptureSettings(url=f"sqlite:///{path}", prefix="shop"))
    orders.execute("DELETE FROM orders WHERE id = 1")
    shop(tidelog_broker, path, envelope="row").catch_up()
    assert f"rows that are gone stay in topic {TOPIC};" in caplog.text


@proves("cdc.13", "D5")
def test_a_truncate_is_told_in_a_compacted_topic_too(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path
) -> None:
    """Which takes no record without a key."""
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5), (2, 'milk', 1.0)")
    shop(tidelog_broker, path, compact=True).catch_up()
    orders.executescript(
        "DROP TABLE orders; CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price REAL);"
        "INSERT INTO orders VALUES (2, 'jam', 1.0)"
    )
    shop(tidelog_broker, path, compact=True).catch_up()
    (truncated,) = [one for one in records(tidelog_broker.bootstrap, TOPIC) if b'"op":"t"' in (one.value or b"")]
    assert truncated.key == b"null"
    assert folded(envelopes(tidelog_broker.bootstrap, TOPIC), KEY) == table(orders)


@proves("cdc.13")
def test_a_truncate_goes_to_every_partition(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path
) -> None:
    orders.executemany("INSERT INTO orders VALUES (?, 'tea', 1.0)", [(number,) for number in range(20)])
    shop(tidelog_broker, path, partitions=3).catch_up()
    orders.executescript(
        "BEGIN; CREATE TABLE n (id INTEGER PRIMARY KEY, item TEXT, price REAL); DROP TABLE orders;"
        "ALTER TABLE n RENAME TO orders; COMMIT; INSERT INTO orders VALUES (5, 'jam', 1.0)"
    )
    shop(tidelog_broker, path, partitions=3).catch_up()
    found = records(tidelog_broker.bootstrap, TOPIC, partitions=3)
    truncated = [one for one in found if one.value is not None and json.loads(one.value)["op"] == "t"]
    assert [one.key for one in truncated] == [None] * 3


@proves("D3", "cdc.18", "cdc.20")
def test_an_incremental_snapshot_tells_the_table_while_changes_flow(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.capture import chunking

    monkeypatch.setattr(chunking, "CHUNK_ROWS", 7)
    orders.executemany("INSERT INTO orders VALUES (?, 'tea', 1.0)", [(number,) for number in range(50)])
    shop(tidelog_broker, path, snapshot="no_data").catch_up()
    with Cluster(tidelog_broker.bootstrap) as cluster, Producer(cluster) as producer:
        topics.create(cluster, "shop.signals", partitions=1)
        for signal in (
            b"no json",
            b'{"type":"execute-snapshot","data":{"data-collections":["main.unknown"]}}',
            b'{"type":"what"}',
            b'{"type":"execute-snapshot","data":{"data-collections":["main.orders"],"type":"incremental"}}',
        ):
            producer.send("shop.signals", signal, key=b"shop")
    chunk = chunking.Chunking._open_window
    turn = iter(range(1000))

    def written(self: Any) -> None:
        number = next(turn)
        orders.execute("UPDATE orders SET price = ? WHERE id % 5 = ?", (number, number % 5))
        orders.execute("DELETE FROM orders WHERE id = ?", (7 * number,))
        chunk(self)
        orders.execute("UPDATE orders SET price = price + 0.5 WHERE id % 7 = ?", (number % 7,))
        orders.execute("UPDATE orders SET id = 1000 + id WHERE id = ?", (7 * number + 3,))

    monkeypatch.setattr(chunking.Chunking, "_open_window", written)
    shop(tidelog_broker, path, snapshot="no_data").catch_up()
    told = envelopes(tidelog_broker.bootstrap, TOPIC)
    assert {one["source"]["snapshot"] for one in told if one["op"] == "r"} == {"incremental"}
    assert sum(one["op"] == "r" for one in told) > 10
    assert folded(told, KEY) == table(orders)
    with Cluster(tidelog_broker.bootstrap) as cluster:
        progress = read_captures(cluster)["shop"].progress
    assert progress is not None and progress["incremental"] is None and progress["signals"] == 4


def state_of(cluster: Cluster) -> str | None:
    return next((told_state(one.figures) for one in read_status(cluster) if one.kind == "capture"), None)


@proves("D2", "D3", "P3")
def test_a_capture_is_paused_resumed_and_stopped_by_commands_and_loses_nothing(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path
) -> None:
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5)")
    bootstrap = tidelog_broker.bootstrap
    with shop(tidelog_broker, path), Cluster(bootstrap) as cluster:
        wait_until(lambda: state_of(cluster) == "running")
        send_command(cluster, "capture", "shop", "pause")
        wait_until(lambda: state_of(cluster) == "paused")
        orders.execute("INSERT INTO orders VALUES (2, 'milk', 1.0)")
        told = [one["op"] for one in envelopes(bootstrap, TOPIC)]
        send_command(cluster, "capture", "shop", "resume")
        wait_until(lambda: [one["op"] for one in envelopes(bootstrap, TOPIC)] == ["r", "c"])
        send_command(cluster, "capture", "shop", "stop")
        wait_until(lambda: state_of(cluster) == "stopped")
    assert told == ["r"], "nothing was captured while it was paused"
    assert folded(envelopes(bootstrap, TOPIC), KEY) == table(orders)


@proves("D2", "P3")
def test_a_capture_that_was_paused_before_it_starts_waits_for_resume(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap = tidelog_broker.bootstrap
    with Cluster(bootstrap) as cluster:
        send_command(cluster, "capture", "shop", "pause")
        with shop(tidelog_broker, path):
            wait_until(lambda: state_of(cluster) == "paused")
            assert "capture shop is paused; `tidelog resume shop`" in caplog.text
            orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5)")
            send_command(cluster, "capture", "shop", "resume")
            wait_until(lambda: TOPIC in topics.names(cluster) and bool(envelopes(bootstrap, TOPIC)))


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@proves("D3", "cdc.20")
def test_a_snapshot_that_is_asked_of_a_stopped_capture_is_taken_when_it_runs(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path
) -> None:
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5), (2, 'milk', 1.0)")
    shop(tidelog_broker, path).catch_up()
    with Cluster(tidelog_broker.bootstrap) as cluster:
        ask_for_snapshot(cluster, "shop", ["main.orders"])
        send_command(cluster, "capture", "another", "snapshot", tables=["main.orders"], what="execute")
    for _ in range(2):
        shop(tidelog_broker, path).catch_up()
        told = [change["op"] for change in envelopes(tidelog_broker.bootstrap, TOPIC)]
        assert told == ["r", "r", "r", "r"], "once"


@proves("D2", "D3", "cdc.5")
def test_one_that_runs_beside_a_program_follows_beats_and_takes_commands(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "WAIT_S", 0.02)
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5)")
    bootstrap = tidelog_broker.bootstrap
    with shop(tidelog_broker, path, heartbeat_s=0.05), Cluster(bootstrap) as cluster:
        wait_until(lambda: "__debezium-heartbeat.shop" in topics.names(cluster))
        orders.execute("INSERT INTO orders VALUES (2, 'milk', 1.0)")
        wait_until(lambda: [one["op"] for one in envelopes(bootstrap, TOPIC)] == ["r", "c"])
        send_command(cluster, "capture", "shop", "snapshot", tables=["main.orders"])
        wait_until(lambda: [one["op"] for one in envelopes(bootstrap, TOPIC)] == ["r", "c", "r", "r"])
        wait_until(
            lambda: ("capture", "running") in [(one.kind, told_state(one.figures)) for one in read_status(cluster)]
        )
    (beat, *_) = records(bootstrap, "__debezium-heartbeat.shop")
    assert beat.key == b'{"serverName":"shop"}' and beat.value is not None and beat.value.startswith(b'{"ts_ms":')


@proves("D2", "cdc.14", "cdc.30")
def test_a_changed_table_is_told_before_its_first_row(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path
) -> None:
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5)")
    shop(tidelog_broker, path, schema_changes=True).catch_up()
    orders.execute("UPDATE orders SET price = 3.0")
    orders.execute("ALTER TABLE orders ADD COLUMN note TEXT")
    orders.execute("INSERT INTO orders VALUES (2, 'milk', 1.0, 'cold')")
    shop(tidelog_broker, path, schema_changes=True).catch_up()
    told = envelopes(tidelog_broker.bootstrap, TOPIC)
    assert folded(told, KEY)[2,] == (2, "milk", 1.0, "cold")
    (change,) = envelopes(tidelog_broker.bootstrap, "shop")
    columns = change["tableChanges"][0]["table"]["columns"]
    assert [one["name"] for one in columns] == ["id", "item", "price", "note"]
    with Cluster(tidelog_broker.bootstrap) as cluster:
        kept = read_captures(cluster)["shop"].tables["main.orders"]
    assert [one["name"] for one in kept.columns] == ["id", "item", "price", "note"]


@proves("D2")
@pytest.mark.parametrize("where", ["source", "log", "disk"])
def test_a_database_or_a_broker_that_is_away_is_waited_for(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5)")
    shop(tidelog_broker, path).catch_up()
    orders.execute("INSERT INTO orders VALUES (2, 'milk', 1.0)")
    read, transaction, faults = Changelog.read, Owner.transaction, iter([Disconnected("away"), OutcomeUnknown("lost")])

    def reading(self: Changelog, limit: int, wait_s: float) -> Any:
        if (fault := next(faults, None)) is not None:
            raise Disconnected(str(fault))
        return read(self, limit, wait_s)

    @contextmanager
    def transacting(self: Owner) -> Iterator[Any]:
        with transaction(self) as outgoing:
            yield outgoing
        if (fault := next(faults, None)) is not None:
            full = refused(ErrorCode.KAFKA_STORAGE_ERROR, "a batch", "no space left on device")
            raise full if where == "disk" else fault  # though it is committed: nobody knows

    if where == "source":
        monkeypatch.setattr(Changelog, "read", reading)
    else:
        monkeypatch.setattr(Owner, "transaction", transacting)
    shop(tidelog_broker, path).catch_up()
    orders.execute("INSERT INTO orders VALUES (3, 'jam', 1.0)")
    shop(tidelog_broker, path).catch_up()
    assert [one["after"]["id"] for one in envelopes(tidelog_broker.bootstrap, TOPIC)] == [1, 2, 3]


@proves("D2")
def test_a_capture_tells_its_status(tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path) -> None:
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5)")
    shop(tidelog_broker, path).catch_up()
    with Cluster(tidelog_broker.bootstrap) as cluster:
        (report,) = [one for one in read_status(cluster) if one.kind == "capture"]
    assert report.name == "shop" and report.figures["state"] == "stopped"
    assert report.figures["connector"] == "sqlite" and report.figures["url"] == f"sqlite:///{path}"


@proves("D2")
def test_a_url_with_a_password_in_clear_is_refused() -> None:
    with pytest.raises(UsageError, match="has a password in clear"):
        tidelog.capture("postgresql://app:secret@db/shop", prefix="shop")


@proves("D8", "cdc.4")
@pytest.mark.parametrize(
    ("lag", "said"),
    [
        (SourceLag(5, 0.1, 100, "reserved"), None),
        (SourceLag(None, None, None), None),
        (SourceLag(5, 0.1, 1001, "extended"), "keeps 1001 bytes of its log for this capture, more than 1000"),
        (SourceLag(5, 0.1, 10, "unreserved"), "the slot is unreserved"),
        (SourceLag(5, 0.1, 10, "lost"), "the slot is lost"),
    ],
)
def test_a_disk_that_fills_for_a_capture_is_an_alarm(lag: SourceLag, said: str | None) -> None:
    found = alarm_of(lag, 1000)
    assert found is None if said is None else said in (found or "")


@proves("D2", "cdc.33", "hostile")
def test_somebody_else_who_writes_to_the_topic_costs_one_transaction_and_no_row(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path
) -> None:
    def ends() -> int:
        return len(records(tidelog_broker.bootstrap, TOPIC))

    shop(tidelog_broker, path).catch_up()
    with shop(tidelog_broker, path) as beside, Cluster(tidelog_broker.bootstrap) as cluster:
        orders.execute("INSERT INTO orders VALUES (1, 'tea', 1.0)")
        wait_until(lambda: ends() == 1)
        orders.execute("INSERT INTO orders VALUES (2, 'tea', 1.0)")
        wait_until(lambda: ends() == 2)
        assert beside._foretells
        with Producer(cluster) as producer:
            producer.send(TOPIC, b'{"op":"?"}', key=b"foreign", partition=0)
        orders.execute("INSERT INTO orders VALUES (3, 'tea', 1.0)")
        wait_until(lambda: ends() == 4)
        assert not beside._foretells, "from now on it waits for each answer"
        orders.execute("INSERT INTO orders VALUES (4, 'tea', 1.0)")
        wait_until(lambda: ends() == 5)
        at, last = TopicPartition(TOPIC, 0), records(tidelog_broker.bootstrap, TOPIC)[-1].offset
        wait_until(lambda: (mark := read_mark(cluster, sink_of("shop"))) is not None and mark.ends[at] == last + 1)
    told = [one for one in envelopes(tidelog_broker.bootstrap, TOPIC) if one["op"] != "?"]
    assert [one["after"]["id"] for one in told] == [1, 2, 3, 4], "each once"


@proves("D1", "hostile")
def test_columns_that_are_left_out_or_masked_are_in_no_record_of_any_topic(
    tidelog_broker: tidelog.Broker, path: Path, database: sqlite3.Connection
) -> None:
    database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, mail TEXT, password TEXT, pin INTEGER)")
    database.execute("INSERT INTO users VALUES (1, 'ann@example.org', 'tops3cret', 31415926535)")
    settings = {"exclude": "main.users.password", "mask": ["main.users.mail", "main.users.pin"], "transactions": True}
    shop(tidelog_broker, path, schema_changes=True, **settings).catch_up()
    database.execute("UPDATE users SET mail = 'bob@example.org', password = 'tops3cret2', pin = 31415926536")
    database.execute("ALTER TABLE users ADD COLUMN level INTEGER")
    shop(tidelog_broker, path, schema_changes=True, **settings).catch_up()
    database.execute("UPDATE users SET id = 2, level = 7")
    database.execute("DELETE FROM users")
    shop(tidelog_broker, path, schema_changes=True, **settings).catch_up()
    told = envelopes(tidelog_broker.bootstrap, "shop.main.users")
    assert told[0]["after"] == {"id": 1, "mail": "****", "pin": None}
    assert told[-1]["before"]["mail"] == "****" and "password" not in told[-1]["before"]
    (change,) = envelopes(tidelog_broker.bootstrap, "shop")
    columns = change["tableChanges"][0]["table"]["columns"]
    assert [one["name"] for one in columns] == ["id", "mail", "pin", "level"]
    with Cluster(tidelog_broker.bootstrap) as cluster:
        for name in cluster.ask_metadata(None).topics:
            for row in records(tidelog_broker.bootstrap, name):
                held = b"".join((row.key or b"", row.value or b""))
                assert not any(one in held for one in (b"tops3cret", b"example.org", b"31415926535", b"31415926536")), (
                    name
                )
