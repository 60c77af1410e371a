"""Plants faults in the source, one at a time, and looks whether the tests that run at every change find them.

Places are found in the syntax tree: comparisons (`<` becomes `<=`, `==` becomes `!=`, `in` becomes `not in`), bounds
(`+ 1` becomes `+ 0`), and calls of a sync, a fence or a lock, which go. A printed seed draws among them, at least three
in each room of `ROOMS` and three of each kind. For each fault the fixed part of the tests of its room and of the rooms
beside it runs, first the files that import its module and then all, until one fails or two minutes are over (on a busy
machine more: `--seconds`).

A test that fails is tried again without the fault: one that fails then as well has found nothing, and is left out of
the next try. A test that hangs counts as one that fails. Whatever a run leaves (a worker that hangs, brokers, Java
machines) is ended with it.

The source is changed in place, so run it in a clean clone: `python scripts/mutants.py --seed 7 --count 30`. It refuses
to begin with a changed src/, and puts every file back, when it is ended by a signal as well. The table it prints last
is the result; the exit code is 1 when fewer than nine in ten faults were found. A survivor gets a test, or is named as
one that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tidelog"
ROOMS = ("log", "broker", "client", "spark", "views", "pipelines", "gateway")
EACH_MIN = 3
SECONDS = 120.0
HANGS_AFTER = 3 / 8  # of these seconds: then a test that hangs has failed, and there is time to see it
AGAIN_SECONDS = 120.0
UNSTEADY_MAX = 3  # tests that fail without a fault, for one fault
FOUND_MIN = 0.9
PASSED, NO_TESTS = 0, 5  # pytest's exit codes
TEST = re.compile(r"^(FAILED|ERROR) (?P<name>.+?)( - .*)?$", re.MULTILINE)

# The rooms whose tests come after its own: those that would notice first.
BESIDE = {
    "log": ("broker", "crash"),
    "broker": ("client", "against", "crash", "cli"),
    "client": ("cli", "views"),
    "spark": ("pipelines/driver",),
    "views": ("sql", "gateway"),
    "pipelines": ("spark",),
    "gateway": ("views",),
}
OTHER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
KINDS = ("comparison", "bound", "guard")
GUARDS = ("sync", "fence", "lock", "flush")


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    file: str
    line: int
    before: str
    after: str
    start: int
    end: int

    @property
    def room(self) -> str:
        return self.file.split("/")[2]


def places(path: Path) -> Iterator[Fault]:
    """Every fault that can be planted in a file."""
    text = path.read_text()
    tree = ast.parse(text)
    for node in ast.walk(tree):
        kind, after = _mutated(node)
        if not kind or not hasattr(node, "lineno"):
            continue
        start, end = _span(text, node)
        if not _is_source_of(text[start:end], node):
            continue  # inside a text with expressions, where Python 3.11 gives other positions
        yield Fault(kind, str(path.relative_to(ROOT)), node.lineno, text[start:end], after, start, end)


def _mutated(node: ast.AST) -> tuple[str, str]:
    """Of which kind a fault at the node is, and the node with it; nothing where there is none of the kinds."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in OTHER:
            return "comparison", ast.unparse(ast.Compare(left, [OTHER[type(operator)]()], [right]))
        case ast.BinOp(left, ast.Add() | ast.Sub(), ast.Constant(1)):
            return "bound", f"({ast.unparse(ast.BinOp(left, ast.Add(), ast.Constant(0)))})"
        case ast.Expr(ast.Call(func)) if any(word in ast.unparse(func).rpartition(".")[2].lower() for word in GUARDS):
            return "guard", "pass"
        case _:
            return "", ""


def _is_source_of(source: str, node: ast.AST) -> bool:
    try:
        return ast.unparse(ast.parse(f"({source})" if isinstance(node, ast.expr) else source)) == ast.unparse(node)
    except SyntaxError:
        return False


def _span(text: str, node: ast.AST) -> tuple[int, int]:
    lines = text.splitlines(keepends=True)

    def at(line: int, column: int) -> int:
        return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())

    assert isinstance(node, ast.expr | ast.stmt) and node.end_lineno is not None and node.end_col_offset is not None
    return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)


def draw(faults: Sequence[Fault], count: int, seed: int) -> list[Fault]:
    """By the seed, at least `EACH_MIN` in each room and of each kind."""
    rng = random.Random(seed)
    drawn: list[Fault] = []
    groups = [[fault for fault in faults if fault.room == room] for room in ROOMS]
    groups += [[fault for fault in faults if fault.kind == kind] for kind in KINDS]
    for group in groups:
        missing = EACH_MIN - sum(fault in group for fault in drawn)
        drawn += rng.sample([fault for fault in group if fault not in drawn], max(missing, 0))
    left = [fault for fault in faults if fault not in drawn]
    return [*drawn, *rng.sample(left, max(count - len(drawn), 0))]


