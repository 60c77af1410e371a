"""Appliers for tests: in a thread, by steps, or as the command in a process of its own; and what a store shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import NamedTuple

import pytest

from contract import TIMEOUT_S
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Fetched
from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Ends
from tidelog.errors import NotShown
from tidelog.views.applier import Applier
from tidelog.views.reading import reached
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import PAGE_ROWS_MAX, Ask
from views.writing import revenues

STEPS = 5


class Shown(NamedTuple):
    rows: dict[str, int]
    ends: Ends
    generation: int


class Running:
    """An applier in a thread of its own, with a cluster of its own."""

    def __init__(self, bootstrap: str, url: str, view: str) -> None:
        self.said: list[str] = []
        self.error: Exception | None = None
        self._bootstrap, self._url, self._view = bootstrap, url, view
        self.applier: Applier | None = None
        self.thread = Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        store = open_store(self._url, self._view)
        try:
            with Cluster(self._bootstrap, timeout_s=2, patient=True) as cluster:
                self.applier = Applier(cluster, self._view, store, store_name="s", say=self.said.append, max_wait_ms=50)
                self.applier.run()
        except Exception as error:
            self.error = error
        finally:
            store.close()

    def stop(self) -> None:
        until(lambda: self.applier is not None or self.error is not None)
        if self.applier is not None:
            self.applier.stop()
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()


class Watched:
    """How far all appliers of this process have read, and how many steps they have made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: dict[TopicPartition, int] = {}
        self.steps = 0
        note, step = Applier._note, Applier.step

        def noting(applier: Applier, fetched: Fetched) -> None:
            self.read[fetched.at] = fetched.next_offset
            note(applier, fetched)

        def counting(applier: Applier) -> None:
            step(applier)
            self.steps += 1

        monkeypatch.setattr(Applier, "_note", noting)
        monkeypatch.setattr(Applier, "step", counting)

    def until_read(self, ends: Ends) -> None:
        """And until it has had its chances to do something with it."""
        until(lambda: all(self.read.get(at, 0) >= end for at, end in ends.items()))
        enough = self.steps + STEPS
        until(lambda: self.steps >= enough)


@contextmanager
def applying(bootstrap: str, url: str, view: str = "revenue") -> Iterator[Running]:
    running = Running(bootstrap, url, view)
    running.thread.start()
    try:
        yield running
    except BaseException as error:
        error.add_note(f"the applier said {running.said} and ended with {running.error!r}")
        raise
    finally:
        running.stop()


@contextmanager
def stepping(bootstrap: str, url: str, view: str = "revenue") -> Iterator[Applier]:
    """One that the test moves, by `step`."""
    store = open_store(url, view)
    with Cluster(bootstrap, timeout_s=TIMEOUT_S) as cluster:
        yield Applier(cluster, view, store, store_name="s", max_wait_ms=50)
    store.close()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.005)


def shown(url: str, view: str = "revenue") -> Shown | None:
    """All that a reader sees, of one instant."""
    store = open_store(url, view)
    try:
        page = store.read(Ask(limit=PAGE_ROWS_MAX))
    except NotShown:
        return None
    finally:
        store.close()
    return Shown(revenues(page.rows), page.place.ends, page.place.generation)


def until_applied(url: str, ends: Ends, view: str = "revenue", generation: int | None = None) -> Shown:
    """What is shown once it has come that far."""
    found: list[Shown] = []

    def there() -> bool:
        now = shown(url, view)
        if now is None or generation not in (None, now.generation) or not reached(ends, now.ends):
            return False
        found.append(now)
        return True

    until(there)
    return found[-1]
