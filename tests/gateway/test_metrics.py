"""What /metrics tells is true, and can be read by who reads such: the parsers are those of Prometheus' own client."""

from __future__ import annotations

import json
import re
import runpy
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

import tidelog
from gateway.serving import Client, Got
from proving import proves
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.control.metrics import Metrics
from tidelog.control.status import Report, Reporter
from tidelog.gateway.metrics.collecting import Found
from tidelog.gateway.metrics.collecting import _broker as tell_broker
from tidelog.gateway.metrics.exposition import OPEN_METRICS, PROMETHEUS, text, wants_open_metrics
from tidelog.gateway.metrics.table import COUNTER, DISK_LEFT, HISTOGRAM, METRICS, Buckets, Metric

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 180.0
STRANGE_GROUP = 'a "group"\nof \\ strange {name}'

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples_of(got: Got) -> Samples:
    assert got.status == 200, got
    parse = parse_open_metrics if "openmetrics" in got.headers["content-type"] else parse_prometheus
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(got.body.decode())
        for sample in family.samples
    }


def value(samples: Samples, metric: str, /, **labels: str) -> float:
    return samples[metric, tuple(sorted(labels.items()))]


@pytest.fixture(scope="module")
def used(broker: tidelog.Broker) -> Iterator[Cluster]:
    """A broker with a topic of two partitions, ten records in the first, and a group that has read four of them."""
    with Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "orders", partitions=2)
        with Producer(cluster) as producer:
            for _ in range(10):
                producer.send("orders", b"x" * 100, partition=0)
        at = TopicPartition("orders", 0)
        topics.delete_records(cluster, {at: 2})
        groups.commit(cluster, "readers", {at: 4})
        groups.commit(cluster, STRANGE_GROUP, {at: 10})
        groups.commit(cluster, "early", {at: 0})
        yield cluster


@proves("metrics", "T8")
@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_topics_and_groups_are_as_they_are(used: Cluster, client: Client, accept: str) -> None:
    got = client("GET", "/metrics", Accept=accept)
    assert got.headers["content-type"] == (OPEN_METRICS if accept else PROMETHEUS)
    samples = samples_of(got)
    first = {"topic": "orders", "partition": "0"}
    assert value(samples, "tidelog_topic_partitions", topic="orders") == 2
    assert value(samples, "tidelog_partition_start_offset", **first) == 2
    assert value(samples, "tidelog_partition_end_offset", **first) == 10
    assert value(samples, "tidelog_partition_end_offset", topic="orders", partition="1") == 0
    assert value(samples, "tidelog_partition_size_bytes", **first) > 1000
    assert value(samples, "tidelog_group_committed_offset", group="readers", **first) == 4
    assert value(samples, "tidelog_group_lag_records", group="readers", **first) == 6
    assert value(samples, "tidelog_group_lag_records", group=STRANGE_GROUP, **first) == 0
    assert value(samples, "tidelog_group_lag_bytes", group="readers", **first) > 600
    assert 0 <= value(samples, "tidelog_group_lag_seconds", group="readers", **first) < 600
    assert value(samples, "tidelog_group_retention_left_seconds", group="readers", **first) > 600_000
    assert value(samples, "tidelog_group_lost_records", group="early", **first) == 2
    assert value(samples, "tidelog_groups", state="Empty") == 3
    assert value(samples, "tidelog_brokers") == 1
    assert value(samples, "tidelog_partitions_without_leader") == 0
    for part in ("topics", "sizes", "groups", "brokers", "parts"):
        assert value(samples, "tidelog_scrape_failed", part=part) == 0


@proves("metrics")
def test_the_broker_tells_of_itself(used: Cluster, client: Client) -> None:
    deadline = time.monotonic() + PATIENCE_S
    counted = ("tidelog_broker_requests_total", (("api", "produce"), ("broker", "1")))
    while counted not in (samples := samples_of(client("GET", "/metrics"))):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert samples[counted] >= 1
    assert value(samples, "tidelog_broker_commit_duration_seconds_count", broker="1") >= 1
    assert value(samples, "tidelog_broker_partitions_offline", broker="1") == 0
    assert value(samples, "tidelog_broker_connections", broker="1") >= 1
    assert abs(value(samples, "tidelog_broker_report_time_seconds", broker="1") - time.time()) < 600


