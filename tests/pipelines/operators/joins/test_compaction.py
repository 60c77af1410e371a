"""A table whose topic forgets versions that a join as of event time asks for is refused, with the reason."""

from __future__ import annotations

import warnings

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from contract import Broker
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.errors import UsageError
from tidelog.pipelines.operators.joins.compaction import TopicRetention, check_history, history_of
from tidelog.pipelines.operators.joins.enrich import enrich
from tidelog.pipelines.operators.time import event_time

HOUR = 3_600_000
POLICIES = {
    "kept": ({"cleanup.policy": "delete", "retention.ms": "-1"}, None, None),
    "deleted": ({"cleanup.policy": "delete", "retention.ms": "1000"}, None, 1000),
    "compacted": ({"cleanup.policy": "compact", "retention.ms": "1000"}, 0, None),
    "lagging": ({"cleanup.policy": "compact", "min.compaction.lag.ms": str(HOUR)}, HOUR, None),
    "both": ({"cleanup.policy": "compact, delete", "retention.ms": "5"}, 0, 5),
}


@proves("P10")
@pytest.mark.parametrize("policy", POLICIES)
def test_how_a_topic_forgets_is_read_from_its_settings(policy: str) -> None:
    settings, compacted, deleted = POLICIES[policy]
    assert history_of("rates", settings) == TopicRetention("rates", compacted, deleted)


@proves("P10")
def test_the_lag_has_to_cover_the_horizon() -> None:
    check_history(TopicRetention("rates", HOUR, None), HOUR)
    check_history(TopicRetention("rates", None, None), 10**12)
    with pytest.raises(
        UsageError, match=r"topic rates is compacted after 3600000 ms.*up to 3600001 ms back.*min.compaction"
    ):
        check_history(TopicRetention("rates", HOUR, None), HOUR + 1)
    with pytest.warns(UserWarning, match="topic rates deletes rows after 5 ms"):
        check_history(TopicRetention("rates", None, 5), 0)


@proves("P10")
@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "batch"])
@pytest.mark.slow
def test_a_join_with_a_compacted_topic_is_refused_when_declared(
    spark: SparkSession, broker: Broker, streaming: bool
) -> None:
    with Cluster(broker.bootstrap) as cluster:
        for name in ("compacted", "lagging", "kept"):
            if name not in topics.names(cluster):
                topics.create(cluster, name, partitions=1, configs=POLICIES[name][0])

    def table(topic: str, time: str, lateness: str) -> object:
        reader = spark.readStream if streaming else spark.read
        options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
        rows = reader.format("tidelog").options(**options).load()
        named = rows.select(F.col("key").alias("key"), F.col("timestamp").alias(time))
        return named.transform(event_time(time, lateness))

    left = table("kept", "at", "1 hour")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        left.transform(enrich(table("lagging", "since", "30 minutes"), on="key"))
        left.transform(enrich(table("compacted", "since", "1 hour"), on="key", as_of="latest"))
    for topic, more in (("compacted", {}), ("lagging", {"horizon": "2 hours"})):
        with pytest.raises(UsageError, match=f"topic {topic} is compacted after"):
            left.transform(enrich(table(topic, "since", "1 hour"), on="key", **more))
    with pytest.raises(UsageError, match="topic compacted is compacted"):
        named = {"topic": "compacted", "bootstrap": broker.bootstrap}
        left.transform(enrich(table("kept", "since", "1 hour"), on="key", **named))
    with pytest.raises(UsageError, match="given together"):
        left.transform(enrich(table("kept", "since", "1 hour"), on="key", topic="compacted"))
