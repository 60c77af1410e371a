"""Runs the tests marked `soak` round after round, each round with a seed of its own, until the minutes are used up.

Seeds are consecutive from one random start, which makes them easy to write down. A round that has begun is finished, so
the last one may run over. At the end one line goes to the table in docs/soak.md: when, commit, minutes, rounds, seeds,
tests passed and failed. The exit code is 1 when a round failed; its output is kept in .make/soak/SEED.log.
TIDELOG_SEED=N starts at that seed instead.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "soak.md"
LOGS = ROOT / ".make" / "soak"
SEED_LIMIT = 1_000_000_000
ROUND_TESTS = "soak"

HEADING = """# Soak runs

`make soak MINUTES=60` runs the tests marked `soak` (kill -9 under load, power cuts on a simulated disk, faults of every
kind) with fresh random seeds until the time is up, and adds a line here. `TIDELOG_SEED=N make soak MINUTES=0` runs one
seed again.

| when (UTC) | commit | minutes | rounds | seeds | passed | failed | seeds that failed |
|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Round:
    seed: int
    passed: int
    failed: int
    exit_code: int

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60, help="start no new round after this time (default 60)")
    parser.add_argument("tests", nargs="*", default=["tests"], help="where to look for tests marked soak")
    options = parser.parse_args()
    commit = _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain", "--", "src", "tests") else "")
    first_seed = int(os.environ.get("TIDELOG_SEED") or secrets.randbelow(SEED_LIMIT))
    started = time.monotonic()
    rounds: list[Round] = []
    while not rounds or time.monotonic() - started < options.minutes * 60:
        rounds.append(run_round(first_seed + len(rounds), options.tests))
        minutes = (time.monotonic() - started) / 60
        print(f"{minutes:6.1f} min  {_told(rounds[-1])}", flush=True)
    write_line(commit, (time.monotonic() - started) / 60, rounds)
    return 0 if all(done.ok for done in rounds) else 1


def run_round(seed: int, tests: list[str]) -> Round:
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{seed}.log"
    command = [sys.executable, "-m", "pytest", "-m", ROUND_TESTS, "--timeout=3600", "-p", "no:cacheprovider", *tests]
    with log.open("w") as output:
        environment = {**os.environ, "TIDELOG_SEED": str(seed)}
        code = subprocess.run(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT).returncode
    text = log.read_text()
    if code == 0:
        log.unlink()
    failed = _count(text, "failed") + _count(text, "errors?")
    # A round that was killed says nothing; it has failed all the same.
    return Round(seed, _count(text, "passed"), failed or int(code != 0), code)


def write_line(commit: str, minutes: float, rounds: list[Round]) -> None:
    if not PAGE.exists():
        PAGE.write_text(HEADING)
    seeds = f"{rounds[0].seed} to {rounds[-1].seed}" if len(rounds) > 1 else str(rounds[0].seed)
    failed = ", ".join(str(done.seed) for done in rounds if not done.ok) or "none"
    cells = [
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        commit,
        f"{minutes:.0f}",
        str(len(rounds)),
        seeds,
        str(sum(done.passed for done in rounds)),
        str(sum(done.failed for done in rounds)),
        failed,
    ]
    with PAGE.open("a") as page:
        page.write(f"| {' | '.join(cells)} |\n")
    print(f"{len(rounds)} rounds, seeds that failed: {failed}; written to {PAGE.relative_to(ROOT)}")


def _told(done: Round) -> str:
    log = (LOGS / f"{done.seed}.log").relative_to(ROOT)
    where = "" if done.ok else f"; pytest ended with {done.exit_code}, see {log}"
    return f"seed {done.seed}: {done.passed} passed, {done.failed} failed{where}"


def _count(text: str, word: str) -> int:
    closing = re.findall(rf"(\d+) {word}\b.* in [\d.]+s", text)
    return int(closing[-1]) if closing else 0


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
