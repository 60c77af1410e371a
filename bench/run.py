"""A run of a bench: how much it does, what it has found, and what it has started.

Each bench has a `Bench` of its own made of this, with its brokers, topics and sides. What it starts is stopped at the
end of the run, the last first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from bench.figures import Figures


class Extent(NamedTuple):
    """`reps` repetitions; `share` of the full amount of work in each. A quick run only shows that everything runs."""

    reps: int
    share: float
    quick: bool


class Server(Protocol):
    def start(self) -> object: ...

    def stop(self) -> object: ...


S = TypeVar("S", bound=Server)


class Run:
    def __init__(self, folder: Path, extent: Extent) -> None:
        self.folder = folder
        self.reps, self.share, self.quick = extent
        self.figures = Figures()
        self._numbers = itertools.count()
        self._stack = ExitStack()

    def amount(self, full: int, least: int = 1) -> int:
        return max(least, int(full * self.share))

    def rounds(self) -> Iterator[bool]:
        """One for each repetition, told whether it counts: the first only warms all sides up."""
        yield from [True] * self.reps if self.quick else [False, *[True] * self.reps]

    def started(self, server: S) -> S:
        server.start()
        self._stack.callback(server.stop)
        return server

    def stop(self) -> None:
        self._stack.close()
