"""The command of a bench: its options, and its rows one after the other.

A row is a function of a module of the bench, and is imported when its turn comes. It does all of its work, or is a
generator that stops wherever what there is so far may be published. After each row, and at each such stop, figures are
published: a later one may fail. A quick run publishes nothing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from bench.run import Extent, Run

R = TypeVar("R", bound=Run)
R_contra = TypeVar("R_contra", bound=Run, contravariant=True)


class Row(Protocol[R_contra]):
    def __call__(self, run: R_contra, /) -> Iterable[None] | None: ...


class Report(Protocol[R_contra]):
    """Where figures go: a `bench.reporting.Page`, or a module with these functions."""

    def earlier(self) -> dict[str, Any]: ...

    def facts(self, run: R_contra, /) -> Mapping[str, Any]: ...

    def publish(self, run: R_contra, earlier: Mapping[str, Any], taken: Mapping[str, Any], /) -> None: ...


class Command(NamedTuple):
    package: str
    about: str
    """The first line of it is shown."""
    rows: Mapping[str, str]
    """By name: the module in the package, a colon and the function."""
    reps: int
    quick_share: float
    keepers: str
    """Who has data in the folder."""

    def parser(self) -> argparse.ArgumentParser:
        """A bench may add options of its own."""
        parser = argparse.ArgumentParser(prog=f"python -m {self.package}", description=self.about.splitlines()[0])
        parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help=", ".join(self.rows))
        parser.add_argument(
            "--reps", type=int, default=self.reps, help=f"repetitions of each row (default: {self.reps})"
        )
        parser.add_argument("--quick", action="store_true", help="a smoke test: little work, no publishing")
        folder = f"where {self.keepers} keep their data (default: the temporary folder)"
        parser.add_argument("--folder", help=folder)
        return parser

    def parsed(self, parser: argparse.ArgumentParser, words: list[str] | None = None) -> argparse.Namespace:
        options = parser.parse_args(words)
        options.only = [name for word in options.only for name in word.split(",") if name]
        if unknown := set(options.only) - set(self.rows):
            parser.error(f"no such row: {', '.join(sorted(unknown))}; rows are {', '.join(self.rows)}")
        return options

    def extent(self, options: argparse.Namespace) -> Extent:
        return Extent(1, self.quick_share, True) if options.quick else Extent(options.reps, 1.0, False)

    def chosen(self, only: list[str]) -> Iterator[tuple[str, Row[Any]]]:
        for name in only or self.rows:
            module, _, function = self.rows[name].partition(":")
            yield name, getattr(import_module(f"{self.package}.{module}"), function)


@contextmanager
def work_folder(where: str | None, *, keep: bool = False) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=where))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def take(run: R, rows: Iterable[tuple[str, Row[R]]], report: Report[R]) -> None:
    earlier = report.earlier()
    taken = dict(earlier["taken"])
    try:
        for name, row in rows:
            print(f"{name} ...", file=sys.stderr, flush=True)
            began = time.monotonic()
            for _ in stops(row, run):
                if not run.quick:
                    taken[name] = report.facts(run)
                    report.publish(run, earlier, taken)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    finally:
        run.stop()


def stops(row: Row[R], run: R) -> Iterator[None]:
    made = row(run)
    if made is None:
        yield
    else:
        yield from made
