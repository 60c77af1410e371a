"""`tidelog ask`: an operator's answer and a view's row, and three ways of no answer told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.command import Command
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control.catalog import Editor
from tidelog.control.derived import Derived
from tidelog.testing.broker import TestBroker
from tidelog.views.asking import Pipeline as Asked
from tidelog.views.stores.opening import open_store
from views.answering import Answering
from views.applying import stepping
from views.writing import Pipeline, declare_view


@pytest.fixture
def tidelog(tidelog_broker: TestBroker) -> Command:
    return Command(tidelog_broker.bootstrap)


@proves("P6", "command_line")
def test_a_pipeline_answers_and_what_it_does_not_answer_is_said(tidelog: Command, tidelog_broker: TestBroker) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        Editor(cluster, "visits").write(Derived("visits", "site", "visits", "site.visits", ()))
    with Answering(tidelog_broker.bootstrap, Asked("site", "visits"), {"ada": [{"user": "ada", "n": 3}]}) as pipeline:
        pipeline.report("running")
        assert tidelog.ok("ask", "visits", "ada").lines == ["USER  N", "ada   3"]
        said = tidelog.ok("ask", "site.visits", '{"user": "ada"}', "--json").json
        assert said == {"rows": [{"user": "ada", "n": 3}], "more": 0}
        unknown = tidelog("ask", "visits", "bob")
        assert unknown.code == 1 and "nothing is kept of the key" in unknown.err
        pipeline.keep_silent()
        late = tidelog("ask", "visits", "ada", "--timeout", "0.1")
        assert late.code == 1 and "did not answer within 0.1 s; it runs" in late.err
        assert "did not answer within 0.2 s" in tidelog("ask", "visits", "ada", "--wait", "0.2").err  # its old name
        pipeline.report("stopped")
        stopped = tidelog("ask", "visits", "ada", "--timeout", "60")
        assert stopped.code == 1 and "does not answer: it is stopped" in stopped.err
    assert tidelog("ask", "nothing", "ada").code == 2
    assert "--wait" not in tidelog.ok("ask", "--help").out


@proves("P6", "D7", "command_line")
def test_a_view_answers_from_its_store(tidelog: Command, tidelog_broker: TestBroker, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/views.db"
    with Cluster(tidelog_broker.bootstrap) as cluster:
        Pipeline(cluster, declare_view(cluster, "revenue", stores=[url]).generations[0]).batch({"tea": 10})
    store = open_store(url, "revenue")
    with stepping(tidelog_broker.bootstrap, url, "revenue") as applier:
        while store.shown() is None:
            applier.step()
    store.close()
    assert tidelog.ok("ask", "revenue", "tea", "--view").lines == ["PRODUCT  REVENUE", "tea           10"]
    assert tidelog.ok("ask", "revenue", "tea", "--view", "--json").json["rows"] == [{"product": "tea", "revenue": 10}]
    assert (none := tidelog("ask", "revenue", "rum", "--view")).code == 1 and "has no row with the key" in none.err
