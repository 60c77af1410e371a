"""The command: `python -m bench.sourcing [--only NAME ...] [--reps N] [--quick]`.

A whole run writes docs/benchmarks_sourcing.md; `--only` replaces its rows and keeps the others from the last run.
`--quick` does a twentieth of the work once, to see that everything runs; its figures mean nothing and are not
published. PostgreSQL is left out where it does not start, and said to be.
"""

from __future__ import annotations

from bench.command import Command, take, work_folder
from bench.run import Run
from bench.sourcing.report import PAGE

COMMAND = Command(
    package="bench.sourcing",
    about=__doc__,
    rows={"replay": "replay:run", "commands": "commands:run", "take-over": "take_over:run"},
    reps=3,
    quick_share=0.05,
    keepers="databases and brokers",
)


def main() -> None:
    options = COMMAND.parsed(COMMAND.parser())
    with work_folder(options.folder) as folder:
        folder.chmod(0o755)  # PostgreSQL does not run as root, and has its data in it
        bench = Run(folder, COMMAND.extent(options))
        take(bench, COMMAND.chosen(options.only), PAGE)
    PAGE.print_tables(bench)


if __name__ == "__main__":
    main()
