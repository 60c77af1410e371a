"""Prints what each capability is proved by: row, status, tests, guide page, example.

The rows stand in docs/rows.toml; the tests say what they prove by `@proves` (tests/proving.py). With `--check` the
exit code is 1 when a row that is said to work has no test, no guide page or no example, when none of its tests runs at
every change (tests/tiers.py), or when a page or an example that is named does not exist. `--tests` names the tests,
too, and when each runs.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from tiers import tier_of  # noqa: E402

AT_EVERY_CHANGE = ("test", "change")
STATUSES = ("works", "partly", "later")
CAPABILITY_WIDTH = 46


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    capability: str
    status: str
    guide: str = ""
    example: str = ""
    missing: str = ""


class Test(NamedTuple):
    name: str
    tier: str


class Proofs:
    """A pytest plugin that only looks: which tests there are, and what each says it proves."""

    def __init__(self) -> None:
        self.tests: dict[str, list[Test]] = defaultdict(list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            test = Test(item.nodeid, tier_of({mark.name for mark in item.iter_markers()}))
            for mark in item.iter_markers("proves"):
                for row in mark.args:
                    self.tests[row].append(test)


def read_rows(path: Path) -> list[Row]:
    return [Row(name, **fields) for name, fields in tomllib.loads(path.read_text())["rows"].items()]


def collect_proofs() -> Mapping[str, Sequence[Test]]:
    proofs = Proofs()
    arguments = ["--collect-only", "-p", "no:terminal", "-o", "addopts=--import-mode=importlib", "--rootdir", str(ROOT)]
    code = pytest.main([*arguments, str(ROOT / "tests")], plugins=[proofs])
    if code != pytest.ExitCode.OK:
        sys.exit(f"the tests could not be collected ({code!r}); run pytest --collect-only")
    return proofs.tests


def faults(rows: Sequence[Row], tests: Mapping[str, Sequence[Test]], root: Path) -> list[str]:
    """Everything that makes the table untrue, one sentence each."""
    found = []
    for row in rows:
        if row.status not in STATUSES:
            found.append(f"{row.name} has status {row.status!r}; it is one of {', '.join(STATUSES)}")
        if row.status == "partly" and not row.missing:
            found.append(f"{row.name} works partly; say what is missing")
        if row.status == "works":
            owed = {"test": tests.get(row.name), "guide page": row.guide, "example": row.example}
            found += [f"{row.name} is said to work and has no {what}" for what, has in owed.items() if not has]
            found += fault_of_tiers(row.name, tests.get(row.name, ()))
        found += [
            f"{row.name} names {path}, which does not exist"
            for path in (row.guide, row.example)
            if path and not (root / path.partition("#")[0]).is_file()
        ]
    return found


def fault_of_tiers(row: str, tests: Sequence[Test]) -> list[str]:
    """A test that only runs now and then proves a row some commits too late."""
    if not tests or any(test.tier in AT_EVERY_CHANGE for test in tests):
        return []
    tiers = ", ".join(sorted({test.tier for test in tests}))
    return [
        f"{row} is said to work and has no test that runs at every change, only in {tiers};"
        " mark one of them story, or write a short one"
    ]


def table(rows: Sequence[Row], tests: Mapping[str, Sequence[Test]]) -> list[str]:
    lines = [f"{'row':<5}{'status':<8}{'tests':>6}  {'capability':<{CAPABILITY_WIDTH}} {'guide':<28} example"]
    for row in rows:
        count = len(tests.get(row.name, ()))
        capability = textwrap.shorten(row.capability, CAPABILITY_WIDTH, placeholder=" ..")
        guide = row.guide.removeprefix("docs/guide/") or "-"
        example = row.example.removeprefix("examples/") or "-"
        lines.append(f"{row.name:<5}{row.status:<8}{count:>6}  {capability:<{CAPABILITY_WIDTH}} {guide:<28} {example}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 when the table is not true")
    parser.add_argument("--tests", action="store_true", help="name the tests of each row and rule")
    options = parser.parse_args()
    rows = read_rows(ROOT / "docs" / "rows.toml")
    tests = collect_proofs()
    print("\n".join(table(rows, tests)))
    known = {row.name for row in rows}
    rules = {name: found for name, found in sorted(tests.items()) if name not in known}
    print("\nrules: " + ", ".join(f"{name} ({len(found)})" for name, found in rules.items()))
    if options.tests:
        for name, found in [*((row.name, tests.get(row.name, ())) for row in rows), *rules.items()]:
            print("\n".join([f"\n{name}", *(f"  {test.name} ({test.tier})" for test in found)]))
    wrong = faults(rows, tests, ROOT)
    for sentence in wrong:
        print(f"wrong: {sentence}", file=sys.stderr)
    return 1 if wrong and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
