"""The command: `python -m bench.pipelines [--only NAME] [--sides NAME] [--queries q5] [--reps N] [--quick]`.

A whole run writes docs/benchmarks_pipelines.md; a part of one replaces its rows and keeps the others from the last run.
`--quick` does a little of the work once, to see that everything runs; its figures are printed and not published.
"""

from __future__ import annotations

import argparse
import os
import sys

from bench.command import Command, take, work_folder
from bench.repository import REPOSITORY, find_parts_of_tests

COMMAND = Command(
    package="bench.pipelines",
    about=__doc__,
    rows={"state": "state:run", "operators": "operators:run", "nexmark": "queries:run"},
    reps=3,
    quick_share=0.1,
    keepers="the broker and Spark",
)


def main() -> None:
    find_parts_of_tests()
    let_sides_find_this()
    from bench.pipelines import report
    from bench.pipelines.bench import Bench
    from bench.pipelines.watch import pin

    options = parse()
    pin()
    extent = COMMAND.extent(options)
    if options.share:
        extent = extent._replace(share=options.share)
    with work_folder(options.folder) as folder:
        bench = Bench(folder, extent, sides=options.sides, queries=options.queries)
        take(bench, COMMAND.chosen(options.only), report)
    report.print_tables(bench)


def let_sides_find_this() -> None:
    """They are programs of their own, some by another Python."""
    sys.path.insert(0, str(REPOSITORY))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))


def parse() -> argparse.Namespace:
    parser = COMMAND.parser()
    parser.add_argument("--sides", nargs="+", default=[], metavar="NAME", help="these alone, by the names of columns")
    parser.add_argument(
        "--queries", nargs="+", default=[], metavar="NAME", help="these alone of Nexmark's, or of the operators"
    )
    parser.add_argument(
        "--share", type=float, help="of the full amount of work (default: all, or a tenth with --quick)"
    )
    return COMMAND.parsed(parser)


if __name__ == "__main__":
    main()
