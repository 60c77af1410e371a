"""What apps of tagged versions left behind is gone on with: the first micro-batch after the upgrade, exactly once."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kept_archives import archives_of, script, too_large, version_of, versions_without
from pipelines.app.driven import Driven
from proving import proves
from tidelog.control.marks import read_mark

ARCHIVES = archives_of("apps")


@pytest.fixture
def app_folder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that writes such folders, for its ways to go on."""
    return script("app_folder", monkeypatch)


def rows_of(app: Driven, view: str) -> list[dict[str, Any]]:
    return list(app.said(view, app.view(view)).values())


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.full
@proves("F2", "F4", "P1", "P3")
@pytest.mark.parametrize("archive", ARCHIVES, ids=version_of)
def test_what_every_tagged_version_left_behind_is_gone_on_with(
    spark: SparkSession, tmp_path: Path, app_folder: ModuleType, archive: Path
) -> None:
    holds = app_folder.unpack(archive, tmp_path)
    assert holds["version"] == version_of(archive)
    with app_folder.going(tmp_path, spark) as app:
        for view in app_folder.VIEWS:
            kept = in_order(holds["views"][view])
            assert in_order(rows_of(app, view)) == kept, "the topic"
            assert in_order(app_folder.rows_in_store(app, tmp_path, view)) == kept, "the store"
        marks = {name: read_mark(app.cluster, target.sink) for name, target in app.targets.items()}
        big = len(app.records("big-orders"))
        app_folder.step(app, tmp_path, 2)
        for name, target in app.targets.items():
            before, after = marks[name], read_mark(app.cluster, target.sink)
            assert before is not None and after is not None and after.batch_id > before.batch_id
        assert len(app.records("big-orders")) == big + 3, "each once"
        for view in app_folder.VIEWS:
            rows = in_order(rows_of(app, view))
            assert rows == in_order(list(app.said(view, app.batch(view)).values())), "the batch query"
            assert in_order(app_folder.rows_in_store(app, tmp_path, view)) == rows, "the store"


@proves("F4")
def test_the_app_folders_that_are_kept_are_small_and_every_version_has_one() -> None:
    assert ARCHIVES and too_large(ARCHIVES) == [] and versions_without(ARCHIVES) == []
