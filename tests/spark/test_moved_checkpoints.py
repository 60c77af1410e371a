"""Paths that Spark writes into a checkpoint, where the checkpoint was moved; without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proving import proves
from tidelog.spark.moved_checkpoints import settle, settled_text

SCHEMA = "state/0/_stateSchema/default/0_1455"
PROPERTIES = '{"timeMode":"NoTime","stateVariables":[]}'


def text_of(*paths: str) -> str:
    store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2, "stateSchemaFilePaths": list(paths)}
    said = {"operatorInfo": {"operatorId": 0}, "stateStoreInfo": [store], "operatorPropertiesJson": PROPERTIES}
    return f"v2\n{json.dumps(said, separators=(',', ':'))}"


@proves("P3")
@pytest.mark.parametrize(
    "before",
    [f"file:/old/shop/sold.v1/{SCHEMA}", f"file:///old/state/0/x/{SCHEMA}", f"/relative/../old/{SCHEMA}"],
)
def test_a_path_into_another_folder_leads_into_this_one(before: str) -> None:
    assert settled_text(text_of(before, before), "/new/sold.v1") == text_of(*[f"file:/new/sold.v1/{SCHEMA}"] * 2)


@proves("P3")
@pytest.mark.parametrize("path", [f"file:/here/{SCHEMA}", f"file:///here/{SCHEMA}", "file:/elsewhere/of/another/kind"])
def test_what_leads_here_or_is_not_known_stays_as_it_is(path: str) -> None:
    text = text_of(path)
    assert settled_text(text, "/here") is text


@proves("P3")
def test_other_versions_and_stores_without_schemas_stay_as_they_are() -> None:
    for text in ("v1\n{}", 'v2\n{"stateStoreInfo":[{"storeName":"default"}]}', "v3\nanything"):
        assert settled_text(text, "/here") == text


@proves("P3")
def test_a_moved_checkpoint_is_settled_once(tmp_path: Path) -> None:
    metadata = tmp_path / "state/0/_metadata/v2/0"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(text_of(f"file:/old/{SCHEMA}"))
    assert settle(f"file:{tmp_path}") == 1
    assert metadata.read_text() == text_of(f"file:{tmp_path}/{SCHEMA}")
    assert [path.name for path in metadata.parent.iterdir()] == ["0"]
    assert settle(str(tmp_path)) == 0 and settle("hdfs://host/checkpoint") == 0
