"""Log lines: one an event, text or JSON, at most so many a second of one kind.

    2026-11-15T10:00:00.123Z INFO ready address=127.0.0.1:9092 topics=3
    {"time": "2026-11-15T10:00:00.123Z", "level": "INFO", "event": "ready", "address": "127.0.0.1:9092", "topics": 3}

A kind that comes more often is counted, and the next line of it says how many were left out. Lines go to standard
error; no secret is ever a field.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from tidelog.config import BrokerConfig

LINES_PER_SECOND_OF_A_KIND = 5
SELDOM_S = 60
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class Logger:
    """Safe from any thread: a line is one write, and a lost update of a counter loses a count, not a line."""

    def __init__(self, stream: TextIO | None = None, *, level: str = "INFO", json: bool = False) -> None:
        self._stream = stream
        self._level = LEVELS.index(level)
        self._json = json
        self._kinds: dict[str, tuple[float, int, int]] = {}  # since when, lines since, left out

    @classmethod
    def from_config(cls, config: BrokerConfig) -> Logger:
        return cls(level=config.text("tidelog.log.level"), json=config.text("tidelog.log.format") == "json")

    def set_level(self, level: str) -> None:
        self._level = LEVELS.index(level)

    def debug(self, event: str, **fields: object) -> None:
        self._line(0, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._line(1, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._line(2, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._line(3, event, fields)

    def seldom(self, event: str, **fields: object) -> None:
        """A warning that is news once: what clients try again and again is one line in SELDOM_S seconds."""
        self._line(2, event, fields, every_s=SELDOM_S, lines_max=1)

    def _line(
        self,
        level: int,
        event: str,
        fields: dict[str, object],
        *,
        every_s: int = 1,
        lines_max: int = LINES_PER_SECOND_OF_A_KIND,
    ) -> None:
        if level < self._level:
            return
        now = time.time()
        since, lines, left_out = self._kinds.get(event, (0.0, 0, 0))
        if not since <= now < since + every_s:
            since, lines = now // 1, 0
        if lines >= lines_max:
            self._kinds[event] = since, lines, left_out + 1
            return
        if left_out:
            fields = {**fields, "left_out": left_out}
        self._kinds[event] = since, lines + 1, 0
        stream = self._stream if self._stream is not None else sys.stderr
        stream.write(self._format(now, LEVELS[level], event, fields) + "\n")
        stream.flush()

    def _format(self, now: float, level: str, event: str, fields: dict[str, object]) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"
        if self._json:
            from json import dumps

            return dumps({"time": at, "level": level, "event": event, **fields}, default=str)
        return " ".join([at, level, event, *(f"{name}={_text(value)}" for name, value in fields.items())])


def hear(log: Logger) -> None:
    """What rooms and libraries warn of by Python's `logging` becomes lines of this log, with their time and level."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said = log.error if record.levelno >= logging.ERROR else log.warning
            event, _, more = self.format(record).partition("\n")
            said(event, **({"more": more} if more else {}))

    logging.basicConfig(format="%(message)s", handlers=[Handler()], level=logging.WARNING)


def _text(value: object) -> str:
    text = str(value)
    return repr(text) if not text.isprintable() or " " in text or "=" in text else text
