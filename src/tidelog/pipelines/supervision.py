"""When a part is started, started again, left alone or given up. Pure: the clock and the faults are handed in.

    state       set by                                              next
    waiting     the beginning; a fault, with a time not before      start, when its time has come
    running     it was started                                      waiting after a fault, stopped after a stop
    paused      the command `pause`                                 waiting, by `resume`
    failed      a fault that trying again cannot mend               waiting, by `resume`: somebody has changed something
    stopped     the command `stop`, or the end of the run           waiting, by `resume`

Rules:
- After a fault a part waits, twice as long after each, up to BACK_OFF_MAX_S; one that has run for STEADY_S begins anew.
- A user's error (a changed declaration, a lost checkpoint, a column that is not there) is final; so is what Spark says
  while it looks at a plan. All else may pass: a broker that is away, a store that is full, a service that is slow. So
  may a machine that was too busy for Spark to start a worker, wherever in a plan it needed one.
- One part's fault is no other's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidelog.control.status import PAUSE, RESUME, STOP
from tidelog.errors import Disconnected, UsageError

WAITING, RUNNING, PAUSED, FAILED, STOPPED = "waiting", "running", "paused", "failed", "stopped"
BACK_OFF_FIRST_S = 0.5
BACK_OFF_MAX_S = 60.0
STEADY_S = 60.0

# In the text of an error that went through Spark: ours, Spark's about a plan, and rows that are refused.
FINAL = re.compile(
    r"tidelog\.errors\.(UsageError|ConfigError|InvalidSchema|LostCheckpoint|StateMismatch|ViewChanged|DataLoss)\b"
    r"|\bAnalysisException\b|USER_RAISED_EXCEPTION|STATE_STORE_\w*SCHEMA\w*|INCOMPATIBLE"
)
# Spark's, of a worker that did not connect within 10 s: on a cluster, where nothing of ours lets it connect first.
BUSY = "Python worker failed to connect back"
_ENDS = re.compile(r"[\w.]+(Error|Exception|Checkpoint|Value|Loss|Mismatch): ")
_OF_THE_JVM = ("org.", "java.", "py4j", "pyspark.errors", "scala.")
_LINE = re.compile(r'File "([^"]+)", line (\d+)')


class Fault(NamedTuple):
    """Of a part, as people are told it."""

    message: str
    final: bool
    file: str | None = None
    line: int | None = None

    @property
    def fields(self) -> dict[str, object]:
        return {"message": self.message, "file": self.file, "line": self.line}


@dataclass(frozen=True, slots=True)
class Watch:
    """How one part is."""

    state: str = WAITING
    not_before: float = 0.0
    started_at: float = 0.0
    failures: int = 0  # in a row
    restarts: int = 0
    fault: Fault | None = None

    @property
    def ended(self) -> bool:
        return self.state in (FAILED, STOPPED)


def should_start(watch: Watch, now: float) -> bool:
    return watch.state == WAITING and now >= watch.not_before


def started(watch: Watch, now: float) -> Watch:
    return replace(watch, state=RUNNING, started_at=now)


def failed(watch: Watch, fault: Fault, now: float) -> Watch:
    if fault.final:
        return replace(watch, state=FAILED, fault=fault)
    steady = watch.state == RUNNING and now - watch.started_at >= STEADY_S
    failures = 1 if steady else watch.failures + 1
    wait = back_off_s(failures)
    return replace(
        watch, state=WAITING, not_before=now + wait, failures=failures, restarts=watch.restarts + 1, fault=fault
    )


def settled(watch: Watch, now: float) -> Watch:
    """A fault that lies so far back that it is no news any more."""
    healed = watch.state == RUNNING and watch.fault is not None and now - watch.started_at >= STEADY_S
    return replace(watch, fault=None, failures=0) if healed else watch


def back_off_s(failures: int) -> float:
    return min(BACK_OFF_MAX_S, BACK_OFF_FIRST_S * 2.0 ** (failures - 1))


def commanded(watch: Watch, command: str, now: float) -> Watch:
    """What a command makes of it; who supervises stops what is to stop."""
    if command == PAUSE and not watch.ended:
        return replace(watch, state=PAUSED)
    if command == STOP:
        return replace(watch, state=STOPPED)
    if command == RESUME and watch.state in (PAUSED, FAILED, STOPPED):
        return replace(watch, state=WAITING, not_before=now, failures=0)
    return watch


def fault_of(error: BaseException | None, text: str, file: str) -> Fault:
    """From an error as it was raised, or as Spark tells it. `file` is the user's: its innermost line is named."""
    said = text if error is None else f"{text}\n{type(error).__name__}: {error}"
    lines = [int(line) for name, line in _LINE.findall(said) if name == file]
    final = isinstance(error, UsageError) if error is not None else False
    final = (final or FINAL.search(said) is not None) and not isinstance(error, Disconnected) and BUSY not in said
    full = text if error is None else f"{text}\n{error}"  # Spark may have been handed less of it
    return Fault(_message(error, full), final, file if lines else None, lines[-1] if lines else None)


def _message(error: BaseException | None, text: str) -> str:
    if error is not None and not type(error).__module__.startswith(("py4j", "pyspark")):
        return f"{type(error).__name__}: {error}".split("\n")[0]
    lines = [line.strip().removeprefix(": ") for line in text.split("\n") if line.strip()]
    # A Python error that came through Spark ends its traceback; what the JVM says of it stands around that.
    ends = [line for line in lines if _ENDS.match(line)]
    python = [line for line in ends if not line.startswith(_OF_THE_JVM)]
    chosen = (python or ends or lines or ["it ended"])[-1 if python else 0]
    return chosen.removeprefix("tidelog.errors.")
