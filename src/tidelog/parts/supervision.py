"""When a part is started, started again, left alone or given up. Pure: the clock and the faults are handed in.

    state       set by                                          next
    starting    the beginning; `resume`                         running
    running     it was started                                  retrying after a fault, stopped after a stop
    retrying    a fault that may pass, with a time not before   running, when its time has come
    paused      the command `pause`                             starting, by `resume`
    failed      a fault that trying again cannot mend           starting, by `resume`: somebody has changed something
    stopped     the command `stop`, or the end of the run       starting, by `resume`

Rules:
- One that was started again after a fault is told as `retrying` until it has worked (`Proving`): in a crash
  loop it is started again and again, and has not worked once.
- A fault is told until it has worked again. One that has, or that was resumed since, ends without it.
- After a fault a part waits, twice as long after each, up to BACK_OFF_MAX_S; one that has run for STEADY_S begins anew.
- A user's error (a changed declaration, a lost checkpoint, a column that is not there) is final. All else may pass: a
  broker that is away, a store that is full, a service that is slow. A part says which of its errors are which.
- One part's fault is not another's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelog.control.health import FAILED, PAUSED, RETRYING, RUNNING, STARTING, STOPPED
from tidelog.control.status import PAUSE, RESUME, STOP
from tidelog.errors import DataLoss, UsageError
from tidelog.parts.part import Fault

BACK_OFF_FIRST_S = 0.5
BACK_OFF_MAX_S = 60.0
STEADY_S = 60.0


@dataclass(frozen=True, slots=True)
class Watch:
    """How one part is."""

    state: str = STARTING
    not_before: float = 0.0
    started_at: float = 0.0
    failures: int = 0  # in a row
    restarts: int = 0
    fault: Fault | None = None
    failed_ms: int | None = None  # when it last had one, by the time of day
    proved: bool = True  # whether it has worked since its last fault

    @property
    def ended(self) -> bool:
        return self.state in (FAILED, STOPPED)

    @property
    def told(self) -> str:
        """The state, as people are told it."""
        return RETRYING if self.state == RUNNING and not self.proved else self.state


def should_start(watch: Watch, now: float) -> bool:
    return watch.state in (STARTING, RETRYING) and now >= watch.not_before


def started(watch: Watch, now: float) -> Watch:
    return replace(watch, state=RUNNING, started_at=now)


def failed(watch: Watch, fault: Fault, now: float) -> Watch:
    if fault.final:
        return replace(watch, state=FAILED, fault=fault)
    steady = watch.state == RUNNING and now - watch.started_at >= STEADY_S
    failures = 1 if steady else watch.failures + 1
    wait = back_off_s(failures)
    return replace(
        watch,
        state=RETRYING,
        not_before=now + wait,
        failures=failures,
        restarts=watch.restarts + 1,
        fault=fault,
        proved=False,
    )


def worked(watch: Watch) -> Watch:
    """It has done what it is there for since it was started."""
    return watch if watch.proved or watch.state != RUNNING else replace(watch, proved=True)


def settled(watch: Watch, now: float) -> Watch:
    """A fault that lies so far back that it is not news any more."""
    healed = watch.state == RUNNING and watch.fault is not None and now - watch.started_at >= STEADY_S
    return replace(watch, fault=None, failures=0) if healed else watch


def back_off_s(failures: int) -> float:
    return min(BACK_OFF_MAX_S, BACK_OFF_FIRST_S * 2.0 ** (failures - 1))


def commanded(watch: Watch, command: str, now: float) -> Watch:
    """What a command makes of it; who supervises stops what is to stop."""
    if command == PAUSE and not watch.ended:
        return replace(watch, state=PAUSED)
    if command == STOP:
        return stopped(watch)
    if command == RESUME and watch.state in (PAUSED, FAILED, STOPPED):
        return replace(watch, state=STARTING, not_before=now, failures=0, proved=True)
    return watch


def stopped(watch: Watch) -> Watch:
    past = watch.proved and watch.state in (STARTING, RUNNING, PAUSED)
    return replace(watch, state=STOPPED, fault=None if past else watch.fault)


def fault_of(error: BaseException) -> Fault:
    """Of a part that knows nothing more of it."""
    return Fault(f"{type(error).__name__}: {error}".split("\n")[0], isinstance(error, UsageError | DataLoss))
