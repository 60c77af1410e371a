"""Stores that are open, for the next request that reads the same view: opening one may take longer than reading it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from tidelog.errors import TidelogError, UsageError
from tidelog.gateway.limits import STORES_MAX
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import Store

Which = tuple[str, str]


class Opened:
    """Safe from any thread: a store belongs to one of them until the end of `with`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: list[tuple[Which, Store]] = []  # the one that was used last comes last

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
