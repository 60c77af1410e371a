"""Tries the tests that a change must pass, and as many of the others as there is time for. What .ci/run runs.

1. The fixed part: tiers `test` and `change` (tests/tiers.py), the same tests at every change.
2. The slice: tests of the tier `rest`, from the file whose turn it is by the number of the commit, until minute 26 of
   the run. It finds by chance and proves nothing.
3. What failed runs again, alone. Two tests at most may pass only then; the lines for tests/unsteady.toml are printed.
   A test that stands in that file and fails has failed.

The run also fails where a folder of tests costs more CPU seconds than 1.3 times its budget (tests/budgets.toml), and
where the last whole run (docs/tests.md) is more than 300 commits back. The decisions are functions without IO.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from outcome import SHARED, Outcome, read_outcome  # noqa: E402  it is beside the tests, since it is a plugin of theirs

BUDGETS = ROOT / "tests" / "budgets.toml"
UNSTEADY = ROOT / "tests" / "unsteady.toml"
PAGE = ROOT / "docs" / "tests.md"
MADE = ROOT / ".make"
TO_COME = "to come"
OVER_BUDGET = 1.3
AGAIN_MAX = 2
BEGIN_UNTIL_MINUTE = 26
WHOLE_RUN_WITHIN = 300
UNSTEADY_DAYS = 14
TESTS_FAILED, NO_TESTS = 1, 5  # exit codes of pytest
WHOLE_RUN = re.compile(r"^\| (?P<commit>[0-9a-f]{7,40}) \|", re.MULTILINE)
# Where a foreign client meets Apache Kafka nothing of ours is under test, unless these have changed.
FOREIGN_TWINS = "against/ and apache_kafka and not epochs and not access"
FOREIGN_PARTS = ("tests/against", "requirements.lock")


# Decisions ------------------------------------------------------------------------------------------------------------


def over_budget(costs: Mapping[str, float], budgets: Mapping[str, float]) -> list[str]:
    """One sentence for each folder that costs more than it may."""
    faults = []
    for folder, seconds in costs.items():
        name = "what tests share" if folder == SHARED else f"tests/{folder}"
        if folder not in budgets:
            faults.append(f"{name} has no budget; give it one in tests/budgets.toml, from {TO_COME!r}")
        elif seconds > budgets[folder] * OVER_BUDGET:
            faults.append(
                f"{name} costs {seconds:.0f} CPU seconds, and its budget is {budgets[folder]:g}"
                f" (above {OVER_BUDGET} times that a run fails); mark tests slow or full, or take from another folder"
            )
    return faults


def budget_faults(total: float, budgets: Mapping[str, float]) -> list[str]:
    """The sum is fixed: raising one budget lowers another."""
    found = sum(budgets.values())
    return [] if found == total else [f"the budgets sum up to {found:g}, and the total is {total:g}"]


def unsteady_faults(entries: Mapping[str, Mapping[str, object]], today: date) -> list[str]:
    """An entry is a debt with a date: after two weeks the test is mended, or gone."""
    faults = []
    for test, entry in entries.items():
        noted = entry.get("date")
        if not isinstance(noted, date) or not entry.get("failure"):
            faults.append(f"{test} in tests/unsteady.toml needs a date and a failure")
        elif (today - noted).days > UNSTEADY_DAYS:
            faults.append(f"{test} is in tests/unsteady.toml since {noted}; mend it, or remove it")
    return faults


def may_run_again(failures: Mapping[str, str], known_unsteady: Mapping[str, object]) -> tuple[bool, str]:
    """Whether a second try is allowed, and what to say."""
    known = [test for test in failures if test in known_unsteady]
    if known:
        return False, f"failed again, and stands in tests/unsteady.toml: {', '.join(known)}"
    if len(failures) > AGAIN_MAX:
        return False, f"{len(failures)} tests failed; at most {AGAIN_MAX} may be tried again"
    return True, f"{len(failures)} failed; trying again, alone: {' '.join(failures)}"


def unsteady_lines(failures: Mapping[str, str], today: date) -> list[str]:
    """Ready for tests/unsteady.toml."""
    lines = []
    for test, failure in failures.items():
        escaped = failure.replace("\\", "\\\\").replace('"', "'")
        lines += [f'["{test}"]', f'failure = "{escaped}"', f"date = {today}", ""]
    return lines


def whole_run_of(page: str) -> str:
    """The commit of the last run of all tests: the first row of the page's table."""
    found = WHOLE_RUN.search(page)
    return found["commit"] if found else ""


