"""Arithmetic that takes milliseconds and no lock, in threads of its own, so that nothing else waits behind it.

A TLS handshake and a password each have such threads: a flood of the one does not hold up the other, and neither holds
up what reads from disk. Threads start with the first work.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.loop import Loop
from tidelog.log.pool import Pool

THREADS = 2

Work = Callable[[], object]
Done = Callable[[object, BaseException | None], None]


class Beside:
    """Called on the loop's thread; `done(result, error)` is called there too."""

    def __init__(self, name: str, loop: Loop, on_fault: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._pool = Pool(THREADS, name, on_fault)

    def __call__(self, work: Work, done: Done) -> None:
        def run() -> None:
            result: object = None
            failed: BaseException | None = None
            try:
                result = work()
            except BaseException as error:
                failed = error
            self._loop.call_soon_threadsafe(lambda: done(result, failed))

        self._pool.submit(run)

    def stop(self) -> None:
        """Finishes what is queued; its results are not looked at any more."""
        self._pool.stop()
