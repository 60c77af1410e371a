"""Names of topics, as Debezium gives them."""

from __future__ import annotations

import pytest

import tidelog
from proving import proves
from tidelog.capture import topics
from tidelog.capture.topics import CapturedTopics
from tidelog.client.cluster import Cluster
from tidelog.errors import UsageError


@proves("D1")
@pytest.mark.parametrize(
    ("table", "topic"),
    [
        ("public.kv", "shop.public.kv"),
        ("public.Quoted Tbl", "shop.public.Quoted_Tbl"),
        ("s2.ünï", "shop.s2._n_"),
        ("main.a-b_c", "shop.main.a-b_c"),
    ],
)
def test_what_a_topic_cannot_have_becomes_an_underscore(table: str, topic: str) -> None:
    assert topics.of_table("shop", table) == topic


@proves("D1")
def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match="longer than 249; use a shorter prefix"):
        topics.of_table("shop", "public." + "x" * 250)


@proves("D1")
def test_two_tables_cannot_share_a_topic(tidelog_broker: tidelog.Broker) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        made = CapturedTopics(cluster)
        made.claim("shop.main.a_b", "main.a b")
        made.claim("shop.main.a_b", "main.a b")
        with pytest.raises(UsageError, match=r"main\.a b and main\.a_b would both be captured"):
            made.claim("shop.main.a_b", "main.a_b")
