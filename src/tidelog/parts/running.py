"""Parts under supervision, by one thread: started and looked at (`supervision.py`), told of, and told what to do.

    starting   commands that count for who starts are read; a supervisor of this process is told that it is ready
    running    parts are started and looked at every LOOK_EVERY_S; status is told, commands are taken, once a second
    stopping   `stopping` is set, or nothing is left to run: parts are stopped, kind by kind in the order in which they
               were given, those of a kind side by side since each may take its time; a last report; the end

`run_part` is all that a process with one part needs. It reports status each second, obeys pause, resume and stop,
retries with back-off after a fault, and its numbers are on the gateway's `/metrics`:

    class Counting:                                  # in any room that may import parts
        kind, name = "capture", "shop"

        def __init__(self): self.rows = 0

        def run(self, stopping):                     # blocks; is called again after a fault and after a pause
            while not stopping.is_set():
                self.rows += one_more_row()          # what it raises is its fault

        def figures(self):                           # called by another thread, while it runs and after
            return Metrics(rows_out=self.rows).fields

    with Cluster(bootstrap) as cluster:              # the supervisor's alone: `run` has a cluster of its own
        return run_part(Counting(), cluster, say=say, stopping=process.stop_on_signals())
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from tidelog import process
from tidelog.client.cluster import Cluster
from tidelog.clock import rest
from tidelog.control.health import FAILED, PAUSED, RETRYING, RUNNING, STOPPED
from tidelog.control.status import REBUILD, Command, Commands
from tidelog.parts import supervision as watching
from tidelog.parts.blocking import Blocking, ThreadPart
from tidelog.parts.link import Link
from tidelog.parts.part import APP, Fault, Key, OneOfSeveral, Part, Proving, Say
from tidelog.parts.supervision import Watch

LOOK_EVERY_S = 0.2
COMMANDS_EVERY_S = 1.0
STOP_MAX_S = 40.0  # for which a supervisor of this process is told that a stop is under way: no part takes longer


def run_part(part: Blocking, cluster: Cluster, *, say: Say, stopping: threading.Event | None = None) -> int:
    """Until `stopping` is set, the part is told to stop, or has failed for good. 0, or 1 where it has failed."""
    return Supervisor([ThreadPart(part)], cluster, say, stopping).loop()


class Supervisor:
    """`say` takes events for the log. The cluster is its own. With `app` it is a part itself, which is told of as that
    app, and a command to the app is one to all its parts.
    """

    def __init__(
        self,
        parts: list[Part],
        cluster: Cluster,
        say: Say,
        stopping: threading.Event | None = None,
        *,
        app: str | None = None,
    ) -> None:
        self.app = app
        self.parts: dict[Key, Part] = {(one.kind, one.name): one for one in parts}
        self.watches: dict[Key, Watch] = dict.fromkeys(self.parts, Watch())
        self.stopping = stopping or threading.Event()
        self.link = Link(cluster, say)
        self.say = say
        self._commands = Commands(cluster)
        self._started_ms = int(time.time() * 1000)
        self._listen_at = 0.0
        self._heard = False  # what counts for who starts: until then, commands of long ago are not for this run

    def loop(self) -> int:
        """Until it is told to stop, or nothing is left to run. 0, or 1 where a part has failed for good."""
        self.listen(time.monotonic())
        process.notify(process.READY)
        while not self.stopping.is_set():
            now = time.monotonic()
            self.steps(now)
            self.listen(now)
            self.turn(now)
            self.report()
            process.notify(process.ALIVE)
            if all(watch.ended for watch in self.watches.values()):
                break
            rest(self.stopping, LOOK_EVERY_S)
        self._end()
        return 1 if any(watch.state == FAILED for watch in self.watches.values()) else 0

    def turn(self, now: float) -> None:
        """What a run has to do beside, again and again."""

    # Supervision

    def steps(self, now: float) -> None:
        for key in list(self.parts):
            self.step(key, now)

    def step(self, key: Key, now: float) -> None:
        part, watch = self.parts[key], self.watches[key]
        if watching.should_start(watch, now):
            self.watches[key] = self._start(part, watch, now)
        elif watch.state == RUNNING:
            fault = self._look_at(part)
            settled = watching.settled(watch, now)
            if not settled.proved and fault is None and isinstance(part, Proving) and part.has_worked():
                settled = watching.worked(settled)
                self.say("works again", kind=part.kind, name=part.name, restarts=watch.restarts)
            self.watches[key] = settled if fault is None else self.failed(part, settled, fault, now)

    def _look_at(self, part: Part) -> Fault | None:
        """A part whose Spark has died cannot even be looked at: a supervisor of this process starts all anew."""
        try:
            return part.look()
        except Exception as error:
            return part.fault_of(error)._replace(final=True)

    def _start(self, part: Part, watch: Watch, now: float) -> Watch:
        try:
            part.start()
        except Exception as error:
            return self.begun(part, watch, now, error)
        return self.begun(part, watch, now)

    def begun(self, part: Part, watch: Watch, now: float, error: Exception | None = None) -> Watch:
        """It was started, or was not, for that error."""
        if error is not None:
            return self.failed(part, watch, part.fault_of(error), now)
        self.say("started", kind=part.kind, name=part.name, restarts=watch.restarts)
        after = watching.started(watch, now)
        return after if isinstance(part, Proving) else watching.worked(after)

    def failed(self, part: Part, watch: Watch, fault: Fault, now: float) -> Watch:
        after = replace(watching.failed(watch, fault, now), failed_ms=int(time.time() * 1000))
        again = {} if fault.final else {"again_in_s": round(after.not_before - now, 1)}
        where = {} if fault.line is None else {"at": f"{fault.file}:{fault.line}"}
        self.say("failed", kind=part.kind, name=part.name, error=fault.message, **where, **again)
        return after

    # Commands

    def listen(self, now: float) -> None:
        if now < self._listen_at:
            return
        self._listen_at = now + COMMANDS_EVERY_S
        found: list[Command] | None = self.link.ask(self._commands.next if self._heard else self._commands.first)
        self._heard = self._heard or found is not None
        for one in found or []:
            for key in self._meant(one):
                self.obey(key, one)

    def _meant(self, one: Command) -> list[Key]:
        if (one.kind, one.name) == (APP, self.app):
            return list(self.parts)
        return [key for key, part in self.parts.items() if one.kind == key[0] and one.name in _names(part)]

    def obey(self, key: Key, one: Command) -> None:
        if one.command == REBUILD:
            self.say("not taken", command=one.command, name=one.name, use="`tidelog rebuild`")
            return
        before = self.watches[key]
        after = watching.commanded(before, one.command, time.monotonic())
        if after != before:
            self.say(one.command, kind=key[0], name=key[1])
        if before.state == RUNNING and after.state != RUNNING:
            self.stop([self.parts[key]])
        self.watches[key] = after

    # Status

    def report(self, *, at_once: bool = False) -> None:
        for key, part in self.parts.items():
            watch = self.watches[key]
            if part.reports_as is not None:
                if watch.state == PAUSED:  # its process has told that it was stopped, and knows no more
                    self.link.tell((part.kind, part.reports_as), {**part.figures(), "state": PAUSED})
            elif watch.fault is None or not watch.fault.superseded:
                self.link.tell(key, self.figures(key), at_once=at_once)
        if self.app is not None:
            states = {f"{kind} {name}": watch.told for (kind, name), watch in self.watches.items()}
            told = {"state": STOPPED if at_once else RUNNING, "pid": os.getpid(), "started_ms": self._started_ms}
            restarts = sum(watch.restarts for watch in self.watches.values())
            self.link.tell((APP, self.app), {**told, "parts": states, "restarts": restarts}, at_once=at_once)

    def figures(self, key: Key) -> dict[str, Any]:
        watch = self.watches[key]
        return {
            "state": watch.told,
            "restarts": watch.restarts,
            "error": None if watch.fault is None else watch.fault.fields,
            "last_error_ms": watch.failed_ms,
            "next_try_ms": self._next_try_ms(watch),
            **self.parts[key].figures(),
        }

    def _next_try_ms(self, watch: Watch) -> int | None:
        """By the time of day, and the same however often it is asked for: a report is written for news."""
        if watch.state != RETRYING or watch.failed_ms is None:
            return None
        return watch.failed_ms + round(1000 * watching.back_off_s(watch.failures))

    # The end

    def _end(self) -> None:
        process.notify(process.STOPPING)
        for kind in dict.fromkeys(kind for kind, _ in self.parts):
            running = [key for key in self.parts if key[0] == kind and self.watches[key].state == RUNNING]
            self.stop([self.parts[key] for key in running], process.MORE_TIME)
        for key, watch in self.watches.items():
            if watch.state != FAILED:
                self.watches[key] = watching.stopped(watch)
        self.report(at_once=True)
        self.say("stopped", name=self.app or ", ".join(name for _, name in self.parts))

    def stop(self, parts: list[Part], *more: str) -> None:
        """At once: each may wait for the end of its micro-batch. Spark may have got the same signal, and be gone."""
        with ThreadPoolExecutor(max(1, len(parts)), "tidelog-stop") as pool:
            stopped = [(part, pool.submit(part.stop)) for part in parts]
            process.tell_until_done([one for _, one in stopped], process.ALIVE, *more, at_most_s=STOP_MAX_S)
        for part, outcome in stopped:
            if (error := outcome.exception()) is not None:
                self.say("was gone", kind=part.kind, name=part.name, error=str(error).split("\n")[0][:200])


def _names(part: Part) -> tuple[str | None, ...]:
    """By which it is told what to do."""
    return (part.name, part.reports_as, part.together if isinstance(part, OneOfSeveral) else None)
