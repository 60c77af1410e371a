"""A few threads for work that may wait for the disk. They start when there is work and end with `stop`.

With a limit of 0 there are no threads, and `wait` does the work: that makes tests repeatable.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")


class Pool:
    """A job takes no argument and returns nothing. What it raises is a fault of ours, and goes to `on_fault`."""

    def __init__(self, limit: int, name: str, on_fault: Callable[[BaseException], None]) -> None:
        self._on_fault = on_fault
        self._limit = limit
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._unfinished = 0
        self._idle = threading.Condition(self._lock)

    @property
    def busy(self) -> bool:
        return self._unfinished > 0

    def submit(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._unfinished += 1
            if self._unfinished > len(self._threads) < self._limit:
                thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads) + 1}", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._jobs.put(job)

    def each(self, function: Callable[[Item], None], items: Sequence[Item]) -> None:
        """Calls the function with every item, in the caller's thread and in those that are free; then returns.

        It waits for the items alone: threads that are busy with other jobs hold nobody up.
        """
        work = deque(items)
        done: SimpleQueue[None] = SimpleQueue()

        def take() -> None:
            while True:
                try:
                    item = work.popleft()
                except IndexError:
                    return
                try:
                    function(item)
                finally:
                    done.put(None)

        for _ in range(min(self._limit - self._unfinished, len(items) - 1)):
            self.submit(take)
        take()
        for _ in items:
            done.get()

    def wait(self) -> None:
        """Until no job is left."""
        if not self._limit:
            while self._unfinished:
                self._do(self._jobs.get_nowait())
            return
        with self._idle:
            self._idle.wait_for(lambda: self._unfinished == 0)

    def stop(self) -> None:
        """Finishes what is queued."""
        with self._lock:
            threads = list(self._threads)
            self._threads.clear()
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._do(job)

    def _do(self, job: Callable[[], None] | None) -> None:
        assert job is not None
        try:
            job()
        except BaseException as error:
            self._on_fault(error)
        finally:
            with self._lock:
                self._unfinished -= 1
                if self._unfinished == 0:
                    self._idle.notify_all()
