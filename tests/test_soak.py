"""Soak runs: a round has its seed, and the page says truly what passed and what did not."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from proving import proves

SCRIPTS = Path(__file__).parent.parent / "scripts"
PROGRAM = """
import os
import pytest

@pytest.mark.soak
def test_an_even_seed():
    assert int(os.environ["TIDELOG_SEED"]) % 2 == 0

@pytest.mark.soak
def test_any_seed(): pass

def test_that_is_no_soak_test(): assert False
"""


@pytest.fixture
def soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.delitem(sys.modules, "soak", raising=False)
    import soak

    monkeypatch.setattr(soak, "ROOT", tmp_path)
    monkeypatch.setattr(soak, "PAGE", tmp_path / "soak.md")
    monkeypatch.setattr(soak, "LOGS", tmp_path / "logs")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  soak: long\n")
    (tmp_path / "test_program.py").write_text(PROGRAM)
    module: ModuleType = soak
    return module


@proves("soak")
def test_a_round_runs_the_soak_tests_with_its_seed(soak: ModuleType, tmp_path: Path) -> None:
    assert soak.run_round(10, ["test_program.py"]) == soak.Round(seed=10, passed=2, failed=0, exit_code=0)
    assert soak.run_round(11, ["test_program.py"]) == soak.Round(seed=11, passed=1, failed=1, exit_code=1)
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["11.log"], "the output of a failure is kept"


@proves("soak")
def test_a_round_without_tests_is_no_success(soak: ModuleType) -> None:
    assert soak.run_round(10, ["nothing_here.py"]) == soak.Round(seed=10, passed=0, failed=1, exit_code=4)


@proves("soak")
def test_each_run_is_a_line_on_the_page(soak: ModuleType) -> None:
    good, bad = soak.Round(5, 10, 0, 0), soak.Round(6, 9, 1, 1)
    soak.write_line("abc1234", 1.4, [good])
    soak.write_line("abc1234+", 2.0, [good, bad])
    first, second = soak.PAGE.read_text().splitlines()[-2:]
    assert first.split("|")[2:-1] == [" abc1234 ", " 1 ", " 1 ", " 5 ", " 10 ", " 0 ", " none "]
    assert second.split("|")[2:-1] == [" abc1234+ ", " 2 ", " 2 ", " 5 to 6 ", " 19 ", " 1 ", " 6 "]
    assert soak.PAGE.read_text().count("# Soak runs") == 1
