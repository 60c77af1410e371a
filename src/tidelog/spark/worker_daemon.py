"""The process that forks Spark's Python workers on this machine: it imports first what they would each import.

A worker is a fork of Spark's daemon, which has imported little: PyArrow, pandas and our own modules were six tenths of
a CPU second for each, once a worker, and a demo has seven. Here they are imported once, before the first fork.

Rules:
- It runs as `python -m tidelog.spark.worker_daemon WORKER`, in the place of `pyspark.daemon`, whose `manager` does all
  else. WORKER is the module whose `main` a fork runs; those that Spark starts only to look at a format import less.
- It opens nothing and starts no thread: a fork would have it broken. What cannot be imported is left to the worker,
  which says why.
- A worker whose connection Spark has closed, as when a query is stopped, ends without a word.
- Only where workers are of the Python that runs the driver, so that there is a Tidelog to import (`session.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

OF_ALL = ("pyspark.sql.types", "tidelog.spark.source")
OF_TASKS = (
    *("pyarrow", "pyarrow.compute", "numpy", "pandas"),
    *(
        "pyspark.sql.pandas.serializers",
        "pyspark.sql.conversion",
        "pyspark.sql.streaming.stateful_processor_api_client",
    ),
    *("tidelog.record.codec", "tidelog.record.arrow", "tidelog.client.consumer", "tidelog.spark.sink"),
    *("tidelog.spark.typed_values", "tidelog.schema.decoding.decoder", "tidelog.schema.decoding.json_program"),
    *("tidelog.spark.typed_columns", "pyspark.sql.worker.plan_data_source_read", "pyarrow.pandas_compat"),
)
TASKS = "pyspark.worker"


def preload(worker: str) -> None:
    for name in (worker, *OF_ALL, *(OF_TASKS if worker == TASKS else ())):
        with suppress(Exception):
            import_module(name)


def ending_quietly(worker: Callable[..., int | None]) -> Callable[..., int | None]:
    """PySpark's own would print where it stood when nobody was there any more to be answered."""

    def run(*given: Any) -> int | None:
        try:
            return worker(*given)
        except (EOFError, ConnectionError):
            return 1

    return run


def main() -> None:
    from pyspark import daemon  # which looks at the arguments for the worker's module

    known: Any = daemon
    known.worker = ending_quietly(known.worker)
    preload(sys.argv[1] if len(sys.argv) > 1 else TASKS)
    daemon.manager()


if __name__ == "__main__":
    main()
