"""Asking by topics alone: ids, time-outs, late answers, and what is no answer. A pipeline is here who reads questions
and writes replies as docs/formats/asking.md has it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import tidelog
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control.derived import Derived
from tidelog.control.health import SILENT_MS
from tidelog.control.status import Report
from tidelog.errors import NotAnswered, PipelineStopped, UnknownKey, UsageError
from tidelog.views.asking import Pipeline, PipelineAnswer, ask, pipeline_of, read_answer, why_stopped
from tidelog.views.lifecycle import new_view
from views.answering import Answering

VISITS = Pipeline("site", "visits")


@pytest.fixture(scope="module")
def broker() -> Iterator[tidelog.Broker]:
    with tidelog.Broker() as running:
        yield running


@pytest.fixture
def cluster(broker: tidelog.Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as connected:
        yield connected


@proves("P6")
def test_every_asker_gets_the_answer_to_his_own_question(broker: tidelog.Broker) -> None:
    def one(number: int) -> PipelineAnswer:
        with Cluster(broker.bootstrap) as cluster:
            return ask(cluster, VISITS, {"user": str(number % 5)}, timeout_s=60)

    with Answering(broker.bootstrap, VISITS, {str(n): [{"user": str(n), "n": n}] for n in range(5)}) as pipeline:
        pipeline.report("running")
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(one, range(24)))
        assert found == [PipelineAnswer([{"user": str(n % 5), "n": n % 5}]) for n in range(24)]
        assert len(pipeline.asked) == len(set(pipeline.asked)) == 24


@proves("P6")
def test_unknown_key_time_out_and_stopped_pipeline_are_three_different_things(
    broker: tidelog.Broker, cluster: Cluster
) -> None:
    with Answering(broker.bootstrap, VISITS, {"ada": []}) as pipeline:
        pipeline.report("running")
        with pytest.raises(UnknownKey, match='nothing is kept of the key "bob"'):
            ask(cluster, VISITS, "bob", timeout_s=60)
        pipeline.keep_silent()
        with pytest.raises(NotAnswered, match=r"site.visits did not answer within 0.2 s; it runs"):
            ask(cluster, VISITS, "ada", timeout_s=0.2)
        pipeline.report("stopped")
        with pytest.raises(PipelineStopped, match=r"site.visits does not answer: it is stopped; `tidelog run`"):
            ask(cluster, VISITS, "ada", timeout_s=60)
        pipeline.report("running", at_ms=int(time.time() * 1000 - SILENT_MS - 5000))
        with pytest.raises(PipelineStopped, match="it has not reported for 3"):
            ask(cluster, VISITS, "ada", timeout_s=60)


@proves("P6")
def test_a_late_answer_is_nobodys_and_of_two_the_first_counts(broker: tidelog.Broker, cluster: Cluster) -> None:
    with Answering(broker.bootstrap, VISITS, {"ada": [{"n": 1}]}) as pipeline:
        pipeline.report("running")
        pipeline.keep_silent()
        with pytest.raises(NotAnswered):
            ask(cluster, VISITS, "ada", timeout_s=0.1)
        pipeline.silent = False
        pipeline.known["ada"] = [{"n": 2}]
        pipeline.twice = True
        assert ask(cluster, VISITS, "ada", timeout_s=60).rows == [{"n": 2}]
        assert ask(cluster, VISITS, "ada", timeout_s=60).rows == [{"n": 2}]


@proves("P6")
def test_who_takes_no_questions_says_what_to_do(cluster: Cluster) -> None:
    with pytest.raises(UsageError, match=r"site.deaf takes no questions; name a parameter `questions`"):
        ask(cluster, Pipeline("site", "deaf"), "ada")


@proves("P6")
def test_a_reply_is_an_answer_or_says_what_it_is_instead() -> None:
    assert read_answer(b'{"status":"answered","rows":[{"a":1}],"more":2}', "k") == PipelineAnswer([{"a": 1}], 2)
    with pytest.raises(UnknownKey):
        read_answer(b'{"status":"unknown"}', "k")
    with pytest.raises(UsageError, match="refused the question: no"):
        read_answer(b'{"status":"refused","error":"no"}', "k")
    for wrong in (None, b"", b"{", b"7", b"[]", b'{"status":"answered"}', b'{"status":"answered","rows":7}'):
        with pytest.raises(NotAnswered, match="not one that this version reads"):
            read_answer(wrong, "k")


@proves("P6")
def test_a_part_that_says_nothing_of_its_state_runs_as_long_as_it_reports() -> None:
    now = 1_000_000.0
    assert why_stopped(None, now) == "it has never run"
    assert why_stopped(Report("query", "a", {"at_ms": now}), now) is None
    assert why_stopped(Report("query", "a", {"at_ms": now + 3_600_000}), now) is None, "its clock is ahead"
    assert why_stopped(Report("query", "a", {"at_ms": now, "state": "failed"}), now) == "it has failed"
    assert why_stopped(Report("query", "a", {"at_ms": now, "state": "paused"}), now) == "it is paused"


@proves("P6")
def test_outputs_are_found_by_their_own_name_and_with_their_app() -> None:
    catalog = {
        ("view", "revenue"): new_view("revenue", app="shop", inputs=(), stores=()),
        ("topic", "big"): Derived("big", "shop", "big", "shop.big", ()),
    }
    assert pipeline_of(catalog, "revenue") == pipeline_of(catalog, "shop.revenue") == Pipeline("shop", "revenue")
    assert pipeline_of(catalog, "big") == Pipeline("shop", "big")
    assert json.dumps(Pipeline("shop", "big").questions) == '"__tidelog.questions.shop.big"'
    with pytest.raises(UsageError, match="output 'nothing' does not exist"):
        pipeline_of(catalog, "nothing")
