"""The text of an exported micro-batch, and what its rows are compared by; without Spark."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from proving import proves
from tidelog.pipelines.debugging import TopicRecord
from tidelog.testing.pipeline_app import assert_rows, plain
from tidelog.testing.pipeline_export import INLINE_MAX, Exported, write

TEXT = TopicRecord("orders", 1, 7, 1000, None, b'{"id": 1}')
BYTES = TopicRecord("orders", 0, 8, 1000, b"\xff\x00", None)


def exported(folder: Path, records: int = 1) -> Exported:
    steps = [[TEXT, BYTES], [TEXT] * records]
    return Exported(folder / "shop.py", "", "shop", "by-day", 12, 11, {"orders": 2}, steps, [{"day": "x", "n": 2}])


@proves("P1", "F1")
def test_few_records_stand_in_the_test_itself(tmp_path: Path) -> None:
    assert write(exported(tmp_path), tmp_path / "test_it.py") == [tmp_path / "test_it.py"]
    lines = (tmp_path / "test_it.py").read_text().splitlines()
    ast.parse("\n".join(lines))
    at = lines.index("def test_micro_batch_12_of_by_day(tidelog_pipeline):")
    assert [line.strip() for line in lines[at + 1 :]] == [
        "run = AppRun(tidelog_pipeline, APP, 'by-day', partitions={'orders': 2})",
        "",
        "# micro-batches up to 11",
        """run.add('orders', '{"id": 1}', partition=1, offset=7, timestamp_ms=1000)""",
        r"run.add('orders', None, key=b'\xff\x00', offset=8, timestamp_ms=1000)",
        "run.step()",
        "",
        "# micro-batch 12",
        """run.add('orders', '{"id": 1}', partition=1, offset=7, timestamp_ms=1000)""",
        "assert_rows(run.step(), [{'day': 'x', 'n': 2}])",
    ]


@proves("P1", "F1")
def test_many_records_stand_in_a_file_beside_it(tmp_path: Path) -> None:
    made = exported(tmp_path / "app", INLINE_MAX)
    assert write(made, tmp_path / "test_it.py") == [tmp_path / "test_it.py", tmp_path / "test_it.json"]
    text = (tmp_path / "test_it.py").read_text()
    ast.parse(text)
    assert 'APP = HERE / "app" / "shop.py"' in text and 'assert_rows(run.step(), DATA["rows"])' in text
    data = json.loads((tmp_path / "test_it.json").read_text())
    assert (len(data["before"]), len(data["records"]), data["rows"]) == (1, INLINE_MAX, [{"day": "x", "n": 2}])
    assert data["before"][0][1]["key_base64"] == "/wA="


@proves("P1", "F1")
def test_a_failure_is_expected_by_its_words_and_one_of_several_apps_by_its_name(tmp_path: Path) -> None:
    write(replace(exported(tmp_path), error="ValueError: 1 (one)", variable="shop"), tmp_path / "test_it.py")
    text = (tmp_path / "test_it.py").read_text()
    ast.parse(text)
    assert r"with pytest.raises(PipelineFailed, match='ValueError:\\ 1\\ \\(one\\)'):" in text
    assert """AppRun(tidelog_pipeline, f"{APP}:shop", 'by-day'""" in text


@proves("P1")
def test_rows_are_compared_in_any_order_and_as_plain_values() -> None:
    row = {
        "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        "day": date(2026, 1, 2),
        "sum": Decimal("1.50"),
        "raw": b"\x01",
        "parts": [0.1 + 0.2, None],
    }
    said = {
        "at": "2026-01-02T03:04:05.000006+00:00",
        "day": "2026-01-02",
        "sum": "1.50",
        "raw": "01",
        "parts": [0.3, None],
    }
    assert_rows([{"n": 1}, plain(row)], [said, {"n": 1}])
    with pytest.raises(AssertionError, match=r"missing: \{n: 1\}; not expected: \{n: 2\}"):
        assert_rows([{"n": 1}, {"n": 2}], [{"n": 1}, {"n": 1}])
    with pytest.raises(AssertionError, match="missing: none; not expected"):
        assert_rows([{"n": 1}, {"n": 1}], [{"n": 1}])
