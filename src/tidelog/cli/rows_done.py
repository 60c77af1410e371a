"""How many rows a long piece of work has done, on standard error: one line that changes, or a line now and then."""

from __future__ import annotations

import sys
import time

from tidelog.cli.terminal import PROGRESS_EVERY_S, PROGRESS_LINE_EVERY_S

BAR = 30


class RowsDone:
    def __init__(self, what: str) -> None:
        self._what = what
        self._watched = sys.stderr.isatty()
        self._next = time.monotonic() + (0 if self._watched else PROGRESS_LINE_EVERY_S)
        self._shown = False

    def __enter__(self) -> RowsDone:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown and self._watched:
            print(file=sys.stderr, flush=True)

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next and done < total:
            return
        self._next = now + (PROGRESS_EVERY_S if self._watched else PROGRESS_LINE_EVERY_S)
        line = f"{self._what}: {line_of(done, total)}"
        if self._watched:
            self._shown = True
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)


def line_of(done: int, total: int) -> str:
    """`total` is an estimate: what is done may be more."""
    share = min(1.0, done / total) if total else 1.0
    return f"[{'#' * int(BAR * share):<{BAR}}] {done} of about {total} rows"
