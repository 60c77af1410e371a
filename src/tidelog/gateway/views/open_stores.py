"""Stores that are open, for the next request that reads the same view: opening one may take longer than reading it.

A view may be in several stores, and each can answer. The first that does so is taken, in the view's own order; one that
did not is asked last for a while, since it may take its time to say nothing. What the broker does not answer
(`not_the_store`) no other store would mend; nor is a question that takes too long to be asked of one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TypeVar

from tidelog.client.cluster import Cluster
from tidelog.control.urls import redacted
from tidelog.errors import Disconnected, QueryTimedOut, StorageError, TidelogError, UsageError
from tidelog.gateway.limits import STORE_DOWN_S, STORES_MAX
from tidelog.gateway.refusal import refusal_of
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import Place, Store
from tidelog.views.waiting import After, wait

Which = tuple[str, str]
T = TypeVar("T")


class Opened:
    """Safe from any thread: a store belongs to one of them until the end of `with`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: list[tuple[Which, Store]] = []  # the one that was used last comes last
        self._down: dict[str, float] = {}  # by URL, until when

    def answer(self, urls: Sequence[str], view: str, ask: Callable[[Store], T]) -> T:
        """What the first of these stores has to say that answers."""
        failed: list[tuple[str, TidelogError]] = []
        for url in self._in_order(urls):
            try:
                with self.lease(url, view) as store:
                    return ask(store)
            except QueryTimedOut:
                raise
            except (Disconnected, StorageError) as error:
                self._note_down(url)
                failed.append((url, error))
        if len(failed) == 1:
            raise failed[0][1]
        told = "; ".join(f"{redacted(url)}: {error}" for url, error in failed)
        raise Disconnected(f"none of the {len(failed)} stores of view {view} answers: {told}")

    def _in_order(self, urls: Sequence[str]) -> list[str]:
        now = time.monotonic()
        with self._lock:
            self._down = {url: until for url, until in self._down.items() if until > now}
            return sorted(urls, key=lambda url: url in self._down)

    def _note_down(self, url: str) -> None:
        with self._lock:
            self._down[url] = time.monotonic() + STORE_DOWN_S

    @contextmanager
    def lease(self, url: str, view: str) -> Iterator[Store]:
        store = self._taken((url, view)) or open_store(url, view)
        try:
            yield store
        except UsageError:
            self._give_back((url, view), store)
            raise
        except BaseException:
            with suppress(TidelogError):
                store.close()
            raise
        self._give_back((url, view), store)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, store in idle:
            store.close()

    def _taken(self, which: Which) -> Store | None:
        with self._lock:
            for index in range(len(self._idle) - 1, -1, -1):
                if self._idle[index][0] == which:
                    return self._idle.pop(index)[1]
        return None

    def _give_back(self, which: Which, store: Store) -> None:
        with self._lock:
            self._idle.append((which, store))
            over = self._idle.pop(0)[1] if len(self._idle) > STORES_MAX else None
        if over is not None:
            over.close()


def wait_for(cluster: Cluster, view: str, after: After, timeout_s: float, store: Store) -> None:
    """Asks the broker and looks at the store by turns: a fault of one is not taken for the other's."""
    watched = Watched(store)
    with not_the_store(watched):
        wait(cluster, view, after, timeout_s, store=watched)


class Watched:
    """A store, and what it had that was no answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fault: TidelogError | None = None

    def shown(self) -> int | None:
        return self._noted(self._store.shown)

    def place(self, generation: int) -> Place | None:
        return self._noted(lambda: self._store.place(generation))

    def _noted(self, look: Callable[[], T]) -> T:
        try:
            return look()
        except TidelogError as error:
            self.fault = error
            raise


@contextmanager
def not_the_store(watched: Watched | None = None) -> Iterator[None]:
    """Of what is asked of the broker, on the way to an answer of a store; a fault that `watched` had is the store's."""
    try:
        yield
    except Disconnected as error:
        if watched is not None and error is watched.fault:
            raise
        raise refusal_of(error) from error
