"""One who follows a view: an async iterator of bytes on the loop, at a place of its own.

    in the ring    what came since is taken at once and sent; nothing new: it waits to be woken. What was not made for
                   all beforehand (a place within a slot, expressions beyond WHERES_MAX) is made in a thread
    in the past    a chunk is read from the log in a thread, and sent; then the ring is looked for again

Rules:
- Nothing is rendered on the loop, however many different expressions are followed: they wait for each other, and for
  nobody else.
- The next chunk is made when the client has taken the last one: a slow one has one chunk and the socket's buffer, holds
  up nobody, and may fall into the past. One that takes nothing at all is cut off (`protocol.py`).
- Every HEARTBEAT_S without an event a heartbeat goes, with the place.
- A row that is older than a column of its generation has null there, also for an expression.
- A place beyond the horizon ends the stream with `expired`, an expression that the next generation has no columns for
  with `refused`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tidelog.control.catalog import Generation
from tidelog.errors import CursorExpired, TidelogError, UsageError
from tidelog.gateway.limits import (
    CATCHING_UP_THREADS,
    CHUNK_BYTES,
    CHUNK_S,
    HEARTBEAT_S,
    PAST_PAUSE_S,
    RENDERING_THREADS,
)
from tidelog.gateway.views import rendering
from tidelog.gateway.views.catalogs import Catalogs
from tidelog.gateway.views.feed import Feed
from tidelog.gateway.views.slot import Slot, Where
from tidelog.schema.declaration import Declaration
from tidelog.schema.expression.evaluation import Predicate
from tidelog.views.feed_reading import FeedReader, Piece
from tidelog.views.feeds import Cursor

if TYPE_CHECKING:
    from tidelog.gateway.gateway import Gateway

PAST_WAIT_MS = 50


class Past:
    """What a subscriber cannot take from the ring as it is, in threads: a chunk of the log, or of slots."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._pool = ThreadPoolExecutor(CATCHING_UP_THREADS, "tidelog-past")
        self._rendering = ThreadPoolExecutor(RENDERING_THREADS, "tidelog-rendering")

    async def chunk(
        self, catalogs: Catalogs, feed: Feed, cursor: Cursor, where: str | None, *, from_start: bool
    ) -> tuple[bytes, Cursor]:
        def read() -> tuple[bytes, Cursor]:
            with self._gateway.cluster(feed.credentials) as cluster:
                view = catalogs.view(cluster, feed.credentials, feed.view)
                reader = FeedReader(cluster, view, cursor, from_start=from_start, wait_ms=PAST_WAIT_MS)
                return _read(reader, where)

        return await asyncio.get_running_loop().run_in_executor(self._pool, read)

    async def rendered(self, render: Callable[[], bytes]) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._rendering, render)

    def close(self) -> None:
        for pool in (self._pool, self._rendering):
            pool.shutdown(wait=False, cancel_futures=True)


def _read(reader: FeedReader, where: str | None) -> tuple[bytes, Cursor]:
    written, size, until = [], 0, time.monotonic() + CHUNK_S
    while size < CHUNK_BYTES and time.monotonic() < until:
        step = reader.step()
        if step is None:
            break
        current = reader.view.current
        assert current is not None, "a step was of the live generation"
        if isinstance(step, Piece):
            told = rendering.changes(current.declared, step.start, step.changes, _holds(where, current.declared))
        else:
            told = rendering.switched(step.end)
        written.append(told)
        size += len(told)
    return b"".join(written), reader.cursor


def _holds(where: str | None, declared: Declaration) -> Predicate | None:
    return None if where is None else Where.of(where, declared).holds


class Subscriber:
    def __init__(
        self,
        feed: Feed,
        past: Past,
        catalogs: Catalogs,
        cursor: Cursor,
        where: str | None,
        *,
        live: Generation,
        from_start: bool = False,
    ) -> None:
        """`live`: the generation by which the expression was found to be right."""
        self._feed = feed
        self._ring = feed.begun()
        self._past = past
        self._catalogs = catalogs
        self._cursor = cursor
        self._where = where
        self._live = live
        self._from_start = from_start
        self._looked_up: tuple[Declaration, Where] | None = None
        self._number: int | None = None  # of the next slot in the ring; None in the past

    async def chunks(self) -> AsyncIterator[bytes]:
        self._feed.join(self._where)
        try:
            yield rendering.greeting(self._cursor)
            said_at = time.monotonic()
            while True:
                try:
                    told = await self._next()
                except CursorExpired as expired:
                    yield rendering.ended(rendering.EXPIRED, str(expired), expired.start)
                    return
                except UsageError as refused:
                    yield rendering.ended(rendering.REFUSED, str(refused))
                    return
                except TidelogError:
                    return  # the client comes back with its place, and is told then
                if told is None:
                    return
                if not told and time.monotonic() - said_at > HEARTBEAT_S:
                    told = rendering.heartbeat(self._cursor)
                if told:
                    yield told
                    said_at = time.monotonic()
        finally:
            self._feed.leave(self._where)

    async def _next(self) -> bytes | None:
        """What comes next; nothing after having waited for it; None at the end."""
        if self._number is None:
            self._number = self._ring.place_of(self._cursor)
        if self._number is None:
            return await self._from_past()
        self._from_start = False
        slots = self._ring.since(self._number)
        if slots is None:
            self._number = None
            return b""
        if not slots:
            if self._feed.ended:
                return None
            await self._feed.woken()
            return b""
        if all(slot.is_made(self._cursor, self._where) for slot in slots):
            return self._all_told(slots)
        return await self._past.rendered(lambda: self._all_told(slots))

    def _all_told(self, slots: Iterable[Slot]) -> bytes:
        return b"".join([self._told(slot) for slot in slots])

    def _told(self, slot: Slot) -> bytes:
        assert self._number is not None, "it is in the ring"
        told, self._cursor = slot.told(self._cursor, self._rows(slot) if slot.changes else None)
        self._number += 1
        return told

    def _rows(self, slot: Slot) -> Where | None:
        """Which rows are followed, looked up once a generation: there may be more of them than `Where` remembers."""
        if self._where is None:
            return None
        if self._looked_up is None or self._looked_up[0] is not slot.declared:
            self._looked_up = (slot.declared, self._where_in(slot))
        return self._looked_up[1]

    def _where_in(self, slot: Slot) -> Where:
        assert self._where is not None, "an expression is followed"
        try:
            return Where.of(self._where, slot.declared)
        except UsageError:
            if slot.start.generation != self._live.number:
                raise
            return Where.of(self._where, self._live.declared)  # a slot of before the view grew: what it lacks is null

    async def _from_past(self) -> bytes | None:
        if self._feed.ended:
            return None
        told, cursor = await self._past.chunk(
            self._catalogs, self._feed, self._cursor, self._where, from_start=self._from_start
        )
        if cursor == self._cursor:
            await asyncio.sleep(PAST_PAUSE_S)
        self._cursor = cursor
        return told
