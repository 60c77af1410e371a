"""`tidelog wait`: until a view has what is in its inputs now, a record, or all up to a time."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from cli.command import Command
from proving import proves
from tidelog.cli import wait
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.control.marks import Sources
from tidelog.errors import Disconnected
from tidelog.testing.broker import TestBroker
from views.applying import applying, until_applied
from views.writing import ORDERS, Pipeline, declare_view

NOON = 1_767_614_400_000  # 2026-01-05T12:00Z


@pytest.fixture
def tidelog(tidelog_broker: TestBroker) -> Command:
    return Command(tidelog_broker.bootstrap)


@proves("eo.22", "D8", "command_line")
def test_a_wait_from_the_shell(tidelog_broker: TestBroker, tidelog: Command, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/views.db"
    with ExitStack() as opened:
        cluster = opened.enter_context(Cluster(tidelog_broker.bootstrap))
        topics.create(cluster, "orders", partitions=1)
        pipeline = Pipeline(cluster, declare_view(cluster, "revenue", stores=[url]).generations[0])
        opened.enter_context(applying(tidelog_broker.bootstrap, url))
        with Producer(cluster) as producer:
            for _ in range(3):
                producer.send("orders", b"{}")
        counts = {"operators": {"enrich": {"in": 3, "held": 2}}}
        told = {"watermark_ms": NOON, "watermarks": {"orders": NOON}, "counts": counts}
        pipeline.batch({"tea": 1}, sources=Sources({ORDERS: 2}), **told)

        late = tidelog("wait", "revenue", "--within", "0.3")
        assert late.code == 1 and "has not read orders:0:2 in time" in late.err
        one = tidelog.ok("wait", "revenue", "--after", "orders:0:1")
        assert one.out.startswith("revenue has orders:0:1; watermark 2026-01-05")
        pipeline.batch({"tea": 2}, sources=Sources({ORDERS: 3}), **told)
        said = tidelog.ok("wait", "revenue")
        assert said.out == "revenue has what was in its inputs; watermark 2026-01-05T12:00:00.000Z; 2 held by enrich\n"
        shown = tidelog.ok("wait", "revenue", "--json").json
        assert (shown["watermark_ms"], shown["held"], shown["generation"]) == (NOON, {"enrich": 2}, 1)

        tidelog.ok("wait", "revenue", "--event-time", "2026-01-05T12:00Z")
        held = tidelog("wait", "revenue", "--event-time", f"@{NOON + 1}")
        assert held.code == 1 and "it is held by orders (at 2026-01-05T12:00:00.000Z), an input" in held.err
        assert tidelog("wait", "nothing").code == 2
        assert "is not a time" in tidelog("wait", "revenue", "--event-time", "latest").err


@proves("eo.22", "command_line")
def test_a_wait_goes_on_while_the_broker_is_away(
    tidelog_broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url, bootstrap = f"sqlite:///{tmp_path}/views.db", tidelog_broker.bootstrap
    with Cluster(bootstrap) as cluster:
        pipeline = Pipeline(cluster, declare_view(cluster, "revenue", stores=[url]).generations[0])
        mark = pipeline.batch({"tea": 1}, sources=Sources({ORDERS: 2}))
        with applying(bootstrap, url):
            until_applied(url, mark.ends)
    tidelog_broker.stop()
    words = ["revenue", "--after", "orders:0:1", "--bootstrap", bootstrap]
    with pytest.raises(Disconnected, match=r"was away when the 0.01 s of --within were over: no broker was reached"):
        wait.run([*words, "--within", "0.01"])

    said: list[str] = []

    def come_back(text: str) -> None:
        said.append(text)
        tidelog_broker.start()

    monkeypatch.setattr(wait, "warn", come_back)
    assert wait.run([*words, "--within", "60"]) == 0
    assert capsys.readouterr().out == "revenue has orders:0:1\n"
    assert len(said) == 1 and "no broker was reached" in said[0]
