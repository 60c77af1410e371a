"""The command: `python -m bench.broker [--only NAME ...] [--reps N] [--quick]`.

A whole run writes docs/benchmarks.md; `--only` replaces its rows and keeps the others from the last run. `--quick`
does a hundredth of the work once, to see that everything runs; its figures mean nothing and are not published.
"""

from __future__ import annotations

import resource

from bench.command import Command, take, work_folder
from bench.repository import find_parts_of_tests

COMMAND = Command(
    package="bench.broker",
    about=__doc__,
    rows={
        "throughput": "throughput:run",
        "transactions": "transactions:run",
        "compaction": "compaction:run",
        "tls": "tls:run",
        "hostile": "hostile:run",
        "latency": "latency:run_latency",
        "startup": "startup:run_startup",
        "memory": "startup:run_memory",
        "waves": "latency:run_waves",
        "cold": "latency:run_cold",
        "backlog": "backlog:run",
        "queues": "queues:run",
        "idle": "idle:run",
        "connections": "growth:run_connections",
        "partitions": "growth:run_partitions",
        "size": "log_size:run",
    },
    reps=5,
    quick_share=0.01,
    keepers="brokers",
)
DESCRIPTORS = 200_000


def main() -> None:
    find_parts_of_tests()
    from bench.broker.bench import Bench
    from bench.broker.load import compile_load
    from bench.broker.report import PAGE

    parser = COMMAND.parser()
    parser.add_argument("--keep", action="store_true", help="leave the brokers' folders, with what they logged")
    options = COMMAND.parsed(parser)
    raise_descriptors()
    compile_load()
    with work_folder(options.folder, keep=options.keep) as folder:
        bench = Bench(folder, COMMAND.extent(options))
        take(bench, COMMAND.chosen(options.only), PAGE)
    PAGE.print_tables(bench)


def raise_descriptors() -> None:
    """Apache Kafka opens several files for every partition, and the row of connections has both of their ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, DESCRIPTORS), max(hard, DESCRIPTORS)))
    except (ValueError, OSError):  # only root may go above the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
