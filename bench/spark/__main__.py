"""The command: `python -m bench.spark [--only NAME ...] [--reps N] [--quick]`.

A whole run writes docs/benchmarks_spark.md; `--only` replaces its rows and keeps the others from the last run.
`--quick` does a fiftieth of the work once, to see that everything runs; its figures mean nothing and are not published.
"""

from __future__ import annotations

from bench.command import Command, take, work_folder
from bench.repository import find_parts_of_tests

COMMAND = Command(
    package="bench.spark",
    about=__doc__,
    rows={
        "read": "reading:run",
        "copy": "copying:run",
        "commit": "committing:run",
        "memory": "memory:run",
        "session": "sessions:run",
    },
    reps=3,
    quick_share=0.02,
    keepers="brokers and Spark",
)


def main() -> None:
    find_parts_of_tests()
    from bench.spark.bench import Bench
    from bench.spark.report import PAGE

    options = COMMAND.parsed(COMMAND.parser())
    with work_folder(options.folder) as folder:
        bench = Bench(folder, COMMAND.extent(options))
        take(bench, COMMAND.chosen(options.only), PAGE)
    PAGE.print_tables(bench)


if __name__ == "__main__":
    main()
