"""Ctrl-C while DuckDB works: in a long call it is too late, or not at all, that it looks at signals.

A long call runs in a thread of its own, and the caller's waits. What interrupts the wait interrupts DuckDB, is raised
when that has ended, and leaves nothing running. Short calls stay in the caller's thread, where DuckDB may find the
signal first, and then says a RuntimeError of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Result = TypeVar("Result")
INTERRUPTED = "Query interrupted"  # all that DuckDB says of it


def interruptible(engine: DuckDBPyConnection, call: Callable[[], Result]) -> Result:
    done: list[Result] = []
    failed: list[BaseException] = []
    ended = threading.Event()  # an interrupted Thread.join may take the thread for ended, which an event does not

    def work() -> None:
        try:
            done.append(call())
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    threading.Thread(target=work, name="tidelog-sql", daemon=True).start()
    try:
        ended.wait()
    except BaseException:
        engine.interrupt()
        ended.wait()
        raise
    if failed:
        raise failed[0]
    return done[0]


@contextmanager
def as_keyboard_interrupt() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if str(error) != INTERRUPTED:
            raise
        raise KeyboardInterrupt from error
