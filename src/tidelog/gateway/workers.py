"""Threads for handlers: so many in all, so many for one user, and so many requests that wait for one.

A thread that is busy cannot be stopped. So when a request's time is up it is answered, and its thread counts as busy
until the broker has answered or its own time limit (BROKER_TIMEOUT_S, unless --timeout says otherwise) has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tidelog.gateway.limits import CALLS_MAX, CALLS_PER_USER, CALLS_WAITING_MAX
from tidelog.gateway.route import Refusal

Result = TypeVar("Result")

BUSY = (("Retry-After", "1"),)


class Workers:
    """Belongs to the loop's thread."""

    def __init__(self, calls_max: int = CALLS_MAX, calls_per_user: int = CALLS_PER_USER) -> None:
        self._pool = ThreadPoolExecutor(calls_max, "tidelog-http")
        self._free = asyncio.Semaphore(calls_max)
        self._calls_per_user = calls_per_user
        self._users: dict[str, asyncio.Semaphore] = {}
        self._calls: dict[str, int] = {}
        self._waiting = 0

    @property
    def waiting(self) -> int:
        return self._waiting

    async def run(self, user: str, work: Callable[[], Result], within_s: float) -> Result:
        if self._waiting >= CALLS_WAITING_MAX:
            raise Refusal(503, f"{self._waiting} requests wait already; try again", headers=BUSY)
        running: asyncio.Future[Result] | None = None
        try:
            async with asyncio.timeout(within_s):
                running = await self._begin(user, work)
                return await asyncio.shield(running)
        except TimeoutError:
            if running is None:
                raise Refusal(503, f"no thread came free in {within_s:g} s; try again", headers=BUSY) from None
            raise Refusal(504, f"the broker did not answer in {within_s:g} s; try again, or look at its log") from None

    async def _begin(self, user: str, work: Callable[[], Result]) -> asyncio.Future[Result]:
        mine = self._users.setdefault(user, asyncio.Semaphore(self._calls_per_user))
        self._calls[user] = self._calls.get(user, 0) + 1
        self._waiting += 1
        try:
            await mine.acquire()
            try:
                await self._free.acquire()
            except BaseException:
                mine.release()
                raise
        except BaseException:
            self._forget(user)
            raise
        finally:
            self._waiting -= 1

        def done(finished: asyncio.Future[Result]) -> None:
            self._free.release()
            mine.release()
            self._forget(user)
            if not finished.cancelled():
                finished.exception()  # looked at: nobody may be left who awaits it

        running = asyncio.get_running_loop().run_in_executor(self._pool, work)
        running.add_done_callback(done)
        return running

    def _forget(self, user: str) -> None:
        self._calls[user] -= 1
        if not self._calls[user]:
            del self._calls[user], self._users[user]

    def close(self) -> None:
        """Does not wait: what runs has nobody left to answer."""
        self._pool.shutdown(wait=False, cancel_futures=True)
