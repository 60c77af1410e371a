"""A part that is a child process: a command that tells its status by itself, and ends on SIGTERM or with its input.

It dies with this process, however that ends (`process.py`). What it says on standard error goes where this process says
things, and its last line is its fault: a final one where it ends with 2, which is how commands say that they were
written wrongly. One that says things elsewhere is given a `start` of its own.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tidelog import process
from tidelog.parts.part import Fault
from tidelog.parts.supervision import fault_of

END_S = 10.0  # after which one that was told to end is killed
USAGE = 2

Start = Callable[[list[str]], subprocess.Popen[bytes]]
HERE: Start = partial(process.start, stderr=subprocess.PIPE, dies=True)


class ChildPart:
    """`command` is the whole command line, `reports_as` its name in the status topic."""

    def __init__(
        self,
        kind: str,
        name: str,
        command: list[str],
        about: Mapping[str, Any],
        *,
        reports_as: str,
        start: Start = HERE,
        end_s: float = END_S,
    ) -> None:
        self.kind, self.name = kind, name
        self.reports_as = reports_as
        self.about = about
        self.command = command
        self._start, self._end_s = start, end_s
        self._child: subprocess.Popen[bytes] | None = None
        self._said: process.Said | None = None

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        self._child = self._start(self.command)
        self._said = None if self._child.stderr is None else process.Said(self._child.stderr)

    def look(self) -> Fault | None:
        assert self._child is not None
        code = self._child.poll()
        said = self._last_line()
        return None if code is None else Fault(said or f"it ended with {code}", final=code == USAGE)

    def stop(self) -> None:
        if self._child is not None and self._child.poll() is None:
            process.end(self._child, self._end_s, signal.SIGTERM)
            self._last_line()

    def _last_line(self) -> str:
        if self._said is None:
            return ""
        self._said.pass_on()
        return self._said.last_line.removeprefix("tidelog: ")

    def figures(self) -> dict[str, Any]:
        return dict(self.about)

    def fault_of(self, error: Exception) -> Fault:
        return fault_of(error)
