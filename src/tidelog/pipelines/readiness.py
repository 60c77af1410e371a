"""When a run is ready: each of its queries has worked since it was started, and each of its views can be read.

A view can be read when its stores show it (`views/waiting.py`, as `tidelog wait` goes by): its first micro-batch is
applied there. A store may take its time to answer, so a thread of its own looks at them, and ends with the last.

Rules:
- A query that has failed for good, is paused or was stopped is not waited for: that was told, and others can be read.
- What can be read may be old: a run that goes on from yesterday is ready when it has looked for what is new.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.errors import TidelogError
from tidelog.pipelines.parts import QueryPart
from tidelog.pipelines.placing import Target
from tidelog.views.waiting import shown_place

if TYPE_CHECKING:
    from tidelog.views.stores.store import Store

LOOK_S = 0.1
AGAIN_S = 1.0  # after a store that was not reached

OpenStore = Callable[[Target, str], "Store"]


class Readiness:
    def __init__(self, targets: Iterable[Target], open_store: OpenStore, stopping: threading.Event) -> None:
        self._waits = {(target.node.name, url): target for target in targets for url in target.stores}
        self._open = open_store
        self._stopping = stopping
        self._thread = threading.Thread(target=self._look, name="tidelog-ready", daemon=True)
        self._thread.start()

    def is_ready(self, queries: Iterable[QueryPart]) -> bool:
        """Of those that are at work."""
        at_work = list(queries)
        hidden = {view for view, _ in list(self._waits)}
        return all(part.target.node.name not in hidden and part.has_worked() for part in at_work)

    def _look(self) -> None:
        """One store after the other: all are to be there in the end."""
        for (view, url), target in list(self._waits.items()):
            while not self._stopping.is_set() and not self._is_shown(target, url):
                self._stopping.wait(AGAIN_S)
            del self._waits[view, url]

    def _is_shown(self, target: Target, url: str) -> bool:
        """Waits until it is. False where the store cannot be looked at: its applier says why."""
        with suppress(TidelogError, OSError, ImportError):
            store = self._open(target, url)
            try:
                while shown_place(store) is None:
                    if self._stopping.wait(LOOK_S):
                        return False
                return True
            finally:
                store.close()
        return False
