"""Tries all tests but soak, in named shards: `try_all.py` one after the other, `try_all.py views` or `2/4` one of them.

What each shard came to is kept in .make/shards/ by commit. When all shards of one commit are green and nothing was
changed since, the run is a whole one, and becomes the first row of the table in docs/tests.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from outcome import read_outcome  # noqa: E402  both are beside the tests, since they are plugins of theirs
from selecting import SHARDS, shard_name  # noqa: E402

PAGE = ROOT / "docs" / "tests.md"
KEPT = ROOT / ".make" / "shards"
HEADING = "|---|---|---|---|---|\n"


def main() -> int:
    asked = [shard_name(word) for word in sys.argv[1:]] or list(SHARDS)
    commit = _git("rev-parse", "--short=10", "HEAD")
    changed = bool(_git("status", "--porcelain"))
    codes = [try_shard(shard, commit, changed) for shard in asked]
    results = {shard: _kept(commit, shard) for shard in SHARDS}
    if not changed and all(results.values()):
        PAGE.write_text(with_row(PAGE.read_text(), row_of(commit, results)))  # type: ignore[arg-type]
        print("all shards are green on this commit; docs/tests.md says so: commit it")
    return max(codes)


def try_shard(shard: str, commit: str, changed: bool) -> int:
    begun = time.monotonic()
    outcome = ROOT / ".make" / f"shard-{shard}.json"
    environment = {**os.environ, "CI_REQUIRE_EXTERNAL": "1", "TESTS_OUTCOME": str(outcome)}
    chosen = ["--tiers", "test,change,rest", "--shard", shard]
    words = [sys.executable, "-m", "pytest", "-n", os.environ.get("JOBS", "3"), *chosen, "--durations", "20"]
    code = subprocess.run(words, cwd=ROOT, env=environment).returncode
    minutes = (time.monotonic() - begun) / 60
    count = len(read_outcome(outcome).costs)
    print(f"shard {shard}: {count} tests, {minutes:.1f} minutes, {'green' if code == 0 else 'failed'}", flush=True)
    if code == 0 and not changed:
        KEPT.mkdir(parents=True, exist_ok=True)
        (KEPT / f"{commit}-{shard}.json").write_text(json.dumps({"tests": count, "minutes": minutes}))
    return code


def row_of(commit: str, results: Mapping[str, Mapping[str, float]]) -> str:
    told = ", ".join(f"{shard} {result['minutes']:.0f}" for shard, result in results.items())
    tests = sum(int(result["tests"]) for result in results.values())
    minutes = sum(result["minutes"] for result in results.values())
    return f"| {commit} | {datetime.now(UTC):%Y-%m-%d} | {tests} | {minutes:.0f} | {told} |\n"


def with_row(page: str, row: str) -> str:
    """The page with one more run on top of its table."""
    assert HEADING in page, "the page has lost its table"
    return page.replace(HEADING, HEADING + row, 1)


def _kept(commit: str, shard: str) -> dict[str, float] | None:
    path = KEPT / f"{commit}-{shard}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
