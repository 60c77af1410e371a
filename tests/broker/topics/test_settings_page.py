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
def test_the_page_has_every_setting(script: ModuleType) -> None:
    page = script.page()
    for key in [*TOPIC, *BROKER, *GROUP]:
        assert f"\n| `{key}` |" in page


@proves("guide")
def test_an_old_page_is_found(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "PAGE", tmp_path / "settings.md")
    assert script.main(["--check"]) == 1
    assert script.main([]) == 0
    assert script.main(["--check"]) == 0
    (tmp_path / "settings.md").write_text("# Settings\n")
    assert script.main(["--check"]) == 1
