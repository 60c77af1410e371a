"""One reader for all who follow one view as one user, and the ring of what it read last.

    beginning    the thread finds the view and where it ends; who wants to follow waits for that
    following    pieces are read and put into the ring, the oldest ones leave it; subscribers are woken
    ended        nobody has followed for FEED_LINGER_S, the gateway ends, or `failed` says why: streams end too, and who
                 comes back begins another

Rules:
- A subscriber has a place in the ring and no queue of its own: however many there are, and however slow, what they have
  in common is all that is kept, RING_BYTES and RING_CHANGES at most.
- Who is not in the ring, having begun in the past or fallen out, reads the log himself until he meets it
  (`subscriber.py`).
- An event's bytes are made once for all who follow the same rows, in this thread, not on the loop.
- The thread logs in anew every FEED_RENEW_S, as all connections do: who was deleted or may not read ends with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from tidelog.errors import TidelogError, UsageError
from tidelog.gateway.access import Credentials
from tidelog.gateway.limits import (
    FEED_LINGER_S,
    FEED_READY_S,
    FEED_RENEW_S,
    FEEDS_MAX,
    SUBSCRIBERS_MAX,
    SUBSCRIBERS_PER_USER,
    TICK_S,
)
from tidelog.gateway.route import Refusal
from tidelog.gateway.views import rendering
from tidelog.gateway.views.ring import Ring
from tidelog.gateway.views.slot import Slot, Where
from tidelog.gateway.workers import BUSY
from tidelog.schema.declaration import Declaration
from tidelog.views.feed_reading import FeedReader, Piece, Switched, find, newest

if TYPE_CHECKING:
    from tidelog.gateway.gateway import Gateway

OVER = (Refusal(503, "the feed has ended; come back", headers=BUSY),)


class Feed:
    """`woken`, `join` and `leave` are for the loop's thread; the rest is safe from any."""

    def __init__(
        self, gateway: Gateway, view: str, credentials: Credentials | None, done: Callable[[Feed], bool]
    ) -> None:
        """`done` takes it out of the table; False where somebody has just come."""
        self.view = view
        self.credentials = credentials
        self.failed: Exception | None = None
        self.ended = False
        self.subscribers = 0
        self.used_at = time.monotonic()
        self._gateway = gateway
        self._done = done
        self._ready = Event()
        self._ring: Ring | None = None  # not before it is ready
        self._wheres: dict[str, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn: asyncio.Future[None] | None = None
        self._waking = False
        self._ticked_at = time.monotonic()
        self._thread = Thread(target=self._run, name=f"tidelog-feed-{view}", daemon=True)
        self._thread.start()

    def begun(self) -> Ring:
        """Once it knows where it is; its error where it could not begin."""
        if not self._ready.wait(FEED_READY_S):
            raise Refusal(503, f"the feed of {self.view} has not begun in {FEED_READY_S:g} s; try again", headers=BUSY)
        if self.failed is not None:
            raise self.failed
        assert self._ring is not None, "it is ready"
        return self._ring

    # For subscribers --------------------------------------------------------------------------------------------------

    def join(self, where: str | None) -> None:
        self.subscribers += 1
        if where is not None:
            self._wheres[where] = self._wheres.get(where, 0) + 1

    def leave(self, where: str | None) -> None:
        self.subscribers -= 1
        self.used_at = time.monotonic()
        if where is not None:
            self._wheres[where] -= 1
            if not self._wheres[where]:
                del self._wheres[where]

    async def woken(self) -> None:
        """When something has come, or TICK_S has passed."""
        if self._turn is None:
            self._loop = asyncio.get_running_loop()
            self._turn = self._loop.create_future()
        await asyncio.shield(self._turn)

    # The thread -------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._over():
                self._follow()
        except Exception as error:
            self.failed = error if isinstance(error, TidelogError) else OVER[0]
            self._done(self)
            if not isinstance(error, TidelogError):
                raise
        finally:
            self.ended = True
            self._ready.set()
            self._wake()

    def _follow(self) -> None:
        """As one login, for as long as that is good."""
        until = time.monotonic() + FEED_RENEW_S
        with self._gateway.cluster(self.credentials) as cluster:
            view, catalog_from = find(cluster, self.view)
            if self._ring is None:
                self._ring = Ring(newest(cluster, view))
            reader = FeedReader(cluster, view, self._ring.position, catalog_from=catalog_from)
            self._ready.set()
            while not self._over() and time.monotonic() < until:
                step = reader.step()
                if step is not None:
                    current = reader.view.current
                    assert current is not None, "a step was of the live generation"
                    self._add(self._ring, step, current.declared)
                self._tick()

    def _over(self) -> bool:
        if self.ended:
            return True
        idle = not self.subscribers and time.monotonic() - self.used_at > FEED_LINGER_S
        self.ended = self._gateway.ending.is_set() or (idle and self._done(self))
        return self.ended

    def _add(self, ring: Ring, step: Piece | Switched, declared: Declaration) -> None:
        if isinstance(step, Switched):
            ring.add(Slot(ring.position, step.end, declared, (), rendering.switched(step.end)))
        elif step.changes:
            slot = Slot(step.start, step.end, declared, step.changes)
            slot.render(self._followed(declared))
            ring.add(slot)
        else:
            ring.move(step.end)
            return
        self._wake()

    def _followed(self, declared: Declaration) -> Iterator[Where | None]:
        yield None
        for text in list(self._wheres):
            with suppress(UsageError):  # its subscriber is told when he comes to it
                yield Where.of(text, declared)

    def _tick(self) -> None:
        if time.monotonic() - self._ticked_at > TICK_S:
            self._ticked_at = time.monotonic()
            self._wake()

    def _wake(self) -> None:
        if self._loop is not None and not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._turned)

    def _turned(self) -> None:
        self._waking = False
        assert self._loop is not None and self._turn is not None, "who waits has made them"
        turn, self._turn = self._turn, self._loop.create_future()
        turn.set_result(None)


class Feeds:
    """One for each view and user that is followed. Safe from any thread."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._lock = Lock()
        self._feeds: dict[tuple[str, Credentials | None], Feed] = {}

    def get(self, view: str, credentials: Credentials | None) -> Feed:
        with self._lock:
            subscribers = sum(feed.subscribers for feed in self._feeds.values())
            mine = sum(feed.subscribers for (_, of), feed in self._feeds.items() if of == credentials)
            if subscribers >= SUBSCRIBERS_MAX or mine >= SUBSCRIBERS_PER_USER:
                raise Refusal(503, f"{subscribers} follow views already; try again later", headers=BUSY)
            feed = self._feeds.get((view, credentials))
            if feed is None or feed.ended:
                if len(self._feeds) >= FEEDS_MAX:
                    raise Refusal(503, f"{len(self._feeds)} views are being followed; try again later", headers=BUSY)
                feed = Feed(self._gateway, view, credentials, self._drop)
                self._feeds[view, credentials] = feed
            feed.used_at = time.monotonic()
            return feed

    def _drop(self, feed: Feed) -> bool:
        with self._lock:
            if feed.failed is None and (feed.subscribers or time.monotonic() - feed.used_at <= FEED_LINGER_S):
                return False
            if self._feeds.get((feed.view, feed.credentials)) is feed:
                del self._feeds[feed.view, feed.credentials]
            return True

    def close(self) -> None:
        with self._lock:
            for feed in self._feeds.values():
                feed.ended = True
            self._feeds.clear()
