"""Ctrl-C while DuckDB works: it looks at no signals, so somebody else has to wait for it.

The call runs in a thread of its own, and the caller's waits. What interrupts the wait interrupts DuckDB, is raised when
that has ended, and leaves nothing running.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Result = TypeVar("Result")


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
