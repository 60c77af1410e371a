"""Programs as users run them: each in a process of its own, or, where they are on Spark, in turns in one (`Host`)."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from against.apache_kafka import die_with_parent

SECONDS = 300
PROGRAM = Path(__file__).with_name("program_host.py")
SHOWN = 4000  # characters of the end of what the host itself said

Done = subprocess.CompletedProcess[str]


def run(line: Sequence[str], folder: Path, environment: Mapping[str, str] = os.environ) -> Done:
    """The command line, in the folder."""
    return subprocess.run(line, cwd=folder, env=dict(environment), capture_output=True, text=True, timeout=SECONDS)


def is_running(process: int) -> bool:
    """What nobody has waited for, because its parent is gone, runs no longer."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Host:
    """The process that programs share. It starts with the first of them, and anew after one that has ended it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def run(self, words: Sequence[str], folder: Path, environment: Mapping[str, str] = os.environ) -> Done:
        """`python WORDS`, in the folder."""
        process = self._process = self._process or self._start()
        output, errors = self._folder / "output", self._folder / "errors"
        asked = {"words": list(words), "folder": str(folder), "environment": dict(environment)}
        assert process.stdin is not None
        process.stdin.write(json.dumps({**asked, "output": str(output), "errors": str(errors)}) + "\n")
        process.stdin.flush()
        code = self._answer(process)
        return Done(words, code, output.read_text(), errors.read_text() + self._said())

    def end(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(SECONDS)
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        with (self._folder / "log").open("ab") as said:
            return subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM)],  # our own modules are none of a program
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                preexec_fn=die_with_parent,
            )

    def _answer(self, process: subprocess.Popen[str]) -> int:
        assert process.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            line = process.stdout.readline() if waiting.select(SECONDS) else ""
        if not line:
            process.kill()
            process.wait()
            self._process = None
            raise AssertionError(f"no answer within {SECONDS} s, or the process has ended:\n{self._said()}")
        code = json.loads(line)["code"]
        assert isinstance(code, int)
        return code

    def _said(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-SHOWN:]


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    made = Host(tmp_path_factory.mktemp("host"))
    yield made
    made.end()
