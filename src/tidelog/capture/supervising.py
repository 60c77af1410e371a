"""A capture as a part: supervised, told of, paused, resumed and stopped as all parts are (`parts/running.py`).

    CapturePart          the thread that has the changes. What may pass (a database or a broker that is away) the
                         capture gets past by itself; what ends it is final
    CaptureSupervisor    does beside it what would make a change late: writes reports, takes commands, and looks out
    Lookout              `looks`: a number that rises when a snapshot was asked for by a command, or when signals may
                         have come. The capture's thread reads them then, from where its progress has read them

If a look fails the number rises all the same: who reads for himself finds out what is wrong. One that is told to catch
up does not pause or stop: who asks for that waits for its end. A snapshot that was asked for it takes.
"""

from __future__ import annotations

import logging
from threading import Event
from typing import Protocol

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.control.status import PAUSE, STOP, Command
from tidelog.errors import AnotherCapture
from tidelog.parts.blocking import Blocking, ThreadPart
from tidelog.parts.part import Fault, Key
from tidelog.parts.running import STOP_MAX_S, Supervisor
from tidelog.parts.supervision import commanded

SNAPSHOT = "snapshot"  # the command of an incremental snapshot
LOOK_EVERY_S = 1.0

log = logging.getLogger(__name__)


class CatchingUp(Blocking, Protocol):
    done: bool  # whether it was told to catch up, or to read a snapshot alone, and has


class CapturePart(ThreadPart):
    def __init__(self, loop: CatchingUp) -> None:
        super().__init__(loop, end_s=STOP_MAX_S)
        self._catching_up = loop

    @property
    def done(self) -> bool:
        return self._catching_up.done

    def look(self) -> Fault | None:
        return None if self.done else super().look()

    def fault_of(self, error: BaseException) -> Fault:
        return Fault(str(error) or type(error).__name__, final=True, superseded=isinstance(error, AnotherCapture))


class Lookout:
    def __init__(self, signals: str) -> None:
        """`signals` is the topic of signals."""
        self._signals = TopicPartition(signals, 0)
        self._end: int | None = None
        self.looks = 0

    def look(self, cluster: Cluster) -> bool:
        topic = cluster.ask_metadata([self._signals.topic]).topics.get(self._signals.topic)
        if topic is not None and topic.led:
            end = list_offsets(cluster, {self._signals: LATEST})[self._signals].offset
            if end != self._end:
                self._end = end
                self.looks += 1
        return True

    def wake(self) -> None:
        self.looks += 1


class CaptureSupervisor(Supervisor):
    def __init__(self, part: CapturePart, cluster: Cluster, lookout: Lookout, stopping: Event, *, once: bool) -> None:
        super().__init__([part], cluster, say, stopping)
        self._cluster, self._lookout, self._once = cluster, lookout, once
        self._part = part
        self._look_again_at = 0.0

    def listen(self, now: float) -> None:
        if not self._once:
            super().listen(now)

    def obey(self, key: Key, one: Command) -> None:
        if one.command == SNAPSHOT:
            self._lookout.wake()
        else:
            super().obey(key, one)

    def turn(self, now: float) -> None:
        if self._part.done:
            key = self._part.kind, self._part.name
            self.watches[key] = commanded(self.watches[key], STOP, now)
        if now < self._look_again_at:
            return
        self._look_again_at = now + LOOK_EVERY_S
        if not self.link.ask(lambda: self._lookout.look(self._cluster)):
            self._lookout.looks += 1


def say(event: str, **fields: object) -> None:
    """What ends a capture is raised by its `run`. That it rests is said: it looks like one that works."""
    if event == PAUSE:
        log.warning("capture %s is paused; `tidelog resume %s` lets it go on", fields["name"], fields["name"])
    else:
        log.info("%s %s", event, fields)
