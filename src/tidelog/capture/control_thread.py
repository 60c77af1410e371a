"""What a running capture does beside its stream, in a thread and by a connection of its own: it reports and looks out.

    tell(figures)    the report is written when the thread comes to it; a newer one replaces one that waits
    looks            a number that rises when a command or a signal may have come: whoever follows those reads them then

Rules:
- A change that waits for a report, or for a look at topics in which there is nothing, is late for no reason. So neither
  is done by the thread that has the changes.
- If a look fails the number rises all the same: who reads for himself finds out what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Condition, Thread
from typing import Any

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.control.status import COMMANDS, Reporter
from tidelog.errors import TidelogError

LOOK_EVERY_S = 1.0
CLOSED_WITHIN_S = 5.0  # a thread that waits for a broker which is away is left to end by itself


class ControlThread:
    def __init__(self, connect: Callable[[], Cluster], kind: str, name: str, watched: str) -> None:
        """`watched` is the topic of signals."""
        self._connect, self._kind, self._name = connect, kind, name
        self._watched = (COMMANDS, TopicPartition(watched, 0))
        self._woken = Condition()
        self._figures: Mapping[str, Any] | None = None
        self._closed = False
        self._ends: dict[TopicPartition, int] = {}
        self.looks = 0
        self._thread = Thread(target=self._run, name=f"capture-{name}-beside", daemon=True)
        self._thread.start()

    def tell(self, figures: Mapping[str, Any]) -> None:
        with self._woken:
            self._figures = figures
            self._woken.notify()

    def close(self) -> None:
        """What waits to be told is not: who closes tells the end himself."""
        with self._woken:
            self._closed = True
            self._woken.notify()
        self._thread.join(CLOSED_WITHIN_S)

    def _run(self) -> None:
        with self._connect() as cluster:
            reporter = Reporter(cluster, self._kind, self._name)
            while True:
                with self._woken:
                    if not self._closed and self._figures is None:
                        self._woken.wait(LOOK_EVERY_S)
                    if self._closed:
                        return
                    figures, self._figures = self._figures, None
                if figures is not None:
                    reporter.tell(figures)
                self._look(cluster)

    def _look(self, cluster: Cluster) -> None:
        try:
            led = cluster.ask_metadata([at.topic for at in self._watched]).topics
            there = [at for at in self._watched if (topic := led.get(at.topic)) is not None and topic.led]
            ends = {at: one.offset for at, one in list_offsets(cluster, dict.fromkeys(there, LATEST)).items()}
        except TidelogError:
            self.looks += 1
            return
        if ends != self._ends:
            self._ends = ends
            self.looks += 1
