"""Runs the tests marked `soak` again and again, each time with a seed of its own, until the minutes are used up.

Every soak test is run with one seed, in an order that the seed gives, then with the next; two at a time, each in a
process of its own. Seeds count up from a random start (or from TIDELOG_SEED), which makes them easy to write down. No
test is begun after the time is up; those under way are finished. At the end one line goes to the table in docs/soak.md.
The exit code is 1 when a test failed; what it said is kept in .make/soak/, and is shown how to run it again.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "soak.md"
LOGS = ROOT / ".make" / "soak"
SEED_LIMIT = 1_000_000_000
TEST_SECONDS = 3600
OPTIONS = ["-m", "soak", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
PYTEST = [sys.executable, "-m", "pytest", *OPTIONS]

HEADING = """# Soak runs

`make soak MINUTES=60` runs the tests marked `soak` (kill -9 under load, power cuts on a simulated disk, faults of every
kind) with fresh random seeds until the time is up, and adds a line here. A test that failed is run again by
`TIDELOG_SEED=N .venv/bin/pytest -m soak TEST`. A commit with + had changes that were not committed.

| when (UTC) | commit | minutes | seeds | tests passed | tests failed | which |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One test with one seed. Whatever ends with another code than 0 has failed, also if it was killed."""

    seed: int
    test: str
    exit_code: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60, help="begin no test after this time (default 60)")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time (default 2)")
    parser.add_argument("tests", nargs="*", default=["tests"], help="where to look for tests marked soak")
    options = parser.parse_args()
    commit = _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain", "--", "src", "tests") else "")
    first_seed = int(os.environ.get("TIDELOG_SEED") or secrets.randbelow(SEED_LIMIT))
    tests = soak_tests(options.tests)
    print(f"{len(tests)} tests, {options.jobs} at a time, from seed {first_seed}", flush=True)
    started = time.monotonic()
    runs = run_until(started + options.minutes * 60, plan(first_seed, tests), options.jobs)
    write_line(commit, (time.monotonic() - started) / 60, runs)
    return 1 if any(run.exit_code for run in runs) else 0


def soak_tests(places: list[str]) -> list[str]:
    listing = subprocess.run([*PYTEST, "--collect-only", "-q", *places], cwd=ROOT, capture_output=True, text=True)
    tests = [line for line in listing.stdout.splitlines() if "::" in line]
    if listing.returncode != 0 or not tests:
        sys.exit(f"no soak test was found in {' '.join(places)}:\n{listing.stdout}{listing.stderr}")
    return tests


def plan(first_seed: int, tests: list[str]) -> Iterator[tuple[int, str]]:
    """Every test with every seed, for ever; in another order each time, so that a short run does not favour any."""
    for seed in itertools.count(first_seed):
        for test in random.Random(seed).sample(tests, len(tests)):
            yield seed, test


def run_until(deadline: float, planned: Iterable[tuple[int, str]], jobs: int) -> list[Run]:
    runs: list[Run] = []
    queue, lock = iter(planned), Lock()

    def work() -> None:
        while time.monotonic() < deadline:
            with lock:
                seed, test = next(queue)
            run = run_test(seed, test)
            with lock:
                runs.append(run)
                print(f"{_told(run)}  seed {seed}  {test}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(work) for _ in range(jobs)]:
            done.result()
    return runs


def run_test(seed: int, test: str) -> Run:
    LOGS.mkdir(parents=True, exist_ok=True)
    name = "".join(letter if letter.isalnum() else "-" for letter in test.rpartition("::")[2])
    log = LOGS / f"{seed}-{name}.log"
    with log.open("w") as output:
        code = subprocess.run(
            [*PYTEST, f"--timeout={TEST_SECONDS}", test],
            cwd=ROOT,
            env={**os.environ, "TIDELOG_SEED": str(seed)},
            stdout=output,
            stderr=subprocess.STDOUT,
        ).returncode
    if code == 0:
        log.unlink()
    return Run(seed, test, code)


def write_line(commit: str, minutes: float, runs: list[Run]) -> None:
    if not PAGE.exists():
        PAGE.write_text(HEADING)
    seeds = sorted({run.seed for run in runs})
    failed = [f"{run.test} with seed {run.seed}: {_told(run)}" for run in runs if run.exit_code]
    cells = [
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        commit,
        f"{minutes:.0f}",
        f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else "".join(map(str, seeds)),
        str(len(runs) - len(failed)),
        str(len(failed)),
        "; ".join(failed) or "-",
    ]
    with PAGE.open("a") as page:
        page.write(f"| {' | '.join(cells)} |\n")
    print(f"{cells[4]} passed, {cells[5]} failed, seeds {cells[3]}, in {minutes:.0f} minutes; written to {PAGE}")


def _told(run: Run) -> str:
    if run.exit_code < 0:
        return f"killed by signal {-run.exit_code}"
    return "failed" if run.exit_code else "passed"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
