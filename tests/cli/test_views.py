"""`tidelog views`: what there is, what is in it, and what was."""

from __future__ import annotations

import time
from argparse import Namespace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from cli.command import Command
from proving import proves
from tidelog.cli import views as commands
from tidelog.client.cluster import Cluster
from tidelog.control.catalog import find_view
from tidelog.control.health import SILENT_MS
from tidelog.control.status import Reporter
from tidelog.errors import UsageError
from tidelog.schema.declaration import declare
from tidelog.testing.broker import TestBroker
from tidelog.views.changes import encode
from tidelog.views.stores.opening import open_store
from views.applying import stepping
from views.writing import Pipeline, declare_view

DAILY = declare({"day": "date", "shop": "long", "sum": "decimal"}, ("day", "shop"))


@pytest.fixture
def tidelog(tidelog_broker: TestBroker) -> Command:
    return Command(tidelog_broker.bootstrap)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/views.db"


@pytest.fixture
def filled(tidelog_broker: TestBroker, url: str) -> str:
    """View revenue, applied."""
    with Cluster(tidelog_broker.bootstrap) as cluster:
        pipeline = Pipeline(cluster, declare_view(cluster, "revenue", stores=[url]).generations[0])
        pipeline.batch({"tea": 10, "milk": 20, "bread": 30})
    apply(tidelog_broker.bootstrap, url, "revenue")
    return url


def apply(bootstrap: str, url: str, view: str) -> None:
    store = open_store(url, view)
    with stepping(bootstrap, url, view) as applier:
        while store.shown() is None:
            applier.step()
    store.close()


@proves("D7", "command_line")
def test_views_are_listed_and_shown_with_their_stores(tidelog: Command, filled: str) -> None:
    (listed,) = tidelog.ok("views", "--json").json
    assert listed == {
        "view": "revenue",
        "app": "shop",
        "live": 1,
        "building": None,
        "key": ["product"],
        "stores": [filled],
    }
    assert "revenue" in tidelog.ok("views").lines[1]
    told = tidelog.ok("views", "show", "revenue", "--json").json
    assert told["generations"][0]["columns"] == {"product": "string", "revenue": "long"}
    assert (told["generations"][0]["state"], told["generations"][0]["topic"]) == ("live", "revenue.v1")
    assert told["stores"] == [{"store": filled, "shown": 1, "ends": {"revenue.v1[0]": 3}, "mark": 0, "error": None}]
    assert any(filled in line and "revenue.v1[0]:3" in line for line in tidelog.ok("views", "show", "revenue").lines)


@proves("D7", "command_line")
def test_rows_are_read_by_key_and_by_condition_page_by_page(tidelog: Command, filled: str) -> None:
    assert tidelog.ok("views", "get", "revenue", "tea", "--json").json == [{"product": "tea", "revenue": 10}]
    assert tidelog.ok("views", "rows", "revenue").lines[1].split() == ["bread", "30"]
    over = tidelog.ok("views", "rows", "revenue", "--where", "revenue > 10", "--json").json
    assert [row["product"] for row in over] == ["bread", "milk"]
    page = tidelog.ok("views", "rows", "revenue", "--limit", "1", "--after-key", "bread")
    assert page.lines[1].split() == ["milk", "20"] and "there are more" in page.lines[2]
    assert tidelog.ok("views", "rows", "revenue", "--store", filled, "--json").json[0]["product"] == "bread"
    waited = tidelog.ok("views", "rows", "revenue", "--after", "orders:0:0", "--limit", "1", "--json")
    assert [row["product"] for row in waited.json] == ["bread"], "as over HTTP, it waits for a record"
    refused = tidelog("views", "rows", "revenue", "--after", "bread")
    assert refused.code == 2 and "'bread' is not a position to wait for" in refused.err
    assert "rows behind a key are --after-key KEY" in refused.err


@proves("D7", "command_line")
def test_keys_of_several_columns_and_of_other_types_are_written_as_json(
    tidelog_broker: TestBroker, tidelog: Command, url: str
) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        pipeline = Pipeline(cluster, declare_view(cluster, "daily", DAILY, stores=[url]).generations[0])
        pipeline.owner.begin()
        pipeline.write_encoded([encode(DAILY, {"day": date(2026, 1, 31), "shop": 7, "sum": Decimal("12.50")})])
        pipeline.owner.commit()
    apply(tidelog_broker.bootstrap, url, "daily")
    found = tidelog.ok("views", "get", "daily", '["2026-01-31", 7]', "--json").json
    assert found == [{"day": "2026-01-31", "shop": 7, "sum": "12.50"}]
    assert "a JSON list of 2" in tidelog("views", "get", "daily", "2026-01-31").err
    assert tidelog("views", "get", "daily", '["2026-01-32", 7]').code == 2


@proves("E5", "command_line")
def test_a_view_is_shown_as_it_was(tidelog_broker: TestBroker, tidelog: Command) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        pipeline = Pipeline(cluster, declare_view(cluster, "revenue").generations[0])
        hour_ago = int(time.time() * 1000) - 3600 * 1000
        pipeline.batch({"tea": 10}, time_ms=hour_ago)
        pipeline.batch({"tea": 20, "milk": 1})
    then = tidelog.ok("views", "as-of", "revenue", "--at", f"@{hour_ago + 1000}", "--json")
    assert then.json == [{"product": "tea", "revenue": 10}]
    before = tidelog.ok("views", "as-of", "revenue", "--at", "2h", "--json")
    assert before.json == [] and "view revenue did not have a row at " in before.err and "it begins at " in before.err
    now = tidelog.ok("views", "as-of", "revenue", "--at", "0s", "--where", "revenue > 5", "--json")
    assert now.json == [{"product": "tea", "revenue": 20}]
    assert "is not a time" in tidelog("views", "as-of", "revenue", "--at", "latest").err


