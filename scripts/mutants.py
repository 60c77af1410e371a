"""Plants faults in the source, one at a time, and looks whether the tests that run at every change find them.

Places are found in the syntax tree: comparisons (`<` becomes `<=`, `==` becomes `!=`, `in` becomes `not in`), bounds
(`+ 1` becomes `+ 0`), and calls of a sync, a fence or a lock, which go. A printed seed draws among them, at least three
in each room of `ROOMS`. For each fault the fixed part of the tests of its room and of the rooms beside it runs, the
tests that name its module first, until one fails or two minutes are over.

The source is changed in place, so run it in a clean clone: `python scripts/mutants.py --seed 7 --count 30`. It refuses
to begin with a changed src/, and puts every file back. The table it prints is the result; the exit code is 1 when fewer
than nine in ten faults were found. A survivor gets a test, or is named as one that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tidelog"
ROOMS = ("log", "broker", "client", "spark", "views", "pipelines", "gateway")
EACH_MIN = 3
SECONDS = 120
FOUND_MIN = 0.9

# The rooms whose tests come after its own: those that would notice first.
BESIDE = {
    "log": ("broker", "crash"),
    "broker": ("client", "crash", "cli"),
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
GUARDS = ("sync", "fence", "lock", "flush")


@dataclass(frozen=True, slots=True)
class Fault:
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
        after = _mutated(node)
        if after is None or not hasattr(node, "lineno"):
            continue
        start, end = _span(text, node)
        if not _is_source_of(text[start:end], node):
            continue  # inside a text with expressions, where Python 3.11 gives other positions
        yield Fault(str(path.relative_to(ROOT)), node.lineno, text[start:end], after, start, end)


def _mutated(node: ast.AST) -> str | None:
    """The node as a fault, or None where there is none of the kinds."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in OTHER:
            return ast.unparse(ast.Compare(left, [OTHER[type(operator)]()], [right]))
        case ast.BinOp(left, ast.Add() | ast.Sub(), ast.Constant(1)):
            return f"({ast.unparse(left)} + 0)"
        case ast.Expr(ast.Call(func)) if any(word in ast.unparse(func).rpartition(".")[2].lower() for word in GUARDS):
            return "pass"
        case _:
            return None


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
    """By the seed, at least `EACH_MIN` in each room."""
    rng = random.Random(seed)
    by_room = {room: [fault for fault in faults if fault.room == room] for room in ROOMS}
    drawn = [fault for room in ROOMS for fault in rng.sample(by_room[room], EACH_MIN)]
    left = [fault for fault in faults if fault.room in ROOMS and fault not in drawn]
    return [*drawn, *rng.sample(left, max(count - len(drawn), 0))]


def tests_for(fault: Fault) -> list[str]:
    """Files of tests, those that name the module first, then its room's, then those beside it."""
    module = fault.file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    folders = [ROOT / "tests" / room for room in (fault.room, *BESIDE[fault.room])]
    files = [file for folder in folders for file in sorted(folder.rglob("test_*.py"))]
    names = [file for file in files if module in file.read_text()]
    return [str(file.relative_to(ROOT)) for file in [*names, *(file for file in files if file not in names)]]


def is_found(fault: Fault) -> str:
    """By what: the test's name, `hang` is not told apart from a slow run; empty when nothing failed in time."""
    path = ROOT / fault.file
    text = path.read_text()
    assert text[fault.start : fault.end] == fault.before
    path.write_text(text[: fault.start] + fault.after + text[fault.end :])
    try:
        words = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--no-header", "--tb", "no"]
        chosen = ["-n", os.environ.get("JOBS", "2"), "--tiers", "test,change", *tests_for(fault)]
        ran = subprocess.run([*words, *chosen], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
        failed = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return (failed[0].split()[1] if failed else f"pytest ended with {ran.returncode}") if ran.returncode else ""
    except subprocess.TimeoutExpired:
        return ""
    finally:
        path.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--list", action="store_true", help="show what would be planted, and plant nothing")
    options = parser.parse_args()
    if subprocess.run(["git", "status", "--porcelain", "src"], cwd=ROOT, capture_output=True, text=True).stdout:
        sys.exit("src/ has changes that are not committed; run this in a clean clone")
    faults = [fault for room in ROOMS for path in sorted((SOURCE / room).rglob("*.py")) for fault in places(path)]
    drawn = draw(faults, options.count, options.seed)
    print(f"seed {options.seed}: {len(drawn)} of {len(faults)} places", flush=True)
    found = 0
    for number, fault in enumerate(drawn, 1):
        told = "" if options.list else is_found(fault)
        found += bool(told)
        words = f"{' '.join(fault.before.split())[:70]}  ->  {' '.join(fault.after.split())[:70]}"
        print(f"{number:>3} {fault.file}:{fault.line}  {words}\n      {told or 'NOT FOUND'}", flush=True)
    print(f"{found} of {len(drawn)} found, seed {options.seed}")
    return 0 if options.list or found >= FOUND_MIN * len(drawn) else 1


if __name__ == "__main__":
    sys.exit(main())
