"""The walk of a record to a view in ARCHITECTURE.md is that of the source: `scripts/walk.py` finds no fault with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proving import proves

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "ARCHITECTURE.md").read_text()


@pytest.fixture
def walk(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import walk

    return walk


@proves("architecture")
def test_the_walk_on_the_page_is_that_of_the_source(walk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert walk.main(["--check"]) == 0, capsys.readouterr().err
    assert str(walk.counts_of(walk.steps_of(PAGE))).strip("*") in capsys.readouterr().out


@proves("architecture")
@pytest.mark.parametrize(
    ("shown", "instead", "fault"),
    [
        ("spark`: source", "spark`: sauce", "there is no module spark/sauce"),
        (
            "`views`: applier",
            "`views`: feeds, applier",
            "views/feeds is a step of applier, and nothing else there imports it",
        ),
        ("| planner | JVM, broker |", "| planner | JVM, store |", "no step is in the process store"),
        ("| 7 |", "| 8 |", "steps are not numbered"),
        ("| reader | JVM, broker | 1 |", "| reader | JVM, broker | 2 |", "Python stages are not numbered"),
        (" modules, ", "0 modules, ", "the page says"),
    ],
)
def test_a_page_that_is_wrong_is_found(walk: Any, shown: str, instead: str, fault: str) -> None:
    assert shown in PAGE
    assert any(fault in one for one in walk.faults_of(PAGE.replace(shown, instead, 1)))
