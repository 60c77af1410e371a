"""What a capture refuses before it has told a row, and how a fault that it waits out is logged."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import tidelog
from capture.captured import envelopes
from proving import proves
from tidelog.capture.progress import CaptureProgress, to_fields
from tidelog.capture.running import Capture, _Session
from tidelog.capture.settings import CaptureSettings
from tidelog.capture.sources.opening import open_source
from tidelog.capture.telling import CaptureReport
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.control.captures import CAPTURES, encode_progress, ensure_topic, transactional_id_of
from tidelog.control.owner import Owner
from tidelog.errors import Disconnected, UsageError

TOPIC = "shop.main.orders"


@pytest.fixture
def orders(database: sqlite3.Connection) -> sqlite3.Connection:
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price REAL)")
    return database


def shop(broker: tidelog.Broker, path: Path, **settings: Any) -> Capture:
    found: Capture = tidelog.capture(f"sqlite:///{path}", prefix="shop", bootstrap=broker.bootstrap, **settings)
    return found


@proves("D1")
def test_a_column_or_an_outbox_that_is_misspelt_is_refused_before_a_row_is_told(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path
) -> None:
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5)")
    for wrong, said in (
        ({"exclude": "main.orders.pric"}, "table main.orders has no column 'pric'; did you mean price?"),
        ({"mask": "main.order.item"}, "no table that is captured is called main.order; did you mean main.orders?"),
        ({"exclude": "main.*.price"}, "a column is named in full, without *"),
        ({"outbox": "main.ordrs"}, "--outbox main.ordrs: no table .* did you mean main.orders?"),
    ):
        with pytest.raises(UsageError, match=said.replace("?", r"\?").replace("without *", r"without \*")):
            shop(tidelog_broker, path, **wrong).catch_up()
    with Cluster(tidelog_broker.bootstrap) as cluster:
        assert TOPIC not in topics.names(cluster)
    shop(tidelog_broker, path, exclude="main.orders.price").catch_up()
    orders.execute("ALTER TABLE orders RENAME COLUMN price TO cost")
    shop(tidelog_broker, path, exclude=("main.orders.price", "main.orders.cost")).catch_up()
    assert [sorted(one["after"]) for one in envelopes(tidelog_broker.bootstrap, TOPIC) if one["op"] == "r"] == [
        ["id", "item"]
    ]


@proves("D1", "security")
def test_a_column_that_is_misspelt_is_refused_by_a_capture_that_goes_on_too(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path
) -> None:
    shop(tidelog_broker, path, exclude="main.orders.price").catch_up()
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5)")
    for wrong in ({"exclude": "main.orders.prise"}, {"exclude": "main.orders.price", "mask": "main.orders.itm"}):
        with pytest.raises(UsageError, match="did you mean"):
            shop(tidelog_broker, path, **wrong).catch_up()
    shop(tidelog_broker, path, exclude="main.orders.price").catch_up()
    assert [sorted(one["after"]) for one in envelopes(tidelog_broker.bootstrap, TOPIC)] == [["id", "item"]]


@proves("D1", "security")
def test_a_column_that_was_renamed_may_still_be_named(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop(tidelog_broker, path, exclude="main.orders.price").catch_up()
    orders.execute("ALTER TABLE orders RENAME COLUMN price TO cost")
    for _ in range(2):
        caplog.clear()
        shop(tidelog_broker, path, exclude=("main.orders.price", "main.orders.cost")).catch_up()
        assert "has no column 'price'" in caplog.text


@proves("D1")
def test_a_name_that_another_kind_of_source_has_is_refused(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path
) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        ensure_topic(cluster)
        owner = Owner(cluster, transactional_id_of("shop"))
        owner.begin()
        progress = to_fields(CaptureProgress(position={"lsn": "0/16B3748", "system": "7"}))
        with owner.transaction() as outgoing:
            outgoing.send(CAPTURES, [(*encode_progress("shop", progress), (), 0)])
    with pytest.raises(UsageError, match=r"'shop' is at '0/16B3748', which is not a position of sqlite .* --name"):
        shop(tidelog_broker, path).catch_up()


@proves("D1")
def test_a_fault_that_is_waited_out_is_logged_once_and_once_more_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    report = CaptureReport(CaptureSettings(url="sqlite:///shop.db", prefix="shop"))
    for _ in range(5):
        report.waits_after(Disconnected("db is not reached"))
    report.waits_after(Disconnected("the password is wrong"))
    report.snapshot(1, 2)
    report.snapshot(2, 2)
    report.waits_after(Disconnected("the password is wrong"))
    said = [record.getMessage().removeprefix("capture shop: ") for record in caplog.records]
    again = "the password is wrong; it tries again"
    assert said == ["db is not reached; it tries again", again, "goes on", again]
    assert report.fields()["restarts"] == 7


@proves("D1", "P3")
def test_a_capture_whose_changes_are_not_taken_is_retrying_at_every_session_until_they_are(
    tidelog_broker: tidelog.Broker, orders: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[Any, Any]] = []
    take, mended = _Session._take, 3

    def taken(session: _Session, *words: Any) -> None:
        figures = session._told.fields()
        told.append((figures["state"], figures.get("error")))
        if len(told) < mended:
            raise Disconnected("the disk is full")
        take(session, *words)

    monkeypatch.setattr(_Session, "_take", taken)
    shop(tidelog_broker, path).catch_up()
    orders.execute("INSERT INTO orders VALUES (1, 'tea', 2.5)")
    capture = shop(tidelog_broker, path)
    capture.catch_up()
    again = ("retrying", "the disk is full")
    assert told == [("running", None), again, again]
    assert [one["op"] for one in envelopes(tidelog_broker.bootstrap, TOPIC)] == ["c"]


@proves("D1")
def test_a_fault_is_over_when_a_capture_has_worked_and_not_when_it_follows_its_source_again(path: Path) -> None:
    report = CaptureReport(CaptureSettings(url=f"sqlite:///{path}", prefix="shop"))
    source = open_source(f"sqlite:///{path}", "shop", ("*",), None)

    def told() -> tuple[Any, Any]:
        return report.fields()["state"], report.fields().get("error")

    report.starts()
    report.runs(source, CaptureProgress())
    assert told() == ("running", None)
    report.waits_after(Disconnected("the disk is full"))
    report.runs(source, CaptureProgress())
    assert told() == ("retrying", "the disk is full")
    report.works()
    assert (told(), report.fields()["restarts"]) == (("running", None), 1)
