"""The one thread that owns the broker: readiness of sockets, timers, and calls from other threads.

Not asyncio, although it could be: no coroutine runs here, and importing asyncio takes as long as starting all the
rest of the broker (docs/decisions/a_loop_of_our_own.md). The names are asyncio's, so that there is nothing to
learn.

    call_soon(action)               after what runs now, in order           loop thread
    call_later(delay_s, action)     once, unless cancelled                  loop thread
    call_soon_threadsafe(action)    the same as call_soon                   any thread, and signal handlers
    add_reader / add_writer         whenever the descriptor is ready        loop thread
    in_thread(work, done)           work in a pool, then done on the loop   loop thread

An action that raises is a fault of ours. It is reported by `on_fault` and the loop goes on: one connection's
trouble must not stop all others.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from heapq import heapify, heappop, heappush
from math import ceil
from threading import Lock

from tidelog.log.pool import Pool

READ, WRITE = select.POLLIN, select.POLLOUT  # also epoll's; what is neither (an error, a hang-up) is both
WORKER_THREADS = 4
WAKE_BYTES = 4096
CANCELLED_MAX = 1000  # cancelled timers in the heap before it is made anew, if they are more than half of it

Action = Callable[[], object]
Watched = tuple[Action | None, Action | None]
NOBODY: Watched = (None, None)


class TimerHandle:
    """An action that will be due."""

    __slots__ = ("_loop", "action")

    def __init__(self, loop: Loop, action: Action) -> None:
        self._loop = loop
        self.action: Action | None = action

    def take(self) -> Action | None:
        """The action, to be done now; from here on there is nothing to cancel."""
        action, self.action = self.action, None
        return action

    def cancel(self) -> None:
        if self.take() is not None:
            self._loop.timer_cancelled()


class Loop:
    def __init__(self, on_fault: Callable[[BaseException], None]) -> None:
        self._on_fault = on_fault
        # Not `selectors`: what it does for every turn took a tenth of the CPU of a thousand idle consumers.
        self._poller = select.epoll() if hasattr(select, "epoll") else _Poll()
        self._watched: dict[int, Watched] = {}  # the reader and the writer of a descriptor
        self._ready: deque[Action] = deque()
        # When it is due, its age, itself: tuples, because a heap of a thousand compares a lot.
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._cancelled = 0
        self._numbers = 0
        self._running = False
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._woken = False
        self._waking = Lock()
        self.add_reader(self._wake_reader, self._wake_up)
        self._pool: Pool | None = None

    def time(self) -> float:
        return time.monotonic()

    # Running --------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until `stop`."""
        self._running = True
        while self._running:
            self._turn()

    def stop(self) -> None:
        self._running = False

    def finish_work(self) -> None:
        """After `run`: waits for what runs in threads. Its results are not looked at any more."""
        if self._pool is not None:
            self._pool.stop()
            self._pool = None

    def close(self) -> None:
        self.finish_work()
        self._poller.close()
        with self._waking:
            os.close(self._wake_reader)
            os.close(self._wake_writer)
            self._wake_writer = -1

    def _turn(self) -> None:
        watched = self._watched
        for descriptor, events in self._poller.poll(self._patience()):
            reader, writer = watched.get(descriptor, NOBODY)
            if events & ~WRITE and reader is not None:
                self._do(reader)
            # The reader may have closed the connection a moment ago.
            if events & ~READ and writer is not None and watched.get(descriptor, NOBODY)[1] is writer:
                self._do(writer)
        now = self.time()
        while self._timers and self._timers[0][0] <= now:  # an action may make the heap anew
            action = heappop(self._timers)[2].take()
            if action is None:
                self._cancelled -= 1
            else:
                self._do(action)
        ready = self._ready
        for _ in range(len(ready)):
            self._do(ready.popleft())

    def _patience(self) -> float | None:
        if self._ready:
            return 0
        if self._timers:
            return max(0.0, self._timers[0][0] - self.time())
        return None

    def _do(self, action: Action) -> None:
        try:
            action()
        except Exception as error:
            self._on_fault(error)

    # Later ----------------------------------------------------------------------------------------------------------

    def call_soon(self, action: Action) -> None:
        self._ready.append(action)

    def call_later(self, delay_s: float, action: Action) -> TimerHandle:
        self._numbers += 1
        timer = TimerHandle(self, action)
        heappush(self._timers, (self.time() + delay_s, self._numbers, timer))
        return timer

    def timer_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > CANCELLED_MAX and self._cancelled * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if timer[2].action is not None]
            heapify(self._timers)
            self._cancelled = 0

    # From elsewhere -------------------------------------------------------------------------------------------------

    def call_soon_threadsafe(self, action: Action) -> None:
        self._ready.append(action)
        if self._woken:
            return
        # The lock is for the end: a number that was closed a moment ago may be another file's by now.
        with self._waking:
            if self._wake_writer >= 0:
                self._woken = True
                with suppress(BlockingIOError):  # the pipe is full of wake-ups already
                    os.write(self._wake_writer, b"\0")

    def _wake_up(self) -> None:
        try:
            while len(os.read(self._wake_reader, WAKE_BYTES)) == WAKE_BYTES:
                continue
        except BlockingIOError:
            pass
        # Cleared after the pipe is emptied. Whoever comes between the two writes nothing and need not: its action is
        # done in this same turn. The other way round its byte would be read here and its flag would stay for ever.
        self._woken = False

    def in_thread(self, work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        if self._pool is None:
            self._pool = Pool(WORKER_THREADS, "tidelog-worker", self._on_fault)

        def run() -> None:
            result: object = None
            failed: BaseException | None = None
            try:
                result = work()
            except BaseException as error:
                failed = error
            self.call_soon_threadsafe(lambda: done(result, failed))

        self._pool.submit(run)

    def handle_signal(self, number: int, action: Action) -> None:
        """Main thread only. A signal that arrives in `select` wakes it through the pipe, as a thread would."""
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        signal.signal(number, lambda _number, _frame: self.call_soon(action))

    # Descriptors ----------------------------------------------------------------------------------------------------

    def add_reader(self, descriptor: int, action: Action) -> None:
        self._watch(descriptor, READ, action)

    def add_writer(self, descriptor: int, action: Action) -> None:
        self._watch(descriptor, WRITE, action)

    def remove_reader(self, descriptor: int) -> None:
        self._unwatch(descriptor, READ)

    def remove_writer(self, descriptor: int) -> None:
        self._unwatch(descriptor, WRITE)

    def _watch(self, descriptor: int, event: int, action: Action) -> None:
        before = self._watched.get(descriptor)
        reader, writer = before or NOBODY
        after = (action, writer) if event == READ else (reader, action)
        self._watched[descriptor] = after
        if before is None:
            self._poller.register(descriptor, event)
        else:
            self._poller.modify(descriptor, _events(after))

    def _unwatch(self, descriptor: int, event: int) -> None:
        reader, writer = self._watched.get(descriptor, NOBODY)
        if (reader if event == READ else writer) is None:
            return
        after = (None, writer) if event == READ else (reader, None)
        if after == NOBODY:
            del self._watched[descriptor]
            self._poller.unregister(descriptor)
        else:
            self._watched[descriptor] = after
            self._poller.modify(descriptor, _events(after))


def _events(watched: Watched) -> int:
    reader, writer = watched
    return (READ if reader is not None else 0) | (WRITE if writer is not None else 0)


class _Poll:
    """`select.poll` with epoll's methods, where there is no epoll: slower with many connections."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register, self.modify, self.unregister = self._poll.register, self._poll.modify, self._poll.unregister

    def poll(self, timeout_s: float | None) -> list[tuple[int, int]]:
        return self._poll.poll(None if timeout_s is None else ceil(timeout_s * 1000))

    def close(self) -> None:
        """Nothing is held."""
