"""Source offsets that a commit has not told: told when nothing is committed for a while.

A query's offsets are a group's, for tools, and stand in the sink's transaction. In each of five commits a second they
cost a sync each, for what nobody looks at so often. So a transaction has them once a second; and where the last ones of
a query were left out, this tells them, by a thread of its own that lives only as long as something is to be told.

Rules:
- What is told here is never newer than what was committed, and never told after newer ones: who commits cancels first,
  and waits for what is being told.
- A process that stood still, and wakes up later, tells nothing: another one may have gone on.
- It is for tools: a fault is passed over, and the next commit tells.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from threading import Condition, Thread
from typing import NamedTuple

from tidelog.client.admin import groups
from tidelog.client.cluster import Cluster
from tidelog.control.marks import Ends
from tidelog.errors import TidelogError

AFTER_S = 1.5  # without a commit
TOO_LATE_S = 10.0


class Late(NamedTuple):
    offsets: Ends
    open_cluster: Callable[[], Cluster]
    due: float


class LateReports:
    """Safe from any thread."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: dict[str, Late] = {}  # by group
        self._thread: Thread | None = None
        self._pid = os.getpid()

    def note(self, group: str, offsets: Ends, open_cluster: Callable[[], Cluster]) -> None:
        with self._changed:
            self._waiting[group] = Late(offsets, open_cluster, time.monotonic() + AFTER_S)
            if self._thread is None or self._pid != os.getpid():  # a fork has no thread of its parent's
                self._pid = os.getpid()
                atexit.unregister(self.flush)  # once is enough
                atexit.register(self.flush)
                self._thread = Thread(target=self._tell_later, name="tidelog-late-reports", daemon=True)
                self._thread.start()

    def cancel(self, group: str) -> None:
        with self._changed:
            self._waiting.pop(group, None)

    def flush(self) -> None:
        """Tells all of it now."""
        with self._changed:
            for group in list(self._waiting):
                self._tell(group)

    def _tell_later(self) -> None:
        with self._changed:
            while self._waiting:
                group, late = min(self._waiting.items(), key=lambda one: one[1].due)
                now = time.monotonic()
                if now < late.due:
                    self._changed.wait(late.due - now)
                elif now < late.due + TOO_LATE_S:
                    self._tell(group)
                else:
                    del self._waiting[group]
            self._thread = None

    def _tell(self, group: str) -> None:
        late = self._waiting.pop(group)
        with suppress(TidelogError, OSError), closing(late.open_cluster()) as cluster:
            groups.commit(cluster, group, late.offsets)


LATE_REPORTS = LateReports()
