"""Terminals beside the one in which a page's blocks run: each has one command that runs on, until it gets Ctrl-C.

Ctrl-C is what a terminal makes of it: SIGINT to all processes of the command. What a command prints, standard error
too, is a file in a folder of its own. Waiting for a line is looking at that file again, as somebody at a terminal does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

SECONDS = 120  # until what is waited for is printed
LOOK_S = 0.1
SHOWN = 4000  # characters of the end of what was printed
TRACEBACK = "Traceback (most recent call last)"

Missing = Callable[[str, str], list[str]]


class Terminal(NamedTuple):
    process: subprocess.Popen[bytes]
    printed: Path


class Terminals:
    """`missing` says which lines of its first text the second one lacks. Each call says what is wrong."""

    def __init__(self, folder: Path, environment: Mapping[str, str], missing: Missing) -> None:
        self._folder, self._environment, self._missing = folder, environment, missing
        self._outputs = tempfile.TemporaryDirectory()
        self._opened = 0
        self._running: list[Terminal] = []

    def __bool__(self) -> bool:
        return bool(self._running)

    def open(self, command: str) -> list[str]:
        self._opened += 1
        printed = Path(self._outputs.name) / f"{self._opened}.txt"
        with printed.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self._folder,
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self._running.append(Terminal(process, printed))
        return []

    def wait(self, lines: str) -> list[str]:
        newest = self._running[-1]
        until = time.monotonic() + SECONDS
        while missing := self._missing(lines, text_of(newest)):
            ended = newest.process.poll()
            if ended is not None or time.monotonic() > until:
                return [f"shows {missing}; it printed (ended: {ended}):\n{text_of(newest)[-SHOWN:]}"]
            time.sleep(LOOK_S)
        return []

    def interrupt(self, lines: str) -> list[str]:
        newest = self._running.pop()
        if newest.process.poll() is None:
            os.killpg(newest.process.pid, signal.SIGINT)
        code = newest.process.wait(SECONDS)
        missing = self._missing(lines, text_of(newest))
        printed = text_of(newest)
        wrong = f"shows {missing} and ended with {code}" if code or missing else ""
        wrong = wrong or ("shows a traceback when it is interrupted" if TRACEBACK in printed else "")
        return [f"{wrong}; it printed:\n{printed[-SHOWN:]}"] if wrong else []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for left in self._running:
            with suppress(ProcessLookupError):
                os.killpg(left.process.pid, signal.SIGKILL)
            left.process.wait(SECONDS)
        self._outputs.cleanup()


def text_of(terminal: Terminal) -> str:
    return terminal.printed.read_text(errors="replace")
