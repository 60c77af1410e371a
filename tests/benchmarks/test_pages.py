"""The pages that benches publish: what stands in a line, which figures stay, and what is kept behind a page."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from proving import proves

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.broker import report as of_brokers
from bench.figures import Figures
from bench.pipelines import report as of_pipelines
from bench.pipelines.bench import Bench as BenchOfPipelines
from bench.run import Extent, Run
from bench.spark import report as of_spark
from bench.views import report as of_views

PAGES = Path(__file__).parent / "pages"
TAKEN = {"date": "2026-01-02", "commit": "abc1234", "reps": 3, "machine": "2 x CPU, 8 GB"}
WITH_SPARK = {**TAKEN, "pyspark": "4.3.0", "load": "2.5"}


def figures_of(entries: dict[tuple[str, str], dict[str, list[float]]]) -> Figures:
    figures = Figures()
    for (row, metric), sides in entries.items():
        for side, values in sides.items():
            for value in values:
                figures.add(row, metric, side, value)
    return figures


def below(head: str, page: str) -> str:
    """Without what is said above the first table."""
    assert page.startswith(head)
    return page.removeprefix(head)


def expected(name: str) -> str:
    return (PAGES / f"{name}.md").read_text()


@proves("benchmarks")
def test_the_page_of_brokers_has_times_goals_and_whether_they_are_met() -> None:
    figures = figures_of(
        {
            ("produce 1 KB, 16 KB batches", "MB/s"): {
                "tidelog, synced": [90.0, 358.2, 400.0],
                "kafka, default": [138.0],
                "mock in C": [1234.5],
            },
            ("produce 1 KB, 16 KB batches", "CPU s/GB"): {"tidelog, synced": [5.0], "kafka, default": [0.05]},
            ("launch to first ack", "ms"): {"tidelog, synced": [100.0], "kafka, default": [1400.0]},
        }
    )
    assert below(of_brokers.HEAD, of_brokers.markdown(figures, {"throughput": TAKEN})) == expected("broker")


@proves("benchmarks")
def test_the_page_of_spark_has_a_table_of_topics_and_one_of_sessions() -> None:
    figures = figures_of(
        {
            ("read 1 KB to noop", "rows/s"): {
                "ours, Kafka": [2000.0],
                "JVM, Kafka": [1000.0],
                "ours, Tidelog": [1900.0],
                "JVM, Tidelog": [1000.0],
                "Parquet": [5000.0],
            },
            ("age of a record when a sink has it", "p50 ms"): {"our session": [70.1], "PySpark's defaults": [202.0]},
        }
    )
    assert below(of_spark.HEAD, of_spark.markdown(figures, {"read": WITH_SPARK})) == expected("spark")


@proves("benchmarks")
def test_the_page_of_views_has_times_beside_what_is_written_by_hand() -> None:
    figures = figures_of(
        {
            ("SQLite, micro-batches of 1,000", "updates/s"): {
                "applier": [30000.0],
                "applier, a transaction each": [15000.0],
                "foreachBatch by hand": [20000.0],
            },
            ("SQLite, micro-batches of 1,000", "CPU s/M updates"): {"applier": [10.0], "foreachBatch by hand": [25.0]},
            ("feed to 1,000 subscribers", "p50 ms"): {"applier": [12.34]},
        }
    )
    assert below(of_views.HEAD, of_views.markdown(figures, {"updates": WITH_SPARK})) == expected("views")


@proves("benchmarks")
def test_the_page_of_views_has_freshness_beside_what_was_before_and_beside_others() -> None:
    figures = figures_of(
        {
            ("updates", "updates/s"): {"applier": [30000.0]},
            ("freshness", "p50 ms"): {"Tidelog": [100.0], "before": [500.0]},
            ("to a reader", "p50 ms"): {
                "Tidelog": [100.0],
                "PyFlink": [150.0],
                "Quix Streams": [50.0],
                "PySpark by hand, at least once": [300.0],
            },
            ("idle", "% of a core"): {"Tidelog": [3.0]},
        }
    )
    page = below(of_views.HEAD, of_views.markdown(figures, {"peers": WITH_SPARK}))
    assert page.replace(of_views.FRESHNESS, "") == expected("views_freshness")


@proves("benchmarks")
def test_the_page_of_pipelines_has_goals_where_a_peer_is_ahead_and_what_has_no_figure() -> None:
    figures = figures_of(
        {
            ("q1, 100,000 events", "rows/s"): {"Tidelog": [1000.0], "PySpark by hand": [900.0], "Bytewax": [4000.0]},
            ("q1, 100,000 events", "CPU s/M rows"): {"Tidelog": [2.0], "PySpark by hand": [3.0]},
            ("state of 100,000 keys", "rows/s"): {"fold": [400_000.0], "per key": [10_000.0]},
        }
    )
    reasons = {"q1, 100,000 events": {"PyFlink": "Traceback\nValueError: no such thing\nmore"}}
    taken = {"nexmark": {**WITH_SPARK, "share": 0.5}}
    assert below(of_pipelines.HEAD.read_text(), of_pipelines.markdown(figures, reasons, taken)) == expected("pipelines")


@proves("benchmarks")
def test_a_run_replaces_its_rows_and_keeps_those_of_earlier_ones(tmp_path: Path) -> None:
    page = replace(of_brokers.PAGE, path=tmp_path / "page.md", results=tmp_path / "results" / "broker.json")
    first, second = (Run(tmp_path, Extent(2, 1.0, False)) for _ in range(2))
    for row in ("old row", "taken again"):
        first.figures.add(row, "ms", "tidelog, synced", 1.0)
    assert page.earlier() == {"taken": {}, "figures": []}
    page.publish(first, page.earlier(), {"old": TAKEN})
    for value in (7.0, 9.0):
        second.figures.add("taken again", "ms", "tidelog, synced", value)
    page.publish(second, page.earlier(), {"old": TAKEN, "new": TAKEN})
    assert page.earlier() == {
        "taken": {"old": TAKEN, "new": TAKEN},
        "figures": [
            {"row": "taken again", "metric": "ms", "side": "tidelog, synced", "values": [7.0, 9.0]},
            {"row": "old row", "metric": "ms", "side": "tidelog, synced", "values": [1.0]},
        ],
    }
    assert [line.split(" | ")[2] for line in page.path.read_text().splitlines() if "| ms |" in line] == ["8.00", "1.00"]


@proves("benchmarks")
def test_a_run_of_one_side_keeps_the_others_and_a_figure_ends_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_pipelines, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(of_pipelines, "RESULTS", tmp_path / "pipelines.json")
    row, extent = "q1, 100 events", Extent(1, 0.5, False)
    first, second = (BenchOfPipelines(tmp_path, extent, sides=[], queries=[]) for _ in range(2))
    first.figures.add(row, "rows/s", "Tidelog", 10.0)
    first.cannot(row, "Bytewax", "no such wheel")
    first.cannot(row, "PyFlink", "no Maven")
    of_pipelines.publish(first, of_pipelines.earlier(), {})
    second.figures.add(row, "rows/s", "Bytewax", 5.0)
    of_pipelines.publish(second, of_pipelines.earlier(), {})
    kept = json.loads((tmp_path / "pipelines.json").read_text())
    assert {entry["side"]: entry["values"] for entry in kept["figures"]} == {"Tidelog": [10.0], "Bytewax": [5.0]}
    assert kept["reasons"] == {row: {"PyFlink": "no Maven"}}


@proves("benchmarks")
def test_facts_of_a_run_say_when_from_what_and_on_which_machine(tmp_path: Path) -> None:
    run = BenchOfPipelines(tmp_path, Extent(2, 0.5, False), sides=[], queries=[])
    assert list(of_brokers.PAGE.facts(run)) == ["date", "commit", "reps", "machine"]
    facts = of_pipelines.facts(run)
    assert list(facts) == ["date", "commit", "reps", "machine", "pyspark", "load", "share"]
    assert (facts["reps"], facts["share"]) == (2, 0.5)
    assert "librdkafka" in facts["machine"]
