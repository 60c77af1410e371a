"""The script that plants faults plants what it says: at the place that it names, and never the code that was there."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from against.patience import eventually
from programs import is_running
from proving import proves

ROOT = Path(__file__).parent.parent
CODE = '''"""A comparison in a text, a < b, is left alone."""
def write(files, rows, end):
    shown = "ä" + f"{rows == end}"
    if rows < end and rows not in files:
        files.sync((rows << 2) - 1)
    return files.sync()
'''


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import mutants

    return mutants


@proves("tiers")
def test_comparisons_bounds_and_calls_of_guards_are_found_and_each_fault_changes_the_code(
    mutants: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    file = tmp_path / "code.py"
    file.write_text(CODE)
    found = [one for one in mutants.places(file) if "rows == end" not in one.before]
    assert sorted((one.kind, one.line, one.after) for one in found) == [
        ("bound", 5, "((rows << 2) + 0)"),
        ("comparison", 4, "rows <= end"),
        ("comparison", 4, "rows in files"),
        ("guard", 5, "pass"),
    ]
    for one in found:
        changed = CODE[: one.start] + one.after + CODE[one.end :]
        assert CODE[one.start : one.end] == one.before and ast.dump(ast.parse(changed)) != ast.dump(ast.parse(CODE))


@proves("tiers")
def test_a_seed_draws_the_same_faults_of_every_room_and_every_kind(mutants: ModuleType) -> None:
    faults = [
        mutants.Fault(mutants.KINDS[number % 40 // 38], f"src/tidelog/{room}/x.py", number, "", "", 0, 0)
        for room in mutants.ROOMS
        for number in range(200)
    ]
    faults += [mutants.Fault("guard", "src/tidelog/log/y.py", number, "", "", 0, 0) for number in range(5)]
    drawn = mutants.draw(faults, 30, seed=7)
    assert len(drawn) == len(set(drawn)) == 30
    assert min(Counter(one.room for one in drawn)[room] for room in mutants.ROOMS) >= mutants.EACH_MIN
    assert min(Counter(one.kind for one in drawn)[kind] for kind in mutants.KINDS) >= mutants.EACH_MIN
    assert drawn == mutants.draw(faults, 30, seed=7) != mutants.draw(faults, 30, seed=8)


@proves("tiers")
def test_the_tests_that_import_a_module_come_first(mutants: ModuleType) -> None:
    fault = mutants.Fault("guard", "src/tidelog/log/idling.py", 1, "", "", 0, 0)
    near, every = mutants.tests_for(fault)
    assert "tests/log/test_idling.py" in near and set(near) < set(every)
    assert every[0].startswith("tests/log/") and any(file.startswith("tests/broker/") for file in every)


@proves("tiers")
def test_a_test_that_fails_without_the_fault_too_has_not_found_it(
    mutants: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "src" / "tidelog" / "log" / "code.py"
    file.parent.mkdir(parents=True)
    file.write_text("1 < 2\n")
    before = file.stat().st_mtime_ns
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "tests_for", lambda _: (["near.py"], ["all.py"]))
    runs: list[tuple[str, ...]] = []

    def failed(words: list[str], jobs: int, seconds: float, hangs_after: float) -> str:
        planted = file.read_text() == "1 <= 2\n"
        runs.append((*words, "planted" if planted else "as it was"))
        unsteady = "a.py::test[b c]"
        if words == ["a.py::test"] or f"--deselect={unsteady}" in words:
            return "a.py::test" if planted else ""
        return unsteady

    monkeypatch.setattr(mutants, "_failed", failed)
    fault = mutants.Fault("comparison", "src/tidelog/log/code.py", 1, "1 < 2", "1 <= 2", 0, 5)
    assert mutants.found_by(fault, 60) == "a.py::test"
    assert runs == [
        ("near.py", "planted"),
        ("a.py::test[b c]", "as it was"),
        ("near.py", "--deselect=a.py::test[b c]", "planted"),
        ("a.py::test", "as it was"),
    ]
    assert file.read_text() == "1 < 2\n" and file.stat().st_mtime_ns == before


@proves("tiers")
def test_a_run_that_takes_too_long_ends_with_all_that_it_started(mutants: ModuleType, tmp_path: Path) -> None:
    told = tmp_path / "told"
    program = (
        "import pathlib, subprocess, sys\n"
        "below = subprocess.Popen([sys.executable, '-S', '-c', 'input()'], stdin=subprocess.PIPE)\n"
        f"pathlib.Path({str(told)!r} + '~').write_text(str(below.pid))\n"
        f"pathlib.Path({str(told)!r} + '~').rename({str(told)!r})\n"
        "below.wait()\n"
    )
    for seconds in (2, 10, 60):  # on a busy machine the program takes its time to begin
        assert told.exists() or mutants._run([sys.executable, "-c", program], seconds) == (None, "")
    eventually(lambda: not is_running(int(told.read_text())))


@proves("tiers")
def test_the_first_test_that_pytest_names_is_told_and_the_table_has_it(mutants: ModuleType) -> None:
    said = "..F\nFAILED tests/log/test_a.py::test_it[a b] - assert 1 | 2\nFAILED tests/log/test_b.py::test\n"
    assert mutants.TEST.search(said)["name"] == "tests/log/test_a.py::test_it[a b]"
    fault = mutants.Fault("comparison", "src/tidelog/log/code.py", 7, "a | b\n  < c", "a | b <= c", 0, 5)
    rows = [(fault, "tests/log/test_a.py::test_it[a b]"), (fault, "")]
    assert mutants._table(rows).splitlines()[2:] == [
        "| log/code.py:7 | `a \\| b < c` | `a \\| b <= c` | log/test_a.py::test_it[a b] |",
        "| log/code.py:7 | `a \\| b < c` | `a \\| b <= c` | **nothing** |",
    ]