def whole_run_faults(commit: str, commits_since: int | None) -> list[str]:
    if not commit or commits_since is None:
        return [f"docs/tests.md names no commit of this history as the last whole run ({commit or 'none'})"]
    if commits_since > WHOLE_RUN_WITHIN:
        return [
            f"the last whole run, of {commit}, is {commits_since} commits back, and {WHOLE_RUN_WITHIN} are allowed;"
            " run make test-all on one commit, all shards, and commit docs/tests.md"
        ]
    return []


# The run --------------------------------------------------------------------------------------------------------------


def main() -> int:
    started = float(os.environ.get("TESTS_STARTED") or time.time())
    table = tomllib.loads(BUDGETS.read_text())
    known = tomllib.loads(UNSTEADY.read_text())
    commit = whole_run_of(PAGE.read_text())
    faults = [
        *budget_faults(table["total"], table["folders"]),
        *unsteady_faults(known, datetime.now(UTC).date()),
        *whole_run_faults(commit, _commits_since(commit)),
    ]
    if "--faults" in sys.argv:
        return _told(faults)
    fixed = _pytest("fixed", "--tiers", "test,change")
    done = len(fixed.costs)
    _show("fixed part", fixed, started, table["folders"])
    faults += over_budget(fixed.by_folder(), table["folders"])
    failures = dict(fixed.failures)
    if len(failures) <= AGAIN_MAX:
        chosen = _slice(started, commit)
        done += len(chosen.costs)
        failures.update(chosen.failures)
    if failures:
        faults += _second_try(failures, known)
    failed = len(failures) if faults else 0
    print(f"\n{done - failed} passed, {failed} failed", flush=True)
    return _told(faults)


def _slice(started: float, whole_run: str) -> Outcome:
    turn = int(_git("rev-list", "--count", "HEAD"))
    until = started + BEGIN_UNTIL_MINUTE * 60
    options = ["--tiers", "rest", "--turn", str(turn), "--begin-until", str(until)]
    if not _git("diff", "--name-only", whole_run, "HEAD", "--", *FOREIGN_PARTS):
        options += ["-k", f"not ({FOREIGN_TWINS})"]
    outcome = _pytest("slice", *options, TIDELOG_EXAMPLES="slice")
    files = sorted({test.partition("::")[0] for test in outcome.costs})
    print(f"the slice of commit number {turn}: {len(outcome.costs)} tests of {len(files)} files: {' '.join(files)}")
    return outcome


def _second_try(failures: Mapping[str, str], known: Mapping[str, object]) -> list[str]:
    allowed, told = may_run_again(failures, known)
    print(told, flush=True)
    if not allowed:
        return [told]
    again = _pytest("again", *failures, jobs=0)
    if again.failures or set(again.costs) != set(failures):
        return [f"failed twice: {', '.join(again.failures or failures)}"]
    today = datetime.now(UTC).date()
    print("passed the second time only; mend them, or put this into tests/unsteady.toml:", flush=True)
    print("\n".join(unsteady_lines(failures, today)), flush=True)
    return []


def _pytest(name: str, *options: str, jobs: int | None = None, **environment: str) -> Outcome:
    outcome = MADE / f"{name}.json"
    outcome.unlink(missing_ok=True)
    count = str(jobs if jobs is not None else os.environ.get("JOBS", "3"))
    words = [sys.executable, "-m", "pytest", "-n", count, "--tb", "short", *options]
    ran = subprocess.run(words, cwd=ROOT, env={**os.environ, "TESTS_OUTCOME": str(outcome), **environment})
    if ran.returncode not in (0, TESTS_FAILED, NO_TESTS) or not outcome.exists():
        sys.exit(f"pytest ended with {ran.returncode}: {' '.join(words)}")
    found = read_outcome(outcome)
    if ran.returncode == TESTS_FAILED and not found.failures:
        sys.exit(f"pytest says that tests failed, and names none: {' '.join(words)}")
    return found


def _show(name: str, outcome: Outcome, started: float, budgets: Mapping[str, float]) -> None:
    minutes = (time.time() - started) / 60
    print(f"\n{name}: {len(outcome.costs)} tests; minute {minutes:.1f} of the run; pace {outcome.pace():.2f}")
    print(f"{'folder':<24}{'CPU s':>8}{'budget':>8}")
    for folder, seconds in outcome.by_folder().items():
        print(f"{folder:<24}{seconds:>8.1f}{budgets.get(folder, 0):>8g}")
    print(f"{'sum':<24}{sum(outcome.by_folder().values()):>8.1f}{sum(budgets.values()):>8g}", flush=True)


def _told(faults: Sequence[str]) -> int:
    for fault in faults:
        print(f"wrong: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _commits_since(commit: str) -> int | None:
    ran = subprocess.run(["git", "rev-list", "--count", f"{commit}..HEAD"], cwd=ROOT, capture_output=True, text=True)
    return int(ran.stdout) if commit and ran.returncode == 0 else None


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
