"""The command: `python -m bench.capture [--only NAME ...] [--reps N] [--quick]`.

A whole run writes docs/benchmarks_capture.md; `--only` replaces its rows and keeps the others from the last run.
`--quick` does a twentieth of the work once, to see that everything runs; its figures mean nothing and are not
published. What is not installed (Debezium's worker, MariaDB) is left out, and said to be.
"""

from __future__ import annotations

import os

from bench.command import Command, take, work_folder
from bench.repository import find_parts_of_tests

COMMAND = Command(
    package="bench.capture",
    about=__doc__,
    rows={"changes": "changes:run", "delay": "delay:run", "writes": "writes:run", "large": "large:run"},
    reps=1,
    quick_share=0.05,
    keepers="databases and brokers",
)


def main() -> None:
    find_parts_of_tests()
    os.environ["TIDELOG_HTTP_LISTENER"] = "-"
    from bench.capture.bench import Bench
    from bench.capture.report import PAGE

    options = COMMAND.parsed(COMMAND.parser())
    with work_folder(options.folder) as folder:
        folder.chmod(0o755)  # PostgreSQL does not run as root, and has its data in it
        bench = Bench(folder, COMMAND.extent(options))
        take(bench, COMMAND.chosen(options.only), PAGE)
    PAGE.print_tables(bench)


if __name__ == "__main__":
    main()
