"""`tidelog up` as people run it, with the HTTP server that belongs to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

PATIENCE_S = 180.0
UP = "from tidelog.cli.main import main; sys.exit(main(sys.argv[1:]))"


class Up:
    """`settings` are KEY=VALUE; `before` is run first, in its interpreter."""

    def __init__(self, folder: Path, *settings: str, before: str = "", listen: str = "127.0.0.1:0") -> None:
        self.log = folder / "log"
        words = ["up", "--listen", listen, "--data", str(folder / "data")]
        for setting in settings:
            words += ["--set", setting]
        program = ["-c", f"import sys; {before}{UP}"] if before else ["-m", "tidelog"]
        with self.log.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, *program, *words],
                stdout=said,
                stderr=said,
                env={name: value for name, value in os.environ.items() if name != "TIDELOG_HTTP_LISTENER"},
            )
        wait_for(lambda: "ready on" in self.said() or self.process.poll() is not None)

    def said(self) -> str:
        return self.log.read_text()

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    @property
    def bootstrap(self) -> str:
        found = re.search(r"^ready on (\S+)$", self.said(), re.MULTILINE)
        assert found, self.said()
        return found[1]

    def end(self, how: int) -> int:
        self.process.send_signal(how)
        return self.process.wait(PATIENCE_S)


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


@contextmanager
def up(folder: Path, *settings: str, before: str = "", listen: str = "127.0.0.1:0") -> Iterator[Up]:
    running = Up(folder, *settings, before=before, listen=listen)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
