"""Looks at what readers of the views see: a thread that asks each store again and again where it is.

starting      a view is not shown yet: Spark starts, or the first micro-batch is under way
catching up   all are shown, and what was produced until then is not all in them
live          it was: from here on freshness counts
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Ends
from tidelog.demo.checking import QUERIES
from tidelog.demo.freshness import Freshness, Produced
from tidelog.errors import TidelogError
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import Store

LOOK_S = 0.05


class Watcher:
    """`produced` may be called from another thread; so may everything public."""

    def __init__(self, url: str) -> None:
        self._thread = threading.Thread(target=self._run, name="tidelog-demo-watcher", daemon=True)
        self.live = threading.Event()
        self.freshness = {view: Freshness(query.topics) for view, query in QUERIES.items()}
        self._url = url
        self._lock = threading.Lock()
        self._ends: dict[TopicPartition, int] = {}
        self._read: dict[str, Ends] = {}
        self._goal: Ends | None = None
        self._stopping = threading.Event()

    def produced(self, one: Produced) -> None:
        with self._lock:
            self._ends[one.at] = one.offset + 1
            if self.live.is_set():
                for freshness in self.freshness.values():
                    freshness.produced(one)

    @property
    def lag(self) -> dict[str, int]:
        """Records of its topics that are not visible in a view yet."""
        with self._lock:
            return {view: self._behind(view, self._ends) for view in QUERIES}

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        stores = {view: open_store(self._url, view) for view in QUERIES}
        try:
            while not self._stopping.wait(LOOK_S):
                read = {view: _read(store) for view, store in stores.items()}
                self.look(read, time.monotonic())
        finally:
            for store in stores.values():
                store.close()

    def look(self, read: Mapping[str, Ends | None], now_s: float) -> None:
        """One look at all views: what was read into them, None where one is not shown."""
        with self._lock:
            self._read |= {view: ends for view, ends in read.items() if ends is not None}
            for view, ends in self._read.items():
                self.freshness[view].seen(ends, now_s)
            if self._goal is None and self._ends and len(self._read) == len(QUERIES):
                self._goal = dict(self._ends)
            if self._goal is not None and not any(self._behind(view, self._goal) for view in QUERIES):
                self.live.set()

    def _behind(self, view: str, ends: Ends) -> int:
        read, topics = self._read.get(view, {}), QUERIES[view].topics
        return sum(max(0, end - read.get(at, 0)) for at, end in ends.items() if at.topic in topics)


def _read(store: Store) -> Ends | None:
    try:
        shown = store.shown()
        place = None if shown is None else store.place(shown)
    except TidelogError:
        return None  # not made yet, or being written: the next look tells
    return None if place is None or place.mark is None else place.mark.sources.offsets