@proves("eo.25", "command_line")
def test_a_generation_is_forgotten_by_command_and_the_live_one_is_not(
    tidelog_broker: TestBroker, tidelog: Command
) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        declare_view(cluster, "revenue")
        declare_view(cluster, "revenue")
    assert "is live; it cannot be forgotten" in tidelog("views", "forget", "revenue", "--generation", "1", "--yes").err
    assert "it has 1, 2" in tidelog("views", "forget", "revenue", "--generation", "3", "--yes").err
    assert "say --yes" in tidelog("views", "forget", "revenue", "--generation", "2").err
    tidelog.ok("views", "forget", "revenue", "--generation", "2", "--yes")
    (listed,) = tidelog.ok("views", "--json").json
    assert (listed["live"], listed["building"]) == (1, None)


@proves("eo.25", "command_line")
@pytest.mark.slow
def test_a_view_is_forgotten_by_command_once_nobody_has_it(
    tidelog_broker: TestBroker, tidelog: Command, filled: str
) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        declare_view(cluster, "daily", inputs=["revenue"])
        declare_view(cluster, "weekly", inputs=["revenue.v1"])
        run, query = Reporter(cluster, "app", "shop"), Reporter(cluster, "query", "shop.revenue")
        query.tell({"state": "stopped", "checkpoint": "/c/shop/revenue.v1"})
        run.tell({"state": "running", "pid": 7, "parts": {"query shop.revenue": "running"}})
        ran = tidelog("views", "forget", "revenue", "--yes")
        assert ran.code == 2 and "view revenue is written by a run of app shop (process 7," in ran.err
        ahead = {"at_ms": int(time.time() * 1000) + 3_600_000}
        run.tell({"state": "running", "parts": {"query shop.revenue": "running"}, **ahead}, at_once=True)
        ran = tidelog("views", "forget", "revenue", "--yes")
        assert ran.code == 2 and " s ahead of the clock here: if it was killed, wait for as long, or" in ran.err
        run.tell({"state": "stopped", "pid": 7, "parts": {"query shop.revenue": "stopped"}}, at_once=True)
        applier = Reporter(cluster, "applier", "revenue.by-hand")
        applier.tell({"view": "revenue"})
        assert "view revenue is applied by revenue.by-hand" in tidelog("views", "forget", "revenue", "--yes").err
        applier.tell({"view": "revenue", "ended": True}, at_once=True)
        assert "view revenue is kept; say --yes" in tidelog("views", "forget", "revenue").err
        said, _, *left = tidelog.ok("views", "forget", "revenue", "--yes").lines
        assert said == "view revenue (which daily, weekly read) is forgotten; what it has left behind:"
        assert [line.split() for line in left] == [
            ["topic", "revenue.v1"],
            ["topic", "__tidelog.marks.revenue.v1"],
            ["rows", "in", filled],
            ["checkpoint", "/c/shop/revenue.v1"],
        ]
    assert [one["view"] for one in tidelog.ok("views", "--json").json] == ["daily", "weekly"]
    assert "no view 'revenue'" in tidelog("views", "show", "revenue").err


@proves("eo.25", "command_line")
@pytest.mark.parametrize("ago_ms", [SILENT_MS // 2, -10 * SILENT_MS], ids=["silent for a while", "a clock ahead"])
def test_a_view_is_not_forgotten_if_somebody_has_begun_with_it_while_it_was_asked(
    tidelog_broker: TestBroker, monkeypatch: pytest.MonkeyPatch, ago_ms: int
) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        declare_view(cluster, "revenue")

        def confirmed(_: str) -> bool:
            figures = {"state": "running", "pid": 7, "parts": {"query shop.revenue": "running"}}
            return Reporter(cluster, "app", "shop").tell({**figures, "at_ms": int(time.time() * 1000) - ago_ms})

        monkeypatch.setattr(commands, "confirm", confirmed)
        with pytest.raises(UsageError, match=r"view revenue is written by a run of app shop \(process 7,"):
            commands.forget(cluster, Namespace(view="revenue", generation=None, yes=False))
        assert find_view(cluster, "revenue").live == 1


@proves("D7", "command_line")
def test_mistakes_are_told_in_one_line(tidelog: Command, filled: str) -> None:
    for words, said in (
        (["show", "revenues"], "no view 'revenues'; there are: revenue"),
        (["rows", "revenue", "--where", "price > 1"], "no column 'price'"),
        (["as-of", "revenue", "--at", "@9223372036854775807"], "@9223372036854775807 is in the future"),
        (["rows", "revenue", "--store", "mysql://me:secret@db/shop"], "'mysql://me:***@db/shop' is not a store"),
    ):
        ran = tidelog("views", *words)
        assert ran.code == 2 and said in ran.err and ran.err.count("\n") == 1
    ran = tidelog("views", "rows", "revenue", "--store", "sqlite:///nowhere/else.db")
    assert ran.code == 1 and "is not shown by sqlite:///nowhere/else.db yet" in ran.err, "it may be there soon"
    ran = tidelog("apply", "revenues", "--store", filled)
    assert ran.code == 2 and "no view 'revenues'" in ran.err and ran.out == "", "it is not said to be applied"


@proves("D7", "command_line")
def test_a_row_that_is_not_there_is_no_mistake_in_the_command(tidelog: Command, filled: str) -> None:
    ran = tidelog("views", "get", "revenue", "nothing")
    assert ran.code == 1 and ran.err == "tidelog: view revenue has no row with the key 'nothing'\n"
