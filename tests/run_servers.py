"""Servers that are dear to start are started once a run: by the first of its processes that needs one, and for all.

A run has a folder. In it:

    users       locked, as one of many, by each process of the run for as long as it lives, however it ends
    NAME.lock   locked while somebody looks for the server NAME, or starts it
    NAME.json   where the server is; there is none before it answers, nor once it is to end
    NAME/       the server's own folder
    NAME.log    what its keeper complained of

A server is the child of a *keeper*, this file run as a program, which then asks for `users` for itself alone. It gets
that when the last process of the run has ended, and be it killed; it then ends the server and removes the folder. Tests
that stop or kill a server have one of their own.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

RUN = "PYTEST_XDIST_TESTRUNUID"
FOLDER_MODE = 0o755  # some servers run as somebody else

Facts = dict[str, Any]


class Server(Protocol):
    def facts(self) -> Facts:
        """Where it is, as JSON has it."""

    def kill(self) -> None: ...


def share(name: str, start: str, answers: Callable[[Facts], bool]) -> Facts:
    """Where the server of this name is. `start` is `module:function` of what starts it in a folder and returns it."""
    folder = join()
    told = folder / f"{name}.json"
    with _locked(folder / f"{name}.lock"):
        if told.exists() and answers(facts := json.loads(told.read_text())):
            return facts
        _start_keeper(folder, name, start)
        found: Facts = json.loads(told.read_text())
        return found


@cache
def join() -> Path:
    """This run's folder. From now on its servers live no less long than this process."""
    folder = Path(tempfile.gettempdir()) / f"tidelog-run-{os.environ.get(RUN) or uuid4().hex}"
    folder.mkdir(exist_ok=True)
    folder.chmod(FOLDER_MODE)
    users = os.open(folder / "users", os.O_RDWR | os.O_CREAT)
    fcntl.flock(users, fcntl.LOCK_SH)
    atexit.register(_leave, folder, users, os.getpid())
    return folder


def _leave(folder: Path, users: int, owner: int) -> None:
    """The last one removes the folder: where no server was wanted there is no keeper to do it."""
    if os.getpid() != owner:
        return
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    if not any(folder.glob("*.json")):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _start_keeper(folder: Path, name: str, start: str) -> None:
    log = folder / f"{name}.log"
    with log.open("ab") as said:
        keeper = subprocess.Popen(
            [sys.executable, __file__, str(folder), name, start],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,  # it outlives the process that starts it, and whoever interrupts that
        )
    assert keeper.stdout is not None
    with keeper.stdout:
        if not keeper.stdout.readline():
            raise RuntimeError(f"{name} did not start; its keeper ended with {keeper.wait()}:\n{log.read_text()}")
    keeper.returncode = 0  # nobody waits for it here: it ends after us


# The keeper -----------------------------------------------------------------------------------------------------------


def keep(folder: Path, name: str, start: str) -> None:
    told = folder / f"{name}.json"
    own = folder / name
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    module, _, function = start.partition(":")
    server: Server = getattr(import_module(module), function)(own)
    try:
        users = os.open(folder / "users", os.O_RDWR)
        new = told.with_suffix(".new")
        new.write_text(json.dumps(server.facts()))
        new.rename(told)
        os.write(1, b"ready\n")
        os.close(1)
        fcntl.flock(users, fcntl.LOCK_EX)
        told.unlink(missing_ok=True)
    finally:
        server.kill()
    shutil.rmtree(own, ignore_errors=True)
    if not any(folder.glob("*.json")):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