@proves("metrics", "P3", "F1")
def test_every_part_tells_its_numbers_and_whether_it_has_a_fault(used: Cluster, client: Client) -> None:
    numbers = Metrics(7, 5, 1, 40, 2.5, 1_800_000_000_000, 3, 900, 250, 2, 1_800_000_001_500)
    Reporter(used, "capture", "shop").tell({"state": "running", **numbers.fields}, at_once=True)
    Reporter(used, "query", "shop.a").tell({"state": "waiting", "error": {"message": "away"}}, at_once=True)
    Reporter(used, "query", "shop.old").tell({"state": "stopped", "at_ms": 1}, at_once=True)
    samples = samples_of(client("GET", "/metrics"))
    shop = {
        name: value for (name, labels), value in samples.items() if labels == (("kind", "capture"), ("name", "shop"))
    }
    assert abs(shop.pop("tidelog_part_report_time_seconds") - time.time()) < 600
    assert shop == {
        "tidelog_part_healthy": 1,
        "tidelog_part_rows_in_total": 7,
        "tidelog_part_rows_out_total": 5,
        "tidelog_part_late_rows_total": 1,
        "tidelog_part_lag_records": 40,
        "tidelog_part_lag_seconds": 2.5,
        "tidelog_part_watermark_time_seconds": 1_800_000_000,
        "tidelog_part_state_rows": 3,
        "tidelog_part_state_bytes": 900,
        "tidelog_part_batch_duration_seconds": 0.25,
        "tidelog_part_restarts_total": 2,
        "tidelog_part_last_error_time_seconds": 1_800_000_001.5,
    }
    assert value(samples, "tidelog_part_state", kind="query", name="shop.a", state="retrying") == 1
    assert value(samples, "tidelog_part_healthy", kind="query", name="shop.a") == 0
    assert not [labels for _, labels in samples if ("name", "shop.old") in labels], "it ended long ago"


@proves("metrics")
def test_every_name_that_is_served_is_in_the_table(used: Cluster, client: Client) -> None:
    suffixes = {HISTOGRAM: ("_bucket", "_sum", "_count")}
    known = {metric.name + end for metric in METRICS for end in suffixes.get(metric.kind, ("",))}
    assert {name for name, _ in samples_of(client("GET", "/metrics"))} <= known


@proves("metrics")
def test_names_follow_the_rules() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith("tidelog_")
        assert (metric.kind == COUNTER) == metric.name.endswith("_total")
        assert metric.what.endswith(".")


@proves("metrics", "P3")
def test_what_was_lost_is_told_by_topic_or_operator_and_reason_and_a_part_that_retries_when_it_is_tried_again(
    used: Cluster, client: Client
) -> None:
    told = {
        "state": "retrying",
        "next_try_ms": 1_800_000_002_000,
        "left_out": {"orders": {"it is not JSON": 3, "passed": 1}},
        "operators": {"tumbling": {"in": 9, "late": 2, "without_time": 1}},
        "by_spark": {"stateStoreSave": {"late": 4}},
    }
    Reporter(used, "query", "shop.lossy").tell(told, at_once=True)
    samples, part = samples_of(client("GET", "/metrics")), {"kind": "query", "name": "shop.lossy"}
    left_out, dropped = "tidelog_part_left_out_records_total", "tidelog_part_dropped_rows_total"
    assert value(samples, left_out, **part, topic="orders", reason="it is not JSON") == 3
    assert value(samples, left_out, **part, topic="orders", reason="passed") == 1
    assert value(samples, dropped, **part, operator="tumbling", reason="late") == 2
    assert value(samples, dropped, **part, operator="tumbling", reason="without_time") == 1
    assert value(samples, dropped, **part, operator="spark stateStoreSave", reason="late") == 4
    assert value(samples, "tidelog_part_next_try_time_seconds", **part) == 1_800_000_002


