"""A store that is left over from another log, or is newer than one that was restored, is never gone on with."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

import tidelog
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control import catalog
from tidelog.control.catalog import Editor
from tidelog.errors import UsageError
from tidelog.testing.broker import TestBroker
from tidelog.views import lifecycle
from tidelog.views.same_log import CLOCKS_APART_MS, is_kept
from tidelog.views.stores.store import COPY
from views.applying import applying, shown, stepping, until, until_applied
from views.writing import REVENUE, Pipeline, declare_view, make_topics

DAY_MS = 24 * 3600 * 1000


@proves("eo.19")
@pytest.mark.parametrize("more", [0, 20], ids=["shorter", "longer"])
def test_a_store_of_a_log_that_was_wiped_is_built_anew_from_the_one_that_took_its_place(
    tmp_path: Path, url: str, more: int
) -> None:
    with tidelog.Broker(tmp_path / "old") as broker, Cluster(broker.bootstrap) as cluster:
        pipeline = Pipeline(cluster, declare_view(cluster, "revenue").generations[0])
        for number in range(5):
            last = pipeline.batch({"only of the old one": number, "tea": number})
        with applying(broker.bootstrap, url):
            until_applied(url, last.ends)
    with tidelog.Broker(tmp_path / "new") as broker, Cluster(broker.bootstrap) as cluster:
        pipeline = Pipeline(cluster, declare_view(cluster, "revenue").generations[0], query_id="another")
        last = pipeline.batch({"first": 1, "tea": 1})
        for number in range(more):
            last = pipeline.batch({"tea": 1000 + number})
        with applying(broker.bootstrap, url) as running:
            until(lambda: (now := shown(url)) is not None and now.generation == COPY + 1)
            assert until_applied(url, last.ends).rows == {"first": 1, "tea": 999 + more if more else 1}
        assert "micro-batch 4 of query q, which this log does not have" in running.said[0]


@proves("eo.19")
def test_a_store_that_is_newer_than_a_log_that_was_restored_is_built_anew(tmp_path: Path, url: str) -> None:
    with tidelog.Broker(tmp_path / "data") as broker, Cluster(broker.bootstrap) as cluster:
        first = Pipeline(cluster, declare_view(cluster, "revenue").generations[0]).batch({"tea": 1})
        with applying(broker.bootstrap, url):
            until_applied(url, first.ends)
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    with tidelog.Broker(tmp_path / "data") as broker, Cluster(broker.bootstrap) as cluster:
        pipeline = Pipeline(cluster, catalog.find_view(cluster, "revenue").generations[0])
        last = pipeline.batch({"lost": 1})
        with applying(broker.bootstrap, url) as running:
            assert until_applied(url, last.ends).generation == 1, "the same log, and it is gone on with"
            assert running.said == []
    with tidelog.Broker(tmp_path / "backup") as broker, Cluster(broker.bootstrap) as cluster:
        pipeline = Pipeline(cluster, catalog.find_view(cluster, "revenue").generations[0])
        for product in ("coffee", "cocoa"):
            last = pipeline.batch({product: 1})
        with applying(broker.bootstrap, url):
            assert until_applied(url, last.ends, generation=COPY + 1).rows == {"tea": 1, "coffee": 1, "cocoa": 1}


@proves("eo.19")
def test_a_store_that_shows_a_later_generation_than_the_log_knows_is_refused(tmp_path: Path, url: str) -> None:
    with tidelog.Broker(tmp_path / "new") as broker, Cluster(broker.bootstrap) as cluster:
        Pipeline(cluster, declare_view(cluster, "revenue").generations[0]).batch({"tea": 1})
        editor = Editor(cluster, "revenue")
        both = lifecycle.begin(editor.view(), REVENUE, "f2", 1)  # type: ignore[arg-type]
        make_topics(cluster, both.generations[1])
        mark = Pipeline(cluster, both.generations[1]).batch({"tea": 2})
        editor.write(lifecycle.switch(both, 2, mark.ends))
        with applying(broker.bootstrap, url):
            until_applied(url, mark.ends, generation=2)
    with tidelog.Broker(tmp_path / "restored") as broker, Cluster(broker.bootstrap) as cluster:
        Pipeline(cluster, declare_view(cluster, "revenue").generations[0]).batch({"tea": 5000})
        with (
            stepping(broker.bootstrap, url) as applier,
            pytest.raises(UsageError, match=r"shown by its store as generation 2, and the newest .* is 1.*empty store"),
        ):
            applier.step()


@proves("eo.19")
@pytest.mark.parametrize("days", [-6, 0, 1])
def test_a_mark_that_is_stamped_otherwise_than_it_says_is_found_again(
    tidelog_broker: TestBroker, cluster: Cluster, url: str, days: int
) -> None:
    pipeline = Pipeline(cluster, declare_view(cluster, "revenue").generations[0])
    now = int(time.time() * 1000)
    for number in range(3):
        mark = pipeline.batch({"tea": number}, time_ms=now + days * DAY_MS)
        with applying(tidelog_broker.bootstrap, url) as running:
            assert until_applied(url, mark.ends).generation == 1
            assert running.said == []


@proves("eo.19")
def test_a_mark_that_compaction_may_have_taken_is_not_asked_for(cluster: Cluster) -> None:
    mark = Pipeline(cluster, declare_view(cluster, "revenue").generations[0]).batch({"tea": 1}, time_ms=7 * DAY_MS)
    assert is_kept(mark, now_ms=14 * DAY_MS - CLOCKS_APART_MS - 1, horizon_ms=7 * DAY_MS)
    assert not is_kept(mark, now_ms=14 * DAY_MS - CLOCKS_APART_MS, horizon_ms=7 * DAY_MS)
