"""The table of rows refuses to say more than is there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from proving import fault_of, proves

ROOT = Path(__file__).parent.parent
MARKED = """
import pytest

pytestmark = pytest.mark.full

@pytest.mark.proves("T1")
def test_a(): pass

@pytest.mark.story
@pytest.mark.proves("T2", "T1")
def test_b(): pass

@pytest.mark.proves("T1")
@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.soak)])
def test_c(n): pass
"""


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.delitem(sys.modules, "rows", raising=False)
    import rows

    return rows


@proves("rows")
def test_a_row_that_works_has_a_test_a_page_and_an_example(rows, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "page.md").touch()
    (tmp_path / "example.py").touch()
    row = rows.Row("T1", "the log", "works", guide="page.md#part", example="example.py")
    assert rows.faults([row], {"T1": [rows.Test("test_it", "test")]}, tmp_path) == []
    assert rows.faults([row], {}, tmp_path) == ["T1 is said to work and has no test"]
    bare = rows.Row("T1", "the log", "works")
    assert rows.faults([bare], {"T1": [rows.Test("test_it", "test")]}, tmp_path) == [
        "T1 is said to work and has no guide page",
        "T1 is said to work and has no example",
    ]


@proves("rows")
@pytest.mark.parametrize(
    ("tiers", "fine"),
    [
        (["test"], True),
        (["change"], True),
        (["rest", "change"], True),
        (["rest"], False),
        (["soak"], False),
        (["soak", "rest", "rest"], False),
    ],
)
def test_a_row_that_works_has_a_test_that_runs_at_every_change(  # type: ignore[no-untyped-def]
    rows, tmp_path: Path, tiers: list[str], fine: bool
) -> None:
    (tmp_path / "page.md").touch()
    row = rows.Row("T1", "the log", "works", guide="page.md", example="page.md")
    found = rows.faults([row], {"T1": [rows.Test("test_it", tier) for tier in tiers]}, tmp_path)
    named = ", ".join(sorted(set(tiers)))
    said = f"T1 is said to work and has no test that runs at every change, only in {named}"
    assert [one.partition(";")[0] for one in found] == ([] if fine else [said])


@proves("rows")
def test_the_marks_of_a_test_and_of_its_module_say_when_it_runs(rows, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "test_marked.py").write_text(MARKED)
    proofs = rows.Proofs()
    words = ["--collect-only", "-p", "no:terminal", "--import-mode=importlib", "-c", os.devnull, "--rootdir"]
    assert pytest.main([*words, str(tmp_path), str(tmp_path)], plugins=[proofs]) == 0
    found = {test.name.rpartition("::")[2]: test.tier for test in proofs.tests["T1"]}
    assert found == {"test_a": "rest", "test_b": "change", "test_c[1]": "soak"}


@proves("rows")
def test_a_page_that_is_not_there_is_a_fault_whatever_the_status(rows, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    row = rows.Row("T9", "messages", "later", guide="gone.md")
    assert rows.faults([row], {}, tmp_path) == ["T9 names gone.md, which does not exist"]


@proves("rows")
def test_a_row_that_works_partly_says_what_is_missing(rows, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert rows.faults([rows.Row("T8", "disk", "partly")], {}, tmp_path) == ["T8 works partly; say what is missing"]


@proves("rows")
def test_a_status_is_one_of_three(rows, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert rows.faults([rows.Row("T8", "disk", "soon")], {}, tmp_path) == [
        "T8 has status 'soon'; it is one of works, partly, later"
    ]


@proves("rows")
@pytest.mark.parametrize(
    ("marks", "fine"), [(["T1"], True), (["cdc.29"], True), (["tidy"], True), (["T99"], False), ([], False)]
)
def test_a_test_proves_a_row_or_a_rule_that_exists(marks: list[str], fine: bool) -> None:
    assert (fault_of(marks) is None) is fine
