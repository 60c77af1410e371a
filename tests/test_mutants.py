"""The script that plants faults plants what it says: at the place that it names, and never the code that was there."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

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
