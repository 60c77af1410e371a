"""What holds for every test is itself tested: small test files are run by a pytest of their own, with our conftest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from order import LONGEST, is_short
from proving import proves

TESTS = Path(__file__).parent
OURS = ["-p", "conftest", "-o", "markers=proves(*rows): what a test proves"]
SET_BY_OTHERS = ("CI_REQUIRE_EXTERNAL", "TIDELOG_SEED", "TIDELOG_EXAMPLES", "PYTEST_ADDOPTS")


def outcome(folder: Path, program: str, **environment: str) -> str:
    """Pytest's closing line for a test file with this text."""
    file = folder / "test_small.py"
    file.write_text(program)
    inherited = {name: value for name, value in os.environ.items() if name not in SET_BY_OTHERS}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(folder), *OURS, str(file)],
        env={**inherited, "PYTHONPATH": str(TESTS), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.stdout.splitlines()[-1].partition(" in ")[0]


@proves("tidy")
def test_the_longest_are_where_they_are_said_to_be_and_come_first() -> None:
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []
    items = [SimpleNamespace(nodeid=f"tests/{name}::test_it") for name in ("a/test_b.py", *LONGEST, "a/test_c.py")]
    expected = [f"tests/{name}::test_it" for name in (*LONGEST, "a/test_b.py", "a/test_c.py")]
    assert [item.nodeid for item in sorted(items, key=is_short)] == expected


@proves("rows")
@pytest.mark.slow
def test_a_test_that_does_not_say_what_it_proves_fails(tmp_path: Path) -> None:
    assert outcome(tmp_path, "def test_it(): pass") == "1 error"
    assert outcome(tmp_path, "from proving import proves\n@proves('T1')\ndef test_it(): pass") == "1 passed"


SKIPPED = "import pytest\nfrom proving import proves\n@proves('T1')\ndef test_it(): pytest.skip('no java')"
SKIPPED_FILE = "import pytest\npytest.importorskip('no_such_module')\n"


@proves("rows")
@pytest.mark.slow
def test_where_everything_is_installed_a_skipped_test_has_failed(tmp_path: Path) -> None:
    assert outcome(tmp_path, SKIPPED) == "1 skipped"
    assert outcome(tmp_path, SKIPPED, CI_REQUIRE_EXTERNAL="1") == "1 failed"


@proves("rows")
@pytest.mark.slow
def test_where_everything_is_installed_a_skipped_file_has_failed(tmp_path: Path) -> None:
    assert outcome(tmp_path, SKIPPED_FILE) == "1 skipped"
    assert outcome(tmp_path, SKIPPED_FILE, CI_REQUIRE_EXTERNAL="1") == "1 error"


SEEDED = "from proving import proves\n@proves('T1')\ndef test_it(seed): assert seed == {}"


@proves("rows")
@pytest.mark.slow
def test_the_seed_is_the_same_every_time_unless_it_is_given(tmp_path: Path) -> None:
    assert outcome(tmp_path, SEEDED.format(1)) == "1 passed"
    assert outcome(tmp_path, SEEDED.format(77), TIDELOG_SEED="77") == "1 passed"


WITHOUT_A_LINE = """
import sys, types
from proving import proves

def test_it():
    raise TimeoutError("too long").with_traceback(types.TracebackType(None, sys._getframe(), 10**6, -1))

test_it = proves("T1")(test_it)
"""


@proves("rows")
@pytest.mark.slow
def test_an_exception_at_an_instruction_without_a_line_fails_its_test_alone(tmp_path: Path) -> None:
    assert outcome(tmp_path, WITHOUT_A_LINE) == "1 failed"
