"""Drivers as processes of their own: started, given jobs, killed, stopped and woken; with what they said in a file.

They run without JAVA_HOME and without java on the PATH, by the Java that comes by pip, unless a test says otherwise.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import psutil

from spark.driver import DONE, READY, Job

PROGRAM = Path(__file__).with_name("driver.py")
PATIENCE_S = 1500.0
EMPTY: Mapping[str, str] = MappingProxyType({})
STARTUP = str(Path(__file__).with_name("startup"))
WORKERS = ("pyspark.worker", "pyspark.sql.worker.python_streaming_sink_runner")
PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
COMMANDS = ("bash", "cat", "dirname", "env", "getconf", "grep", "ldd", "ls", "ps", "rm", "setsid", "sh", "tr")


def without_java(folder: Path) -> dict[str, str]:
    """This environment, but with no JAVA_HOME and no `java` on the PATH: only what Spark's scripts call is there."""
    commands = folder / "commands"
    commands.mkdir(exist_ok=True)
    for name in COMMANDS:
        for place in ("/usr/bin", "/bin"):
            if Path(place, name).exists() and not (commands / name).exists():
                (commands / name).symlink_to(Path(place, name))
    return {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(commands)}


def environment_of(folder: Path, *, java_by_pip: bool) -> dict[str, str]:
    return {
        **(without_java(folder) if java_by_pip else os.environ),
        "PYTHONPATH": os.pathsep.join([STARTUP, *filter(None, sys.path)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TIDELOG_TEST_PLAN": str(folder),
    }


class Driver:
    """`folder` has its plan, and `log`."""

    def __init__(
        self, folder: Path, master: str = "local[2,4]", *, java_by_pip: bool = True, settings: Mapping[str, str] = EMPTY
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        given = [f"{name}={value}" for name, value in settings.items()]
        self._log = (folder / "log").open("a")
        self.process = subprocess.Popen(
            [sys.executable, PROGRAM, folder, master, *given],
            env=environment_of(folder, java_by_pip=java_by_pip),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.java: str | None = None  # its folder, once it runs
        self.busy = False

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(line.rstrip("\n"))
        self._answers.put(None)

    def plan(self, **files: str | None) -> None:
        """What is to go wrong from here on; all that happened before is forgotten."""
        for path in self.folder.iterdir():
            if path.is_file() and path.name != "log":
                path.unlink()
        for name, text in files.items():
            (self.folder / name).write_text(text or "")

    def begin(self, job: Job) -> None:
        if self.java is None:
            ready, _, self.java = self.answer().partition(" ")
            assert ready == READY, self.said()
        assert self.process.stdin is not None
        self.process.stdin.write(job.line())
        self.process.stdin.flush()
        self.busy = True

    def answer(self) -> str:
        try:
            found = self._answers.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError(f"the driver says nothing:\n{self.said()}") from None
        assert found is not None, self.said()
        self.busy = False
        return found

    def run(self, job: Job) -> str:
        self.begin(job)
        return self.answer()

    def run_well(self, job: Job) -> None:
        answer = self.run(job)
        assert answer == DONE, f"{answer}\n{self.said()}"

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-8000:]

    def noted(self, name: str) -> list[str]:
        try:
            return (self.folder / name).read_text().splitlines()
        except FileNotFoundError:
            return []

    # Its processes ----------------------------------------------------------------------------------------------------

    def descendants(self) -> list[psutil.Process]:
        """The JVM and its Python processes, parents first."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def workers(self) -> list[psutil.Process]:
        """Those who read, write or commit, and the daemons that fork them."""
        return [one for one in self.descendants() if _last_word(one) in WORKERS]

    def planners(self) -> list[psutil.Process]:
        """One a query."""
        return [one for one in self.descendants() if _last_word(one) == PLANNER]

    def signal(self, number: signal.Signals) -> None:
        """To all of its processes."""
        with suppress(psutil.NoSuchProcess):
            for one in (psutil.Process(self.process.pid), *self.descendants()):
                with suppress(psutil.NoSuchProcess):
                    one.send_signal(number)

    def kill(self) -> None:
        """Parents last: the JVM would end its workers in good order, and the program the JVM."""
        with suppress(psutil.NoSuchProcess):
            for one in (*reversed(self.descendants()), psutil.Process(self.process.pid)):
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        self.process.wait()
        self._reader.join()
        self._log.close()


def _last_word(process: psutil.Process) -> str:
    """Of its command: the module that it runs."""
    try:
        return (process.cmdline() or [""])[-1]
    except psutil.NoSuchProcess:
        return ""