@proves("metrics")
def test_the_dashboard_has_a_panel_of_every_metric_and_no_panel_of_another(used: Cluster, client: Client) -> None:
    made: Any = runpy.run_path(str(ROOT / "scripts" / "grafana_dashboard.py"))
    text = (ROOT / "docs" / "reference" / "grafana.json").read_text()
    assert text == made["dashboard"](), "python scripts/grafana_dashboard.py writes it"
    panels = [one for one in json.loads(text)["panels"] if one["type"] != "row"]
    named = {name for one in panels for name in re.findall(r"tidelog_\w+", one["targets"][0]["expr"])}
    suffixes = {HISTOGRAM: "_bucket"}
    assert named == {metric.name + suffixes.get(metric.kind, "") for metric in METRICS}
    served = {re.sub(r"_(sum|count)$", "_bucket", name) for name, _ in samples_of(client("GET", "/metrics"))}
    assert {name for name in served if "duration_seconds_bucket" in name or name in named} == served


@proves("metrics")
def test_the_page_of_metrics_is_up_to_date() -> None:
    made: Any = runpy.run_path(str(ROOT / "scripts" / "metrics_page.py"))
    assert (ROOT / "docs" / "reference" / "metrics.md").read_text() == made["page"]()


@proves("metrics")
@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=nonsense", False),
    ],
)
def test_who_asks_for_open_metrics_gets_it(accept: str, wanted: bool) -> None:
    assert wants_open_metrics(accept) is wanted


@proves("metrics")
@given(st.lists(st.text(), unique=True, max_size=5), st.booleans())
def test_whatever_a_label_says_is_read_back(values: list[str], open_metrics: bool) -> None:
    metric = Metric("tidelog_any", "gauge", 'What "it" \\ says.', ("label",))
    written = text({metric: [((one,), number) for number, one in enumerate(values)]}, open_metrics=open_metrics)
    parse = parse_open_metrics if open_metrics else parse_prometheus
    families = list(parse(written.decode()))
    read = {sample.labels["label"]: sample.value for family in families for sample in family.samples}
    assert read == {one: number for number, one in enumerate(values)}


@proves("metrics")
def test_a_histogram_counts_upwards() -> None:
    metric = Metric("tidelog_took_seconds", HISTOGRAM, "How long.", ("broker",))
    written = text({metric: [(("1",), Buckets((0.1, 1.0), (3, 2, 1), 4.5))]}, open_metrics=True)
    [family] = parse_open_metrics(written.decode())
    assert [(sample.name, sample.labels.get("le"), sample.value) for sample in family.samples] == [
        ("tidelog_took_seconds_bucket", "0.1", 3),
        ("tidelog_took_seconds_bucket", "1.0", 5),
        ("tidelog_took_seconds_bucket", "+Inf", 6),
        ("tidelog_took_seconds_sum", None, 4.5),
        ("tidelog_took_seconds_count", None, 6),
    ]


@proves("metrics", "T6")
@pytest.mark.parametrize(("hours", "seconds"), [(None, None), (2.5, 9000.0)])
def test_the_time_until_the_disk_is_full_is_told_when_it_is_filling(hours: float | None, seconds: float | None) -> None:
    figures = {
        "at_ms": 1000,
        "started_ms": 1000,
        "requests": {},
        "commits": {"le_s": [], "counts": [0], "sum_s": 0.0},
        "disk": {"free_bytes": 7, "hours_left": hours},
    }
    found: Found = defaultdict(list)
    tell_broker(Report("broker", "1", figures), found)
    written = text(found, open_metrics=False).decode()
    told = {sample.name: sample.value for family in parse_prometheus(written) for sample in family.samples}
    assert told["tidelog_broker_disk_free_bytes"] == 7
    assert told.get(DISK_LEFT.name) == seconds
