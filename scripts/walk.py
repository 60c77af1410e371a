"""Counts the walk of a record to a view, as ARCHITECTURE.md draws it, and checks that the drawing is true.

    python scripts/walk.py            prints the counts: modules, borders between processes, Python stages
    python scripts/walk.py --check    exit code 1 where the page is wrong, with each fault

The page has a table between `<!-- walk -->` and `<!-- end of walk -->`, one row a step:

    | 3 | what happens | process | it talks to | Python stage | room: module, module; room/folder: module |

Rules:
- Steps and stages are numbered from 1, in order. A process that is talked to has a step of its own, but for those of
  OUTSIDE: who produces, the JVM, and the terminal.
- A module exists, and another module of its process imports it: early, late, for the type checker, or by its name in a
  text, as handlers and sources are loaded. Only the first one of a process is imported by nobody there.
- A module of several steps counts once. Messages of the protocol do not count one by one: `wire: messages` is all.
- The numbers in the page's text behind the table are those that are counted here.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tidelog"
PAGE = ROOT / "ARCHITECTURE.md"
TABLE = re.compile(r"<!-- walk -->\n(.*?)<!-- end of walk -->", re.DOTALL)
TOLD = re.compile(r"\*\*(\d+) modules, (\d+) borders, (\d+) Python stages\*\*")
OUTSIDE = {"producer", "JVM", "terminal"}
NONE = "-"
MESSAGES = "wire/messages"


class Step(NamedTuple):
    number: int
    what: str
    process: str
    others: tuple[str, ...]  # each is one border
    stage: int | None
    modules: tuple[str, ...]  # as paths below the package, without their ending


class Counts(NamedTuple):
    modules: int
    borders: int
    stages: int

    def __str__(self) -> str:
        return f"**{self.modules} modules, {self.borders} borders, {self.stages} Python stages**"


def steps_of(page: str) -> list[Step]:
    found = TABLE.search(page)
    if found is None:
        raise ValueError("the page has no table between <!-- walk --> and <!-- end of walk -->")
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in found[1].strip().splitlines()]
    return [_step(cells) for cells in rows[2:]]


def _step(cells: Sequence[str]) -> Step:
    number, what, process, others, stage, modules = cells
    talked_to = () if others == NONE else tuple(one.strip() for one in others.split(","))
    return Step(
        int(number), what, process, talked_to, None if stage == NONE else int(stage), tuple(_modules_of(modules))
    )


def _modules_of(cell: str) -> Iterator[str]:
    for group in cell.replace("`", "").split(";"):
        room, _, names = group.partition(":")
        yield from (f"{room.strip()}/{name.strip()}" for name in names.split(","))


def counts_of(steps: Sequence[Step]) -> Counts:
    modules = {module for step in steps for module in step.modules}
    return Counts(len(modules), sum(len(step.others) for step in steps), sum(step.stage is not None for step in steps))


def faults_of(page: str) -> Iterator[str]:
    steps = steps_of(page)
    counts = counts_of(steps)
    told = TOLD.search(page)
    if told is None or told[0] != str(counts):
        yield f"the page says {told[0] if told else 'no counts'}; counted: {counts}"
    if [step.number for step in steps] != list(range(1, len(steps) + 1)):
        yield "steps are not numbered 1, 2, 3"
    if [step.stage for step in steps if step.stage] != list(range(1, counts.stages + 1)):
        yield "Python stages are not numbered 1, 2, 3"
    processes = {step.process for step in steps} | OUTSIDE
    strangers = sorted({other for step in steps for other in step.others} - processes)
    yield from (f"no step is in the process {other}, and steps talk to it" for other in strangers)
    gone = sorted({module for step in steps for module in step.modules if module not in all_modules()})
    yield from (f"there is no module {module}" for module in gone)
    if not gone:
        yield from chain.from_iterable(_faults_of_process(steps, process) for process in sorted(processes - OUTSIDE))


def _faults_of_process(steps: Sequence[Step], process: str) -> Iterator[str]:
    """What no other module of the process imports; one has to be the first."""
    own = [step for step in steps if step.process == process]
    modules = [module for step in own for module in step.modules]
    imported = {other for module in set(modules) for other in imports_of(module) if other != module}
    alone = [module for module in dict.fromkeys(modules[1:]) if module not in {*imported, modules[0]}]
    yield from (f"{module} is a step of {process}, and nothing else there imports it" for module in alone)


@cache
def all_modules() -> dict[str, Path]:
    """By path below the package, without its ending. A folder of generated messages is one."""
    paths = chain(SOURCE.rglob("*.py"), SOURCE.rglob("*.pyx"))
    found = {path.relative_to(SOURCE).with_suffix("").as_posix(): path for path in paths}
    return {name: path for name, path in found.items() if not name.startswith(f"{MESSAGES}/")} | {MESSAGES: SOURCE}


@cache
def imports_of(module: str) -> frozenset[str]:
    path = all_modules()[module]
    return frozenset(_imported(path)) if path.suffix == ".py" else frozenset()


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            named = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("tidelog."):
            named = [node.value]
        else:
            continue
        yield from chain.from_iterable(map(_named, named))


def _named(text: str) -> Iterator[str]:
    """The modules that a dotted name means. One that ends with a dot is the beginning of names: all that begin so."""
    if not text.startswith("tidelog."):
        return
    below = text.removeprefix("tidelog.").replace(".", "/")
    if text.startswith("tidelog.wire.messages"):
        yield MESSAGES
    elif below.endswith("/"):
        yield from (name for name in all_modules() if name.startswith(below))
    elif below in all_modules():
        yield below


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Count the walk of a record to a view, as ARCHITECTURE.md draws it.")
    parser.add_argument("--check", action="store_true", help="exit code 1 where the page is wrong")
    options = parser.parse_args(arguments)
    page = PAGE.read_text()
    for step in steps_of(page):
        stage = "" if step.stage is None else f", Python stage {step.stage}"
        borders = f", borders to {', '.join(step.others)}" if step.others else ""
        print(f"{step.number:>2} {step.process:<8} {len(step.modules):>3} modules{borders}{stage}")
    print(str(counts_of(steps_of(page))).strip("*"))
    faults = list(faults_of(page)) if options.check else []
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
