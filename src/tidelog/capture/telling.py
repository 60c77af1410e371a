"""What a capture tells of itself: the record of kind `capture` in `__tidelog.status`, which its supervisor writes.

figures    url (as written), connector, database, prefix, tables, state, position, rows_out, snapshot, lag, error,
           restarts and last_error_ms of what it got past by itself,
           warning: what fills the database's disk if nobody looks (`alarm_of`)
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Any

from tidelog.capture.change import SourceLag
from tidelog.capture.progress import CaptureProgress
from tidelog.capture.settings import CaptureSettings
from tidelog.capture.source import ChangeSource
from tidelog.control.health import RETRYING, RUNNING, STARTING
from tidelog.control.urls import redacted
from tidelog.errors import TidelogError

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
    """Written by the thread that captures, and read by its supervisor's: each change is a new dictionary."""

    def __init__(self, settings: CaptureSettings) -> None:
        self._settings = settings
        self._about = {
            "url": redacted(settings.url),
            "prefix": settings.prefix,
            "tables": list(settings.tables),
            "envelope": settings.envelope,
            "format": settings.written_as,
        }
        self._figures: dict[str, Any] = {}
        self._rows = self._restarts = 0
        self._at = 0.0
        self._alarmed = False
        self._fault: str | None = None  # which is logged, and not over yet

    def fields(self) -> dict[str, Any]:
        return {**self._about, **self._figures}

    def rows(self, count: int) -> None:
        self._rows += count

    def starts(self) -> None:
        self._figures = self._figures | {"state": STARTING, "rows_out": self._rows}

    def snapshot(self, done: int, total: int) -> None:
        self._goes_on()
        told = {"state": RUNNING, "snapshot": {"rows": done, "of": total}, "rows_out": self._rows}
        self._figures = self._without("error") | told

    def waits_after(self, error: Exception) -> None:
        self._restarts += 1
        if self._fault != str(error):
            self._fault = str(error)
            log.warning("capture %s: %s; it tries again", self._settings.known_as, error)
        told = {"state": RETRYING, "error": str(error), "restarts": self._restarts}
        self._figures = self._figures | told | {"last_error_ms": int(time.time() * 1000)}

    def runs(self, source: ChangeSource, progress: CaptureProgress) -> None:
        """It follows the source. After a fault that is not yet to work: one that fails on a change comes here each time
        that it is tried.
        """
        about = {"connector": source.connector, "database": source.database}
        self._figures = self._without("snapshot") | about | ({"state": RUNNING} if self._fault is None else {})
        self._at = 0.0
        self.follows(source, progress)

    def works(self) -> None:
        """What came was stored, or nothing came."""
        if self._fault is not None:
            self._goes_on()
            self._figures = self._without("error") | {"state": RUNNING}

    def follows(self, source: ChangeSource, progress: CaptureProgress) -> None:
        if time.monotonic() - self._at < EVERY_S:
            return
        self._at = time.monotonic()
        lag = SourceLag(None, None, None)
        with suppress(TidelogError):
            lag = source.lag()
        self._figures = self._figures | {
            "position": None if progress.position is None else dict(progress.position),
            "rows_out": self._rows,
            "incremental": progress.incremental,
            "warning": self._alarm(lag),
            "lag": {"seconds": lag.seconds, "bytes": lag.bytes, "kept_bytes": lag.kept_bytes, "state": lag.state},
        }

    def _goes_on(self) -> None:
        if self._fault is not None:
            self._fault = None
            log.warning("capture %s: goes on", self._settings.known_as)

    def rests(self) -> None:
        """From here on its supervisor says how it is."""
        self._figures = self._without("state", "error") | {"rows_out": self._rows}

    def _without(self, *names: str) -> dict[str, Any]:
        return {name: value for name, value in self._figures.items() if name not in names}

    def _alarm(self, lag: SourceLag) -> str | None:
        """Logged once, until it is over."""
        found = alarm_of(lag, self._settings.alarm_bytes)
        if found is not None and not self._alarmed:
            log.warning("capture %s: %s", self._settings.known_as, found)
        self._alarmed = found is not None
        return found
