"""Workers of a queue: a loop that acquires jobs, has a crew of threads call the function, and tells the broker how each
call ended.

The loop has the one reader of the pool, so that one request carries the ends of many jobs and brings as many new ones.
Workers are threads rather than processes: most jobs wait for others (mail, HTTP, databases), a program and its tests
can have workers inside, and what the function imports is loaded once. Jobs that compute are spread by running the
command several times.

Rules:
- A job is acquired when a thread is free for it, or will be within milliseconds (`crew.py`): what waits here is not
  kept from others who are idle.
- A lock is renewed when a third of it is over. One that is lost all the same (the broker was restarted, say) is asked
  for again: where the job comes back while its call still runs, the call goes on and counts. Where it comes to another,
  the call's end counts for nothing, which is told.
- A call that takes longer than its limit is left alone, its job is released, and the worker goes on, unless LATE_MAX
  such calls a thread are still running: then no job is taken until one of them ends.
- Told to stop, workers end the jobs that they have begun, and leave; what they have not begun is for others at once.
- A broker that is away is the workers' fault, which their supervisor retries; calls under way go on meanwhile.
- Where the function's results go to a topic, a job is accepted when they and its done-record are committed
  (`outputs.py`).
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from traceback import extract_tb
from typing import Any

from tidelog.client.acknowledgements import Kinds
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.security import Security
from tidelog.client.share import AcquiredRecord, ShareReader
from tidelog.control.metrics import Metrics
from tidelog.errors import TidelogError
from tidelog.parts.part import Say
from tidelog.work.crew import Crew, JobCall, JobFunction
from tidelog.work.job import (
    ACKNOWLEDGED_AS,
    DONE,
    ENDS,
    GIVEN_BACK,
    KNOWN,
    LOST,
    REJECTED,
    RETRIED,
    TIMED_OUT,
    Job,
    end_of,
    job_of,
)
from tidelog.work.outputs import DoneJob, Outputs, results_of

KIND = "worker"
FETCH_WAIT_MS = 500  # for which workers at rest do not hear that they are to stop
BUSY_WAIT_MS = (5, 100)  # for which a call that ends meanwhile waits to be told: at first, and when nothing comes
ATTEND_S = 0.5  # between looks at jobs under way: heartbeats are due more seldom
RENEWALS = 3  # of a lock, in its time
LATE_MAX = 8
ERROR_CHARS = 500


@dataclass(frozen=True, slots=True)
class WorkSettings:
    topic: str
    group: str
    bootstrap: str
    security: Security | None = None
    timeout_s: float = 30.0
    time_limit_s: float | None = None  # None: a job may take as long as it likes
    stop_within_s: float = 30.0
    output: str | None = None  # the topic for what the function returns

    def connect(self, client_id: str) -> Cluster:
        return Cluster(self.bootstrap, client_id=client_id, timeout_s=self.timeout_s, security=self.security)


class QueueWorkers:
    """A part (`parts/blocking.py`)."""

    kind = KIND

    def __init__(
        self, name: str, function: JobFunction, settings: WorkSettings, say: Say, ending: Event, *, count: int = 1
    ) -> None:
        """No job is begun once `ending` is set."""
        self.name = name
        self._ending = ending
        self._settings, self._say = settings, say
        self.attempts: int | None = None  # at which delivery a job that fails is given up
        self._crew = Crew(name, function, count)
        self._ends = dict.fromkeys(ENDS, 0)
        self._begun = self._renewed = 0
        self._last_ms: int | None = None
        self._session = 0
        self._sessions_ended = 0  # of the present reader, as far as we have heard
        self._to_tell: list[tuple[JobCall, str]] = []
        self._asks_anew = False  # for what runs: its locks are lost, and nothing was given since
        self._wait_ms = FETCH_WAIT_MS
        self._renew_at = 0.0

    def run(self, stopping: Event) -> None:
        settings = self._settings
        with settings.connect(f"tidelog-{KIND}-{self.name}") as cluster:
            reader = ShareReader(cluster, settings.group, [settings.topic], max_wait_ms=FETCH_WAIT_MS)
            outputs = None
            if settings.output is not None:
                outputs = Outputs(cluster, settings.group, settings.topic, settings.output)
            self._to_tell, self._sessions_ended = [], 0
            self._begin_session()
            try:
                while not self._is_over(stopping) or self._is_busy():
                    self._go_on(reader, outputs, self._is_over(stopping))
            finally:
                self._crew.go_home()
                with suppress(TidelogError):
                    reader.close()
        stopping.wait()  # its supervisor would take an end before it for a fault

    def figures(self) -> Mapping[str, Any]:
        counted = Metrics(rows_in=self._begun, rows_out=self._ends[DONE], batch_ms=self._last_ms).fields
        about = {"topic": self._settings.topic, "group": self._settings.group, "workers": self._crew.size}
        return {**counted, **about, "jobs": {**self._ends, "renewed": self._renewed, "late": self._crew.late()}}

    def _is_over(self, stopping: Event) -> bool:
        return stopping.is_set() or self._ending.is_set()

    def _is_busy(self) -> bool:
        return bool(self._to_tell) or not self._crew.is_idle()

    def _go_on(self, reader: ShareReader, outputs: Outputs | None, over: bool) -> None:
        """One turn: what has ended or is due, and then one request at most for all of it."""
        crew = self._crew
        if over:
            crew.drop_waiting()
        room = 0 if over or crew.late() >= LATE_MAX * crew.size else crew.room(anew=self._asks_anew)
        ended = crew.ended(0.0 if room or self._to_tell else self._rest_s())
        self._to_tell += ends_of(ended) if outputs is None else committed(outputs, ended)
        for call in crew.held():
            if self._is_too_late(call) and crew.leave(call):
                self._to_tell.append((call, TIMED_OUT))
        self._to_tell += [(call, GIVEN_BACK) for call in crew.take_out(time.monotonic())]
        self._renew(reader)
        self._follow_session(reader)
        self._tell(reader, room, outputs)

    def _rest_s(self) -> float:
        """Until something is due of the jobs that are held."""
        now, limit_s = time.monotonic(), self._settings.time_limit_s
        due = [ATTEND_S, self._renew_at - now]
        if limit_s is not None:
            due += [call.began + limit_s - now for call in self._crew.held() if call.began is not None]
        return max(0.001, min(due))

    def _is_too_late(self, call: JobCall) -> bool:
        limit_s = self._settings.time_limit_s
        return limit_s is not None and call.began is not None and time.monotonic() - call.began >= limit_s

    def _renew(self, reader: ShareReader) -> None:
        """Every third of a lock, of what has been held for a third of it."""
        now, third_s = time.monotonic(), reader.lock_ms / 1000 / RENEWALS
        if not third_s or now < self._renew_at:
            return
        self._renew_at = now + third_s / 2
        due = [one for one in self._crew.held() if one.session == self._session and now - one.locked >= third_s]
        if due:
            lost = reader.renew((one.record.at, one.record.row.offset) for one in due)
            self._renewed += len(due) - len(lost)
            for one in due:
                one.locked = now

    def _tell(self, reader: ShareReader, room: int, outputs: Outputs | None) -> None:
        told, self._to_tell = self._to_tell, []
        kinds: dict[TopicPartition, dict[int, int]] = {}
        for call, end in told:
            if call.session == self._session:
                at, offset = call.record.at, call.record.row.offset
                kinds.setdefault(at, {})[offset] = ACKNOWLEDGED_AS[end]
                if (why := self._why(call, end)) is not None:
                    reader.because(at, offset, why)
        records: list[AcquiredRecord] = []
        lost: list[tuple[TopicPartition, int]] = []
        try:
            if room:
                records, lost = self._exchange(reader, room, kinds)
            elif kinds:
                lost = reader.acknowledge(kinds)
            else:
                reader.beat()
        except TidelogError:  # whether it counts nobody knows, and the workers have a fault
            self._count(told, None)
            raise
        self._count(told, set(lost))
        self._follow_session(reader)
        self._take(records, outputs)

    def _follow_session(self, reader: ShareReader) -> None:
        if reader.sessions_ended != self._sessions_ended:
            self._sessions_ended = reader.sessions_ended
            self._begin_session()

    def _begin_session(self) -> None:
        """No lock of the last one counts."""
        self._session += 1
        self._asks_anew = True
        self._crew.drop_waiting()

    def _why(self, call: JobCall, end: str) -> str | None:
        """What a dead letter is to say, if this was the last delivery."""
        if end == TIMED_OUT:
            return f"the job took longer than {self._settings.time_limit_s:g} s"
        if end not in (RETRIED, REJECTED) or call.error is None:
            return None
        told = error_fields(call.error)
        return ", ".join([told["error"], *(f"raised at {one}" for one in [told.get("raised_at")] if one)])

    def _exchange(
        self, reader: ShareReader, room: int, kinds: Kinds
    ) -> tuple[list[AcquiredRecord], list[tuple[TopicPartition, int]]]:
        """Who has calls under way waits for a short time: one that ends is to be told soon."""
        first, longest = BUSY_WAIT_MS
        wait_ms = first if kinds else self._wait_ms
        records, lost = reader.exchange(kinds, wait_ms, room)
        busy = bool(self._crew.held())
        self._wait_ms = first if records else min(2 * wait_ms, longest) if busy else FETCH_WAIT_MS
        return records, lost

    def _take(self, records: list[AcquiredRecord], outputs: Outputs | None) -> None:
        """What was delivered before, to whomever, may be done: that is looked up before it is begun."""
        done: set[Job] = set()
        if outputs is not None and records:
            done = outputs.are_done((job_of(one) for one in records), self._session)
        known = [one for one in records if done and job_of(one) in done]
        self._to_tell += [(JobCall(one, self._session), KNOWN) for one in known]
        again_here = self._crew.take([one for one in records if one not in known], self._session)
        self._begun += len(records) - len(known) - len(again_here)
        self._asks_anew = self._asks_anew and not records
        for call in again_here:
            self._say("job goes on", job=call.job.id, delivery=call.job.delivery_count)

    def _count(self, told: Iterable[tuple[JobCall, str]], lost: Container[tuple[TopicPartition, int]] | None) -> None:
        """`lost` is None where nobody knows what counts."""
        for call, end in told:
            at, offset = call.record.at, call.record.row.offset
            if end == GIVEN_BACK:
                self._begun -= 1
                self._say("job given back", job=call.job.id)
                continue
            if lost is None or call.session != self._session or (at, offset) in lost:
                end = LOST
            self._ends[end] += 1
            self._last_ms = round((time.monotonic() - (call.began or 0.0) if end == TIMED_OUT else call.took_s) * 1000)
            if end not in (DONE, KNOWN):
                self._say_end(call, end)

    def _say_end(self, call: JobCall, end: str) -> None:
        error = call.error
        told = {} if error is None or end == TIMED_OUT else error_fields(error)
        event = {REJECTED: "job rejected", TIMED_OUT: "job timed out", LOST: "job lost"}.get(end, "job released")
        if end in (RETRIED, TIMED_OUT) and self.attempts is not None and call.job.delivery_count >= self.attempts:
            event = "job given up"
        self._say(event, job=call.job.id, delivery=call.job.delivery_count, took_ms=self._last_ms, **told)


def ends_of(ended: Iterable[JobCall]) -> list[tuple[JobCall, str]]:
    return [(call, end_of(call.error)) for call in ended]


def committed(outputs: Outputs, ended: Iterable[JobCall]) -> list[tuple[JobCall, str]]:
    """With their results, where they have returned: what cannot be written is as an error of the function."""
    found: list[tuple[JobCall, str]] = []
    results: dict[JobCall, DoneJob] = {}
    now_ms = int(time.time() * 1000)
    for call in ended:
        if call.error is not None:
            found.append((call, end_of(call.error)))
            continue
        try:
            results[call] = DoneJob(call.job, results_of(call.job, call.result, now_ms))
        except TidelogError as error:
            call.error = error
            found.append((call, RETRIED))
    outcome = outputs.commit(list(results.values())) if results else {}
    for call in results:
        told = outcome[call.job]
        if isinstance(told, TidelogError):
            call.error = told
        found.append((call, RETRIED if isinstance(told, TidelogError) else DONE if told else KNOWN))
    return found


def error_fields(error: BaseException) -> dict[str, str]:
    """What a function raised, and the line that raised it."""
    told = {"error": f"{type(error).__name__}: {error}"[:ERROR_CHARS]}
    frames = extract_tb(error.__traceback__)
    return {**told, "raised_at": f"{frames[-1].filename}:{frames[-1].lineno}"} if frames else told
