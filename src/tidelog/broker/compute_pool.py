"""Arithmetic that takes milliseconds and no lock, in threads of its own, so that nothing else waits behind it.

A TLS handshake and a password each have such threads: a flood of the one does not hold up the other, and neither holds
up what reads from disk. Threads start with the first work, leave one core to the loop, and give way to it where there
is only one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from tidelog.broker.loop import Loop
from tidelog.log.pool import Pool

MAX_THREADS = 2
NICE = 5

Work = Callable[[], object]
Done = Callable[[object, BaseException | None], None]


class Beside:
    """Called on the loop's thread; `done(result, error)` is called there too."""

    def __init__(self, name: str, loop: Loop, on_fault: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._pool = Pool(max(1, min(MAX_THREADS, (os.cpu_count() or 1) - 1)), name, on_fault)
        self._nice = threading.local()

    def __call__(self, work: Work, done: Done) -> None:
        def run() -> None:
            result: object = None
            failed: BaseException | None = None
            self._give_way()
            try:
                result = work()
            except BaseException as error:
                failed = error
            self._loop.call_soon_threadsafe(lambda: done(result, failed))

        self._pool.submit(run)

    def _give_way(self) -> None:
        """Once in each thread: on Linux, and there alone, a thread has a priority of its own."""
        if not getattr(self._nice, "done", False):
            self._nice.done = True
            if sys.platform == "linux":
                with suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)

    def stop(self) -> None:
        """Finishes what is queued; its results are not looked at any more."""
        self._pool.stop()
