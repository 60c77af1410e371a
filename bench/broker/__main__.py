"""The command: `python -m bench.broker [--only NAME ...] [--reps N] [--quick]`.

A whole run writes docs/benchmarks.md; `--only` replaces its rows and keeps the others from the last run. `--quick`
does a hundredth of the work once, to see that everything runs; its figures mean nothing and are not published.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ROWS = {
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
    "idle": "idle:run",
    "connections": "growth:run_connections",
    "partitions": "growth:run_partitions",
    "size": "log_size:run",
}
QUICK_SHARE = 0.01
DESCRIPTORS = 200_000


def main() -> None:
    sys.path.insert(0, str(REPOSITORY / "tests"))  # the brokers are started as the tests start them
    from bench.broker import report
    from bench.broker.bench import Bench
    from bench.broker.load import compile_load

    options = parse()
    raise_descriptors()
    compile_load()
    folder = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=options.folder))
    reps = 1 if options.quick else options.reps
    bench = Bench(folder, reps=reps, share=QUICK_SHARE if options.quick else 1.0, quick=options.quick)
    earlier = report.earlier()
    taken = {} if options.quick else dict(earlier["taken"])
    try:
        for name in options.only or ROWS:
            print(f"{name} ...", file=sys.stderr, flush=True)
            find(ROWS[name])(bench)
            taken[name] = report.facts(reps)
            if not options.quick:  # after every row: a later one may fail
                report.publish(bench.figures, earlier["figures"], taken)
    finally:
        bench.stop()
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    report.print_table(bench.figures)


def raise_descriptors() -> None:
    """Apache Kafka opens several files for every partition, and the row of connections has both of their ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, DESCRIPTORS), max(hard, DESCRIPTORS)))
    except (ValueError, OSError):  # only root may go above the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.broker", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help=", ".join(ROWS))
    parser.add_argument("--reps", type=int, default=5, help="repetitions of each row (default: 5)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: little work, no publishing")
    parser.add_argument("--folder", help="where brokers keep their data (default: the temporary folder)")
    parser.add_argument("--keep", action="store_true", help="leave the brokers' folders, with what they logged")
    options = parser.parse_args()
    options.only = [name for word in options.only or () for name in word.split(",") if name]
    if unknown := set(options.only) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; rows are {', '.join(ROWS)}")
    return options


def find(where: str) -> Callable[..., None]:
    module, _, name = where.partition(":")
    run: Callable[..., None] = getattr(import_module(f"bench.broker.{module}"), name)
    return run


if __name__ == "__main__":
    main()
