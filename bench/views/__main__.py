"""The command: `python -m bench.views [--only NAME ...] [--before CHECKOUT] [--reps N] [--quick]`.

A whole run writes docs/benchmarks_views.md; `--only` replaces its rows and keeps the others from the last run.
`--quick` does a twentieth of the work once, to see that everything runs; its figures mean nothing and are not
published. Stores that are not installed (Redis, OpenSearch) are left out, and said to be. With `--before`, rows
`freshness` and `peers` have what another checkout does beside what this one does.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from bench.command import Command, take, work_folder
from bench.repository import find_parts_of_tests

COMMAND = Command(
    package="bench.views",
    about=__doc__,
    rows={
        "updates": "updates:run",
        "whole": "whole:run",
        "freshness": "freshness:run",
        "peers": "peers:run",
        "fanout": "fanout:run",
    },
    reps=3,
    quick_share=0.05,
    keepers="brokers and stores",
)


def main() -> None:
    find_parts_of_tests()
    os.environ["TIDELOG_HTTP_LISTENER"] = "-"
    from bench.views.bench import Bench
    from bench.views.report import PAGE

    options = parsed()
    with work_folder(options.folder) as folder:
        folder.chmod(0o755)  # PostgreSQL and OpenSearch do not run as root, and have their data in it
        bench = Bench(folder, COMMAND.extent(options), options.before)
        take(bench, COMMAND.chosen(options.only), PAGE)
    PAGE.print_tables(bench)


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    parser = COMMAND.parser()
    about = "a checkout whose Tidelog takes turns with this one's, where a row runs it (built: setup.py build_ext -i)"
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help=about)
    options = COMMAND.parsed(parser, words)
    if options.before is not None:
        options.before = options.before.resolve()
        if not list((options.before / "src" / "tidelog" / "record").glob("_codec*.so")):
            parser.error(f"--before: {options.before} has no Tidelog that is built")
    return options


if __name__ == "__main__":
    main()
