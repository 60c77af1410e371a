"""One worker of a queue: a blocking loop that acquires a job, calls the function, and tells the broker how it ended.

The function runs in a thread of its own, while the loop renews the job's lock and sends heartbeats: the reader belongs
to the loop. Workers are threads rather than processes: most jobs wait for others (mail, HTTP, databases), a program and
its tests can have workers inside, and what the function imports is loaded once. Jobs that compute are spread by running
the command several times.

Rules:
- A job is acquired when the one before it is done: nothing waits in a worker while others are idle.
- A lock is renewed when a third of it is over. One that is lost all the same (the broker was restarted, say) is told:
  the job goes on, its end counts for nothing, and it comes again to somebody.
- A thread cannot be ended from outside. A call that takes longer than its limit is left alone, its job is released, and
  the worker goes on, unless LATE_MAX such calls are still running: then it takes no job until one of them ends.
- Told to stop, a worker ends the job that it has, and leaves; what it has not begun is for others at once.
- A broker that is away is the worker's fault, which its supervisor retries; the job under way is ended before that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from traceback import extract_tb
from typing import Any

from tidelog.client.cluster import Cluster
from tidelog.client.security import Security
from tidelog.client.share import AcquiredRecord, ShareReader
from tidelog.control.metrics import Metrics
from tidelog.errors import TidelogError, UsageError
from tidelog.parts.part import Say
from tidelog.work.job import ACKNOWLEDGED_AS, DONE, ENDS, LOST, REJECTED, TIMED_OUT, Job, end_of, job_of

KIND = "worker"
FETCH_WAIT_MS = 500  # for which a worker at rest does not hear that it is to stop
ATTEND_S = 0.5  # between looks at a job under way: heartbeats are due more seldom
RENEWALS = 3  # of a lock, in its time
LATE_MAX = 8
ERROR_CHARS = 500

JobFunction = Callable[[Job], Any]


@dataclass(frozen=True, slots=True)
class WorkSettings:
    topic: str
    group: str
    bootstrap: str
    security: Security | None = None
    timeout_s: float = 30.0
    time_limit_s: float | None = None  # None: a job may take as long as it likes
    stop_within_s: float = 30.0

    def connect(self, client_id: str) -> Cluster:
        return Cluster(self.bootstrap, client_id=client_id, timeout_s=self.timeout_s, security=self.security)


class JobCall:
    """A call of the function, in a thread of its own."""

    def __init__(self, function: JobFunction, job: Job) -> None:
        self.job = job
        self.error: BaseException | None = None
        self.ended = Event()
        self.began = time.monotonic()
        Thread(target=self._run, args=(function,), name=f"job-{job.id}", daemon=True).start()

    def _run(self, function: JobFunction) -> None:
        try:
            function(self.job)
        except BaseException as error:  # also SystemExit: it is the job that has ended, not the worker
            self.error = error
        self.ended.set()

    @property
    def took_s(self) -> float:
        return time.monotonic() - self.began


class QueueWorker:
    """A part (`parts/blocking.py`)."""

    kind = KIND

    def __init__(
        self, name: str, function: JobFunction, settings: WorkSettings, say: Say, ending: Event | None = None
    ) -> None:
        """`ending` is of all workers of a process: no job is begun once it is set."""
        self.name = name
        self._ending = ending or Event()
        self._function, self._settings, self._say = function, settings, say
        self._ends = dict.fromkeys(ENDS, 0)
        self._begun = self._renewed = 0
        self._last_ms: int | None = None
        self._late: list[JobCall] = []

    def run(self, stopping: Event) -> None:
        settings = self._settings
        with settings.connect(f"tidelog-{KIND}-{self.name}") as cluster:
            reader = ShareReader(cluster, settings.group, [settings.topic], max_records=1, max_wait_ms=FETCH_WAIT_MS)
            try:
                while not self._is_over(stopping):
                    if self._may_take_more():
                        self._work_on(reader, reader.fetch(), stopping)
                    else:
                        reader.beat()
                        stopping.wait(ATTEND_S)
            finally:
                with suppress(TidelogError):
                    reader.close()
        stopping.wait()  # its supervisor would take an end before it for a fault

    def _is_over(self, stopping: Event) -> bool:
        return stopping.is_set() or self._ending.is_set()

    def figures(self) -> Mapping[str, Any]:
        late = sum(not call.ended.is_set() for call in self._late)
        counted = Metrics(rows_in=self._begun, rows_out=self._ends[DONE], batch_ms=self._last_ms).fields
        about = {"topic": self._settings.topic, "group": self._settings.group}
        return {**counted, **about, "jobs": {**self._ends, "renewed": self._renewed, "late": late}}

    def _may_take_more(self) -> bool:
        self._late = [call for call in self._late if not call.ended.is_set()]
        return len(self._late) < LATE_MAX

    def _work_on(self, reader: ShareReader, records: list[AcquiredRecord], stopping: Event) -> None:
        """One by one: Apache Kafka may give more than were asked for."""
        for number, record in enumerate(records):
            if self._is_over(stopping):
                return
            self._begun += 1
            call = JobCall(self._function, job_of(record))
            end = self._attend(reader, call, records[number:])
            at, offset = record.at, record.row.offset
            try:
                is_lost = bool(reader.acknowledge({at: {offset: ACKNOWLEDGED_AS[end]}}))
            except TidelogError:  # whether it counts nobody knows, and the worker has a fault
                self._count(call, LOST)
                raise
            self._count(call, LOST if is_lost else end)

    def _attend(self, reader: ShareReader, call: JobCall, records: list[AcquiredRecord]) -> str:
        """Until the call ends or its time is over: how it ended."""
        limit_s = self._settings.time_limit_s
        renew_s = reader.lock_ms / 1000 / RENEWALS
        renew_at = renew_s
        while not call.ended.wait(wait_s(call.took_s, renew_at, limit_s)):
            if limit_s is not None and call.took_s >= limit_s:
                self._late.append(call)
                return TIMED_OUT
            try:
                if call.took_s >= renew_at:
                    renew_at = call.took_s + renew_s
                    lost = reader.renew((one.at, one.row.offset) for one in records)
                    self._renewed += len(records) - len(lost)
                reader.beat()
            except UsageError:
                raise
            except TidelogError as error:  # the job goes on; whether it is still ours its end will tell
                self._say("broker", job=call.job.id, error=str(error))
        return end_of(call.error)

    def _count(self, call: JobCall, end: str) -> None:
        self._ends[end] += 1
        self._last_ms = round(call.took_s * 1000)
        if end != DONE:
            error = call.error
            told = {} if error is None or end == TIMED_OUT else error_fields(error)
            event = {REJECTED: "job rejected", TIMED_OUT: "job timed out", LOST: "job lost"}.get(end, "job released")
            self._say(event, job=call.job.id, delivery=call.job.delivery_count, took_ms=self._last_ms, **told)


def wait_s(took_s: float, renew_at: float, limit_s: float | None) -> float:
    """Until something is due of a job that has taken so long."""
    due = [ATTEND_S, renew_at - took_s, *([] if limit_s is None else [limit_s - took_s])]
    return max(0.0, min(due))


def error_fields(error: BaseException) -> dict[str, str]:
    """What a function raised, and the line that raised it."""
    told = {"error": f"{type(error).__name__}: {error}"[:ERROR_CHARS]}
    frames = extract_tb(error.__traceback__)
    return {**told, "raised_at": f"{frames[-1].filename}:{frames[-1].lineno}"} if frames else told
