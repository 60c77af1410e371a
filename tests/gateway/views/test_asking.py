"""POST /pipelines/NAME/ask: 200 with rows; 404, 504 and 503 for the three ways of not being answered."""

from __future__ import annotations

import tidelog
from gateway.serving import Client
from gateway.views.shop import wait_for
from gateway.views.test_permissions import SECRET, Guarded, basic, guarded
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.security import SASL_PLAINTEXT, Security
from tidelog.control.catalog import Editor
from tidelog.control.derived import Derived
from tidelog.views.asking import Pipeline
from views.answering import Answering

__all__ = ["guarded"]  # a fixture

VISITS = Pipeline("site", "visits")
ASK = "/pipelines/visits/ask"


@proves("P6", "http")
def test_an_operator_is_asked_over_http_and_each_way_of_no_answer_has_its_status(
    client: Client, broker: tidelog.Broker
) -> None:
    assert (got := client("POST", ASK, {"key": "ada"})).status == 404 and got.json["error_code"] == 40402
    with Cluster(broker.bootstrap) as cluster:
        Editor(cluster, "visits").write(Derived("visits", "site", "visits", "site.visits", ()))
    with Answering(broker.bootstrap, VISITS, {"ada": [{"user": "ada", "n": 3}]}) as pipeline:
        pipeline.report("running")
        wait_for(lambda: client("POST", ASK, {"key": "ada"}).status == 200)
        got = client("POST", ASK, {"key": {"user": "ada"}})
        assert (got.status, got.json) == (200, {"rows": [{"user": "ada", "n": 3}], "more": 0})
        assert client("POST", "/pipelines/site.visits/ask", {"key": "ada"}).status == 200
        got = client("POST", ASK, {"key": "bob"})
        assert (got.status, got.json["error_code"]) == (404, 40401) and "nothing is kept" in got.message
        pipeline.keep_silent()
        got = client("POST", f"{ASK}?timeout=0.2", {"key": "ada"})
        assert got.status == 504 and "did not answer within 0.2 s" in got.message
        pipeline.report("paused")
        got = client("POST", ASK, {"key": "ada"})
        assert got.status == 503 and "it is paused" in got.message and got.headers["retry-after"] == "5"
        for body in ({}, {"key": 1, "more": 2}, ["ada"], "ada"):
            assert client("POST", ASK, body).status == 400
        assert client("POST", f"{ASK}?timeout=99", {"key": "ada"}).status == 400
        assert client("POST", ASK, {"key": "x" * 20_000}).status == 413


@proves("P6", "http")
def test_a_topic_of_this_name_that_takes_no_questions_says_so(client: Client, broker: tidelog.Broker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        Editor(cluster, "deaf").write(Derived("deaf", "site", "deaf", "site.deaf", ()))
    wait_for(lambda: client("POST", "/pipelines/deaf/ask", {"key": "ada"}).status == 400)
    got = client("POST", "/pipelines/deaf/ask", {"key": "ada"})
    assert "takes no questions" in got.message


@proves("P6", "hostile")
def test_who_may_write_questions_and_read_replies_may_ask_and_nobody_else(guarded: Guarded) -> None:
    def asked(user: str) -> int:
        return guarded.client("POST", ASK, {"key": "ada"}, Authorization=basic(user)).status

    admin = Security(SASL_PLAINTEXT, user="admin", password=SECRET)
    Editor(guarded.sold.cluster, "visits").write(Derived("visits", "site", "visits", "site.visits", ()))
    with Answering(guarded.bootstrap, VISITS, {"ada": [{"n": 1}]}, admin) as pipeline:
        pipeline.report("running")
        wait_for(lambda: asked("admin") == 200)
        assert asked("bob") == 403
        guarded.allow("bob", "read", "__tidelog.views")
        guarded.allow("bob", "read", VISITS.replies)
        guarded.allow("bob", "describe", VISITS.questions)
        assert asked("bob") == 403
        guarded.allow("bob", "write", VISITS.questions)
        wait_for(lambda: asked("bob") == 200)
        assert asked("alice") == 403
