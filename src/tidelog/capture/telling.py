"""What a capture tells of itself: the record of kind `capture` in `__tidelog.status`, and the commands that it takes.

    figures    url (as written), connector, database, prefix, tables, state, position, rows_out, snapshot, lag, error,
               warning: what fills the database's disk if nobody looks (`alarm_of`)

It tells once a second at most, and says how it ended.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Any

from tidelog.capture.change import SourceLag
from tidelog.capture.control_thread import ControlThread
from tidelog.capture.progress import CaptureProgress
from tidelog.capture.settings import CaptureSettings
from tidelog.capture.source import ChangeSource
from tidelog.client.cluster import Cluster
from tidelog.control.health import FAILED, RETRYING, RUNNING, STARTING, STOPPED
from tidelog.control.status import STOP, Commands, Reporter
from tidelog.control.urls import redacted
from tidelog.errors import AnotherCapture, TidelogError

log = logging.getLogger(__name__)
KIND = "capture"
EVERY_S = 1.0


def alarm_of(lag: SourceLag, alarm_bytes: int) -> str | None:
    """What somebody has to look at before the database's disk is full, or its log is gone; None where nothing is."""
    if lag.state in ("unreserved", "lost"):
        return f"the slot is {lag.state}: the database is about to remove, or has removed, log that was not captured"
    if lag.kept_bytes is not None and lag.kept_bytes > alarm_bytes:
        return (
            f"the database keeps {lag.kept_bytes} bytes of its log for this capture, more than {alarm_bytes}"
            " (--alarm-bytes): its disk fills; look whether the capture keeps up"
        )
    return None


class CaptureReport:
    def __init__(self, cluster: Cluster, settings: CaptureSettings, beside: ControlThread | None = None) -> None:
        """With `beside`, reports are written there, and commands looked for when it says so."""
        self._cluster, self._settings, self.beside = cluster, settings, beside
        self._looks = -1
        self._reporter = Reporter(cluster, KIND, settings.known_as)
        self._about = {
            "url": redacted(settings.url),
            "prefix": settings.prefix,
            "tables": list(settings.tables),
            "envelope": settings.envelope,
            "format": settings.written_as,
        }
        self._figures: dict[str, Any] = {"state": STARTING}
        self._rows = 0
        self._at = 0.0
        self._commands = Commands(cluster)
        self._asked = False
        self._alarmed = False

    def __enter__(self) -> CaptureReport:
        return self

    def __exit__(self, kind: object, error: object, _: object) -> None:
        if self.beside is not None:
            self.beside.close()
        if isinstance(error, AnotherCapture):
            return  # the name is that one's by now, and so is what is told by it
        end = {"state": STOPPED} if error is None else {"state": FAILED, "error": str(error)}
        with suppress(TidelogError):
            self._reporter.tell({**self._about, **self._figures, **end, "ended": True}, at_once=True)

    def rows(self, count: int) -> None:
        self._rows += count

    def snapshot(self, done: int, total: int) -> None:
        self._figures |= {"state": RUNNING, "snapshot": {"rows": done, "of": total}, "rows_out": self._rows}
        self._tell()

    def waits_after(self, error: Exception) -> None:
        self._figures |= {"state": RETRYING, "error": str(error)}
        self._tell()

    def runs(self, source: ChangeSource, progress: CaptureProgress) -> None:
        self._figures |= {"state": RUNNING, "connector": source.connector, "database": source.database}
        self._figures.pop("error", None)
        self._figures.pop("snapshot", None)
        self.follows(source, progress)

    def follows(self, source: ChangeSource, progress: CaptureProgress) -> None:
        if time.monotonic() - self._at < EVERY_S:
            return
        lag = SourceLag(None, None, None)
        with suppress(TidelogError):
            lag = source.lag()
        self._figures |= {
            "position": None if progress.position is None else dict(progress.position),
            "rows_out": self._rows,
            "incremental": progress.incremental,
            "warning": self._alarm(lag),
            "lag": {"seconds": lag.seconds, "bytes": lag.bytes, "kept_bytes": lag.kept_bytes, "state": lag.state},
        }
        self._tell()

    def _alarm(self, lag: SourceLag) -> str | None:
        """Logged once, until it is over."""
        found = alarm_of(lag, self._settings.alarm_bytes)
        if found is not None and not self._alarmed:
            log.warning("capture %s: %s", self._settings.known_as, found)
        self._alarmed = found is not None
        return found

    def _tell(self) -> None:
        self._at = time.monotonic()
        tell = self._reporter.tell if self.beside is None else self.beside.tell
        tell({**self._about, **self._figures})

    def is_told_to_stop(self) -> bool:
        """Looked at as often as it tells, or when there may be one."""
        if self.beside is None and time.monotonic() - self._at < EVERY_S:
            return False
        if self.beside is not None and self._looks == (looks := self.beside.looks):
            return False
        self._looks = -1 if self.beside is None else looks
        if not self._asked:
            self._commands.first()
            self._asked = True
        mine = [one for one in self._commands.next() if (one.kind, one.name) == (KIND, self._settings.known_as)]
        return any(one.command == STOP for one in mine)
