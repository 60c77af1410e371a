"""Tries all tests but soak, in named shards: `try_all.py` one after the other, `try_all.py views` or `2/4` one of them.

What each shard came to is kept in .make/shards/ by commit. When all shards of one commit are green and nothing was
changed since, the run is a whole one, and becomes the first row of the table in docs/tests.md. A shard that was green
on a commit before is green on this one when only tests of other shards were changed in between: a test that is mended
asks for its own shard again, and not for all four. As in `.ci/run`, two tests at most, of all shards together, may pass
at a second try alone; they are named there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from try_change import AGAIN_MAX, TESTS_FAILED, UNSTEADY, may_run_again  # noqa: E402

from outcome import Outcome, folder_of, read_outcome  # noqa: E402  both are beside the tests, since they are plugins of theirs
from selecting import SHARDS, shard_name  # noqa: E402

PAGE = ROOT / "docs" / "tests.md"
KEPT = ROOT / ".make" / "shards"
HEADING = "|---|---|---|---|---|\n"


class Result(TypedDict):
    """What a green shard came to."""

    tests: int
    minutes: float
    again: list[str]
    """The tests that passed at a second try only."""


def main() -> int:
    asked = [shard_name(word) for word in sys.argv[1:]] or list(SHARDS)
    commit = _git("rev-parse", "--short=10", "HEAD")
    changed = bool(_git("status", "--porcelain"))
    codes = [try_shard(shard, commit, changed) for shard in asked]
    results = {shard: _kept(commit, shard) for shard in SHARDS}
    if not changed and all(results.values()):
        print(_whole(commit, results))  # type: ignore[arg-type]
    return max(codes)


def _whole(commit: str, results: Mapping[str, Result]) -> str:
    again = tests_again(results)
    if len(again) > AGAIN_MAX:
        return f"all shards are green, but {len(again)} tests only at a second try; {AGAIN_MAX} may: {' '.join(again)}"
    PAGE.write_text(with_row(PAGE.read_text(), row_of(commit, results)))
    return "all shards are green on this commit; docs/tests.md says so: commit it"


def try_shard(shard: str, commit: str, changed: bool) -> int:
    begun = time.monotonic()
    code, found = _pytest(shard, "-n", os.environ.get("JOBS", "3"), "--shard", shard, "--durations", "20")
    if code == TESTS_FAILED and found.failures:
        allowed, told = may_run_again(found.failures, tomllib.loads(UNSTEADY.read_text()))
        print(told, flush=True)
        if allowed:
            code, _ = _pytest(f"{shard}-again", "-n", "0", *found.failures)
    minutes = (time.monotonic() - begun) / 60
    color = "green" if code == 0 else "failed"
    print(f"shard {shard}: {len(found.costs)} tests, {minutes:.1f} minutes, {color}", flush=True)
    if code == 0 and not changed:
        KEPT.mkdir(parents=True, exist_ok=True)
        result: Result = {"tests": len(found.costs), "minutes": minutes, "again": list(found.failures)}
        (KEPT / f"{commit}-{shard}.json").write_text(json.dumps(result))
    return code


def _pytest(name: str, *options: str) -> tuple[int, Outcome]:
    outcome = ROOT / ".make" / f"shard-{name}.json"
    outcome.unlink(missing_ok=True)
    environment = {**os.environ, "CI_REQUIRE_EXTERNAL": "1", "TESTS_OUTCOME": str(outcome)}
    words = [sys.executable, "-m", "pytest", "--tiers", "test,change,rest", *options]
    code = subprocess.run(words, cwd=ROOT, env=environment).returncode
    return code, read_outcome(outcome) if outcome.exists() else Outcome()


def tests_again(results: Mapping[str, Result]) -> list[str]:
    """The tests that passed at a second try only."""
    return [test for result in results.values() for test in result["again"]]


def row_of(commit: str, results: Mapping[str, Result]) -> str:
    told = ", ".join(f"{shard} {result['minutes']:.0f}" for shard, result in results.items())
    tests = sum(result["tests"] for result in results.values())
    minutes = sum(result["minutes"] for result in results.values())
    again = tests_again(results)
    told += f"; at a second try only: {', '.join(again)}" if again else ""
    return f"| {commit} | {datetime.now(UTC):%Y-%m-%d} | {tests} | {minutes:.0f} | {told} |\n"


def with_row(page: str, row: str) -> str:
    """The page with one more run on top of its table."""
    assert HEADING in page, "the page has lost its table"
    return page.replace(HEADING, HEADING + row, 1)


def _kept(commit: str, shard: str) -> Result | None:
    """Of the newest commit at which the shard was green and since when nothing that it tries was changed."""
    paths = {path.name.removesuffix(f"-{shard}.json"): path for path in KEPT.glob(f"*-{shard}.json")}
    for before in _git("rev-list", "--abbrev-commit", "--abbrev=10", commit).split() if paths else []:
        if before in paths:
            changed = _git("diff", "--name-only", before, commit).split("\n")
            return json.loads(paths[before].read_text()) if all(is_foreign(path, shard) for path in changed) else None
    return None


def is_foreign(path: str, shard: str) -> bool:
    """Whether a changed file is a test of another shard. What tests share, and all else, counts for every shard."""
    is_test = path.startswith("tests/") and Path(path).name.startswith("test_") and path.endswith(".py")
    return not path or (is_test and folder_of(path) not in SHARDS[shard])


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
