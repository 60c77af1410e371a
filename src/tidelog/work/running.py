"""Workers that run: as many as are wanted, together a part of this process, started again after a fault.

    worker(...).run()      until SIGTERM, SIGINT or stop()
    worker(...).drain()    until nothing is left in the queue
    with worker(...):      beside the caller

They are one part of kind `worker` (`tidelog status`, `pause`, `resume`, `stop`). Told to stop, they end the jobs under
way, for `stop_within_s` at most; what has not ended by then is given to others when this process ends.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from inspect import signature
from threading import Event, Thread

from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.security import Security
from tidelog.errors import TidelogError, UsageError
from tidelog.parts.blocking import ThreadPart
from tidelog.parts.part import Say
from tidelog.parts.running import Supervisor
from tidelog.work.crew import JobFunction
from tidelog.work.queue import group_settings, is_empty, prepare
from tidelog.work.sending import reached
from tidelog.work.worker import QueueWorkers, WorkSettings

WORKERS_MAX = 1_000
DRAIN_LOOK_S = 0.1

log = logging.getLogger(__name__)


def worker(
    function: JobFunction,
    *,
    topic: str,
    group: str,
    workers: int = 1,
    time_limit_s: float | None = None,
    backoff_s: float | None = None,
    attempts: int | None = None,
    dead_letters: str | None = None,
    output: str | None = None,
    name: str | None = None,
    stop_within_s: float = 30.0,
    bootstrap: str | None = None,
    security: Security | None = None,
    say: Say | None = None,
) -> WorkerPool:
    """Workers that call `function(job)` for each job of the topic. `backoff_s`, `attempts` and `dead_letters` are
    settings of the group: not given, they stay as they are. What the function returns is written to `output`, once.
    """
    settings = WorkSettings(
        topic,
        group,
        reached(bootstrap),
        security,
        time_limit_s=time_limit_s,
        stop_within_s=stop_within_s,
        output=output,
    )
    given = group_settings(backoff_s=backoff_s, attempts=attempts, dead_letters=dead_letters)
    return WorkerPool(function, settings, given, count=workers, name=name, say=say)


class WorkerPool:
    def __init__(
        self,
        function: JobFunction,
        settings: WorkSettings,
        group_settings: dict[str, str],
        *,
        count: int,
        name: str | None = None,
        say: Say | None = None,
    ) -> None:
        check_function(function)
        if not 1 <= count <= WORKERS_MAX:
            raise UsageError(f"{count} workers cannot be run; from 1 to {WORKERS_MAX} can")
        if settings.time_limit_s is not None and settings.time_limit_s <= 0:
            raise UsageError(f"a time limit of {settings.time_limit_s} s ends every job; give more than 0")
        # Other processes have workers of this group too, and on other machines with the same process id.
        self.name = name or f"{settings.group}-{socket.gethostname()}-{os.getpid()}"
        self._settings, self._group_settings = settings, group_settings
        self._say = say or say_in_logging
        self.stopping = Event()
        self._loop = QueueWorkers(self.name, function, settings, self._say, self.stopping, count=count)
        self._thread: Thread | None = None
        self._failed: BaseException | None = None

    def __enter__(self) -> WorkerPool:
        self.prepare()
        self._thread = Thread(target=self._run_beside, name=f"workers-{self.name}", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.stop()
        assert self._thread is not None
        self._thread.join()
        if self._failed is not None and kind is None:
            raise self._failed

    @property
    def jobs(self) -> dict[str, int]:
        """How many jobs of all these workers ended how; those that were done are `done`."""
        return dict(self._loop.figures()["jobs"])

    def stop(self) -> None:
        """From any thread. Jobs under way are ended."""
        self.stopping.set()

    def run(self) -> int:
        """Until `stop`. 0, or 1 where a worker has failed for good."""
        self.prepare()
        return self._supervise()

    def drain(self) -> None:
        """Until nothing is left to do: what is delayed, or waits for another try, is waited for."""
        with self, self._connect() as cluster:
            assert self._thread is not None
            while self._thread.is_alive() and not self.stopping.is_set():
                if is_empty(cluster, self._settings.topic, self._settings.group):
                    break
                time.sleep(DRAIN_LOOK_S)

    def prepare(self) -> None:
        with self._connect() as cluster:
            settings = self._settings
            self._loop.attempts = prepare(cluster, settings.topic, settings.group, self._group_settings)
            if self._settings.output is not None:
                check_output(self._settings.topic, self._settings.output)
                topics.ensure(cluster, self._settings.output)

    def _connect(self) -> Cluster:
        return self._settings.connect(f"tidelog-workers-{self.name}")

    def _supervise(self) -> int:
        with self._connect() as cluster:
            part = ThreadPart(self._loop, end_s=self._settings.stop_within_s)
            return Supervisor([part], cluster, self._say, self.stopping).loop()

    def _run_beside(self) -> None:
        try:
            if self._supervise():
                raise TidelogError(f"workers of group {self._settings.group!r} have failed; `tidelog status` says why")
        except BaseException as error:
            self._failed = error


def check_function(function: JobFunction) -> None:
    """One that cannot be called would fail for each job, and each would be given up."""
    name = getattr(function, "__name__", repr(function))
    if not callable(function):
        raise UsageError(f"{name} is not a function; give one that takes a tidelog.Job")
    try:
        taken = signature(function)
    except (TypeError, ValueError):
        return  # of a builtin: it does not tell
    try:
        taken.bind(None)
    except TypeError as error:
        raise UsageError(f"{name}{taken} is to take one argument, a tidelog.Job: {error}") from None


def check_output(topic: str, output: str) -> None:
    if output == topic:
        raise UsageError(f"results cannot go to {topic}, where the jobs come from: each would be a job; name another")


def say_in_logging(event: str, **fields: object) -> None:
    """A job that was not done, and a fault, are warnings: a program that has not set up logging shows them too."""
    level = logging.WARNING if event == "failed" or event.startswith("job ") else logging.INFO
    told = " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
    log.log(level, "%s %s", event, told)