def tests_for(fault: Fault) -> tuple[list[str], list[str]]:
    """Files of tests: those that import the module, and all of its room and of the rooms beside it."""
    package, _, module = fault.file.removeprefix("src/").removesuffix(".py").replace("/", ".").rpartition(".")
    own = package if module == "__init__" else f"{package}.{module}"
    imported = re.compile(rf"\b{re.escape(own)}\b|from {re.escape(package)} import [^\n]*\b{module}\b")
    folders = [ROOT / "tests" / room for room in (fault.room, *BESIDE[fault.room])]
    files = [file for folder in folders for file in sorted(folder.rglob("test_*.py"))]
    near = [file for file in files if imported.search(file.read_text())]
    beside = ROOT / "tests" / "/".join(package.split(".")[1:])
    files.sort(key=lambda file: not file.is_relative_to(beside))
    return [str(file.relative_to(ROOT)) for file in near], [str(file.relative_to(ROOT)) for file in files]


def found_by(fault: Fault, seconds: float) -> str:
    """The test that fails with the fault and passes without it; empty when there is none in time."""
    unsteady: list[str] = []
    until = time.monotonic() + seconds
    while len(unsteady) <= UNSTEADY_MAX and time.monotonic() < until:
        begun = time.monotonic()
        failed = _failed_with(fault, until, [f"--deselect={test}" for test in unsteady])
        if not failed or not _failed([failed], 0, AGAIN_SECONDS, AGAIN_SECONDS):
            return failed
        print(f"      {failed} fails without the fault, too", flush=True)
        unsteady.append(failed)
        until += time.monotonic() - begun
    return ""


def _failed_with(fault: Fault, until: float, options: Sequence[str]) -> str:
    path = ROOT / fault.file
    text, was = path.read_text(), path.stat()
    assert text[fault.start : fault.end] == fault.before
    near, every = tests_for(fault)
    jobs = int(os.environ.get("JOBS", "3"))
    hangs_after = (until - time.monotonic()) * HANGS_AFTER
    path.write_text(text[: fault.start] + fault.after + text[fault.end :])
    try:
        for files, count in ((near, 0), (every, jobs)):
            left = max(until - time.monotonic(), 1)
            if files and (failed := _failed([*files, *options], count, left, hangs_after)):
                return failed
        return ""
    finally:
        path.write_text(text)
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def _failed(words: Sequence[str], jobs: int, seconds: float, hangs_after: float) -> str:
    """The first test that fails; the first of the files where pytest itself cannot go on."""
    pytest = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--no-header", "--tb", "no", "-rfE"]
    line = [*pytest, "-n", str(jobs), "--tiers", "test,change", "-o", f"timeout={max(hangs_after, 1):.0f}", *words]
    code, said = _run(line, seconds)
    if code in (None, PASSED, NO_TESTS):
        return ""
    failed = TEST.search(said)
    return failed["name"] if failed else words[0]


def _run(line: Sequence[str], seconds: float) -> tuple[int | None, str]:
    """In a session of its own, of which nothing stays; without a code when the time is over."""
    # Without Python's caches each run would compile all that it imports, and spend its time on that.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "env": environment}
    with subprocess.Popen(line, cwd=ROOT, text=True, start_new_session=True, **options) as ran:
        try:
            said, _ = ran.communicate(timeout=seconds)
            return ran.returncode, said
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(ran.pid, signal.SIGKILL)


def _table(rows: Sequence[tuple[Fault, str]]) -> str:
    """The result, as a page has it."""

    def cell(text: str) -> str:
        return " ".join(text.split())[:70].replace("|", "\\|")

    lines = ["| place | from | to | found by |", "|---|---|---|---|"]
    for fault, told in rows:
        by = cell(told.removeprefix("tests/")) or "**nothing**"
        place = f"{fault.file.removeprefix('src/tidelog/')}:{fault.line}"
        lines.append(f"| {place} | `{cell(fault.before)}` | `{cell(fault.after)}` | {by} |")
    return "\n".join(lines)


def _numbers(words: str) -> list[int]:
    return [int(word) for word in words.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each fault (default %(default)s)")
    parser.add_argument("--list", action="store_true", help="show what would be planted, and plant nothing")
    parser.add_argument("--only", type=_numbers, help="these of the drawn ones, by their numbers: 3,7 (default all)")
    options = parser.parse_args()
    if subprocess.run(["git", "status", "--porcelain", "src"], cwd=ROOT, capture_output=True, text=True).stdout:
        sys.exit("src/ has changes that are not committed; run this in a clean clone")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    faults = [fault for room in ROOMS for path in sorted((SOURCE / room).rglob("*.py")) for fault in places(path)]
    drawn = draw(faults, options.count, options.seed)
    print(f"seed {options.seed}: {len(drawn)} of {len(faults)} places", flush=True)
    rows: list[tuple[Fault, str]] = []
    for number, fault in enumerate(drawn, 1):
        if options.only and number not in options.only:
            continue
        words = f"{' '.join(fault.before.split())[:70]}  ->  {' '.join(fault.after.split())[:70]}"
        print(f"{number:>3} {fault.file}:{fault.line}  {words}", flush=True)
        if not options.list:
            begun = time.monotonic()
            rows.append((fault, found_by(fault, options.seconds)))
            print(f"      {rows[-1][1] or 'NOT FOUND'}, {time.monotonic() - begun:.0f} s", flush=True)
    if options.list:
        return 0
    found = sum(bool(told) for _, told in rows)
    print(f"\n{_table(rows)}\n\n{found} of {len(rows)} found, seed {options.seed}")
    return 0 if found >= FOUND_MIN * len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
