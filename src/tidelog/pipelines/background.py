"""Parts of a rebuild under supervision, in a thread beside it, with a cluster of its own."""

from __future__ import annotations

import threading
from contextlib import suppress

from tidelog.control import status
from tidelog.control.health import FAILED
from tidelog.errors import PipelineFailed, TidelogError
from tidelog.parts.part import APP, Part, Say
from tidelog.pipelines.parts import QUERY
from tidelog.pipelines.running import Run, Settings


class Background:
    """`name` is what its status is told as."""

    def __init__(self, name: str, parts: list[Part], settings: Settings, say: Say) -> None:
        self.name = name
        self._cluster = settings.connect()
        self.run = Run(name, parts, self._cluster, say)
        self._thread = threading.Thread(target=self.run.loop, name=name, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises what has ended it: a fault, somebody who has told its parts to stop, or a fault of ours."""
        is_there = self._thread.is_alive() or self.run.stopping.is_set()
        for (kind, name), watch in list(self.run.watches.items()):
            if watch.state == FAILED and watch.fault is not None:
                raise PipelineFailed(f"{kind} {name}: {watch.fault.message}")
        if not is_there:
            told = ", ".join(f"{kind} {name} is {one.state}" for (kind, name), one in self.run.watches.items())
            raise PipelineFailed(f"{self.name} has ended too early ({told}); the same command goes on with it")

    def stop(self) -> None:
        """After the micro-batch that runs."""
        self.run.stopping.set()
        self._thread.join()
        with suppress(TidelogError):  # status is a note
            status.take_away(self._cluster, APP, self.name)
            for kind, name in self.run.parts:
                if kind == QUERY:
                    status.take_away(self._cluster, kind, name)
        self._cluster.close()
