"""The page of settings says what the tables say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from proving import proves
from tidelog.broker.settings.broker import BROKER
from tidelog.broker.settings.group import GROUP
from tidelog.broker.settings.topic import TOPIC

SCRIPT = Path(__file__).parents[3] / "scripts" / "settings_page.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("settings_page", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@proves("guide")
def test_the_page_is_up_to_date(script: ModuleType) -> None:
    assert script.PAGE.read_text() == script.page(), "run python scripts/settings_page.py"


@proves("guide")
def test_a_reader_finds_every_setting_with_its_default(script: ModuleType) -> None:
    """By the page as it lies there, read as a table."""
    rows = [line.strip("| ").split(" | ") for line in script.PAGE.read_text().splitlines() if line.startswith("| `")]
    found = sorted((row[0].strip("`"), row[1], row[2].strip("`")) for row in rows)
    every = [*TOPIC.values(), *BROKER.values(), *GROUP.values()]
    unlimited = str(2**63 - 1)
    told = {None: "none", "": "none", unlimited: "without limit"}
    assert found == sorted((one.key, one.kind, told.get(one.default, str(one.default))) for one in every)


@proves("guide")
def test_an_old_page_is_found(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "PAGE", tmp_path / "settings.md")
    assert script.main(["--check"]) == 1
    assert script.main([]) == 0
    assert script.main(["--check"]) == 0
    (tmp_path / "settings.md").write_text("# Settings\n")
    assert script.main(["--check"]) == 1
