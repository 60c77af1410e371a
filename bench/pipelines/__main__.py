"""The command: `python -m bench.pipelines [--only NAME] [--sides NAME] [--queries q5] [--reps N] [--quick]`.

A whole run writes docs/benchmarks_pipelines.md; a part of one replaces its rows and keeps the others from the last run.
`--quick` does a little of the work once, to see that everything runs; its figures are printed and not published.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ROWS = {"state": "state:run", "operators": "operators:run", "nexmark": "queries:run"}
QUICK_SHARE = 0.1


def main() -> None:
    for found in (REPOSITORY / "tests", REPOSITORY):  # the broker is started as the tests start it
        sys.path.insert(0, str(found))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
    from bench.pipelines import report
    from bench.pipelines.bench import Bench
    from bench.pipelines.watch import pin

    options = parse()
    pin()
    folder = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=options.folder))
    reps = 1 if options.quick else options.reps
    share = options.share or (QUICK_SHARE if options.quick else 1.0)
    bench = Bench(folder, reps=reps, share=share, quick=options.quick, sides=options.sides, queries=options.queries)
    earlier = report.earlier()
    taken = {} if options.quick else dict(earlier["taken"])
    try:
        for name in options.only or ROWS:
            began = time.monotonic()
            for _ in find(ROWS[name])(bench):
                if not options.quick:  # after every part: a later one may fail
                    taken[name] = report.facts(reps, share)
                    report.publish(bench.figures, bench.reasons, earlier, taken)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    finally:
        bench.stop()
        shutil.rmtree(folder, ignore_errors=True)
    report.print_tables(bench.figures, bench.reasons)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pipelines", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help=", ".join(ROWS))
    parser.add_argument("--sides", nargs="+", default=[], metavar="NAME", help="these alone, by the names of columns")
    parser.add_argument("--queries", nargs="+", default=[], metavar="qN", help="these alone of Nexmark's")
    parser.add_argument("--reps", type=int, default=3, help="repetitions of each row (default: 3)")
    parser.add_argument(
        "--share", type=float, help="of the full amount of work (default: all, or a tenth with --quick)"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test: little work, no publishing")
    parser.add_argument("--folder", help="where the broker and Spark keep their data (default: the temporary folder)")
    options = parser.parse_args()
    options.only = [name for word in options.only or () for name in word.split(",") if name]
    if unknown := set(options.only) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; rows are {', '.join(ROWS)}")
    return options


def find(where: str) -> Callable[..., Iterator[None]]:
    module, _, name = where.partition(":")
    run: Callable[..., Iterator[None]] = getattr(import_module(f"bench.pipelines.{module}"), name)
    return run


if __name__ == "__main__":
    main()
