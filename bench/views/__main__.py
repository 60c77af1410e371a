"""The command: `python -m bench.views [--only NAME ...] [--reps N] [--quick]`.

A whole run writes docs/benchmarks_views.md; `--only` replaces its rows and keeps the others from the last run.
`--quick` does a twentieth of the work once, to see that everything runs; its figures mean nothing and are not
published. Stores that are not installed (Redis, OpenSearch) are left out, and said to be.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ROWS = {"updates": "updates:run", "whole": "whole:run", "freshness": "freshness:run", "fanout": "fanout:run"}
QUICK_SHARE = 0.05


def main() -> None:
    sys.path.insert(0, str(REPOSITORY / "tests"))  # brokers and stores are started as the tests start them
    os.environ["TIDELOG_HTTP_LISTENER"] = "-"
    from bench.views import report
    from bench.views.bench import Bench

    options = parse()
    folder = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=options.folder))
    folder.chmod(0o755)  # PostgreSQL and OpenSearch do not run as root, and have their data in it
    reps = 1 if options.quick else options.reps
    bench = Bench(folder, reps=reps, share=QUICK_SHARE if options.quick else 1.0, quick=options.quick)
    earlier = report.earlier()
    taken = {} if options.quick else dict(earlier["taken"])
    try:
        for name in options.only or ROWS:
            began = time.monotonic()
            find(ROWS[name])(bench)
            taken[name] = report.facts(reps)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            if not options.quick:  # after every row: a later one may fail
                report.publish(bench.figures, earlier["figures"], taken)
    finally:
        bench.stop()
        shutil.rmtree(folder, ignore_errors=True)
    report.print_table(bench.figures)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.views", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help=", ".join(ROWS))
    parser.add_argument("--reps", type=int, default=3, help="repetitions of each row (default: 3)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: little work, no publishing")
    parser.add_argument("--folder", help="where brokers and stores keep their data (default: the temporary folder)")
    options = parser.parse_args()
    options.only = [name for word in options.only or () for name in word.split(",") if name]
    if unknown := set(options.only) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; rows are {', '.join(ROWS)}")
    return options


def find(where: str) -> Callable[..., None]:
    module, _, name = where.partition(":")
    run: Callable[..., None] = getattr(import_module(f"bench.views.{module}"), name)
    return run


if __name__ == "__main__":
    main()
