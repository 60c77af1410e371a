"""A part that is a blocking loop of this process, in a thread of its own."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event, Thread
from typing import Any, Protocol

from tidelog.errors import TidelogError
from tidelog.parts.part import Fault
from tidelog.parts.supervision import fault_of

END_S = 10.0  # within which one that was told to end does so, unless it is given longer
ENDED = Fault("it has ended, and nobody had told it to", final=False)


class Blocking(Protocol):
    """What `running.run_part` runs. What `run` raises is its fault: a `UsageError` is final, others are retried."""

    kind: str
    name: str

    def run(self, stopping: Event) -> None:
        """Works until `stopping` is set, and returns soon after that. Called again after a fault, and by `resume`."""

    def figures(self) -> Mapping[str, Any]:
        """Of a thread that is not the loop's, at any time."""


class ThreadPart:
    reports_as = None

    def __init__(self, loop: Blocking, *, end_s: float = END_S) -> None:
        self.kind, self.name = loop.kind, loop.name
        self._end_s = end_s
        self._loop = loop
        self._stopping = Event()
        self.error: BaseException | None = None  # what it ended with when it ran last
        self._thread: Thread | None = None

    def start(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            raise TidelogError("what ran before has not ended yet")
        self._stopping, self.error = Event(), None
        self._thread = Thread(target=self._run, args=(self._stopping,), name=f"{self.kind}-{self.name}", daemon=True)
        self._thread.start()

    def _run(self, stopping: Event) -> None:
        try:
            self._loop.run(stopping)
        except BaseException as error:  # not lost with the thread
            self.error = error

    def look(self) -> Fault | None:
        assert self._thread is not None
        if self._thread.is_alive():
            return None
        return ENDED if self.error is None else self.fault_of(self.error)

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(self._end_s)
            if self._thread.is_alive():
                raise TidelogError(f"it was told to end, and has not for {self._end_s:g} s")

    def figures(self) -> dict[str, Any]:
        return dict(self._loop.figures())

    def fault_of(self, error: BaseException) -> Fault:
        return fault_of(error)
