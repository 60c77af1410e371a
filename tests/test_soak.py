"""Soak runs: each test has its seed, the time is kept, and the page says truly what passed and what did not."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

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


EVEN = "test_program.py::test_an_even_seed"
ANY = "test_program.py::test_any_seed"


@proves("soak")
def test_only_soak_tests_are_found(soak: ModuleType) -> None:
    assert soak.soak_tests(["test_program.py"]) == [EVEN, ANY]


@proves("soak")
def test_every_test_is_planned_with_every_seed(soak: ModuleType) -> None:
    planned = list(itertools.islice(soak.plan(7, [EVEN, ANY]), 6))
    assert sorted(planned) == sorted((seed, test) for seed in (7, 8, 9) for test in (EVEN, ANY))


@proves("soak")
def test_a_test_runs_with_its_seed_and_the_output_of_a_failure_is_kept(soak: ModuleType, tmp_path: Path) -> None:
    assert soak.run_test(10, EVEN) == soak.Run(10, EVEN, 0)
    assert soak.run_test(11, EVEN) == soak.Run(11, EVEN, 1)
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["11-test-an-even-seed.log"]


@proves("soak")
def test_no_test_is_begun_when_the_time_is_up(soak: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def run_test(seed: int, test: str) -> object:
        now[0] += 10
        return soak.Run(seed, test, 0)

    monkeypatch.setattr(soak, "run_test", run_test)
    monkeypatch.setattr(soak, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert [run.seed for run in soak.run_until(25, soak.plan(1, [ANY]), jobs=1)] == [1, 2, 3]
    assert soak.run_until(25, soak.plan(1, [ANY]), jobs=2) == []


@proves("soak")
def test_each_run_is_a_line_on_the_page(soak: ModuleType) -> None:
    good, bad = soak.Run(5, ANY, 0), soak.Run(6, EVEN, -9)
    soak.write_line("abc1234", 1.4, [good])
    soak.write_line("abc1234+", 2.0, [good, bad])
    first, second = soak.PAGE.read_text().splitlines()[-2:]
    assert first.split("|")[2:-1] == [" abc1234 ", " 1 ", " 5 ", " 1 ", " 0 ", " - "]
    assert second.split("|")[2:-1] == [
        " abc1234+ ",
        " 2 ",
        " 5 to 6 ",
        " 1 ",
        " 1 ",
        f" {EVEN} with seed 6: killed by signal 9 ",
    ]
    assert soak.PAGE.read_text().count("# Soak runs") == 1
