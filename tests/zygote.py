"""Our own programs, started by a fork of a process that has them imported: for a third of what an interpreter costs.

`install` puts `Popen` in the place of `subprocess.Popen`. A command line `[sys.executable, "-m", PROGRAM, ...]` is then
run by a fork of this process's zygote (`zygote_process.py`), which is started with the first of them. All else about it
is `subprocess.Popen`'s own: the pipes, and the waiting, for a fork is a child of this process.

Whatever a fork could not show is left to a real interpreter (`is_forkable`): other options of Python, other settings of
it in the environment, other options of Popen; and every test that is marked `real_interpreter`, as those are which are
about imports, start-up and buffers. TIDELOG_TEST_FORKS=0 leaves everything to real ones.
"""

from __future__ import annotations

import atexit
import marshal
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any, TypedDict

from against.apache_kafka import die_with_parent
from zygote_process import ANSWER, CLONE, LENGTH

PROGRAMS = ["tidelog", "tidelog.broker.child"]
ZYGOTE = Path(__file__).with_name("zygote_process.py")
WANTED = os.environ.get("TIDELOG_TEST_FORKS") != "0" and sys.platform == "linux" and os.uname().machine in CLONE
# What counts when an interpreter, its libc or its libraries start, and is not looked at again.
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_", "OPENSSL_", "SSL_")
BUFFERS = "PYTHONUNBUFFERED"  # of these, forks heed it
# The zygote's: what a test adds for its own programs, whichever is the first, is not for those of others.
ENVIRONMENT = {name: value for name, value in os.environb.items() if name != BUFFERS.encode()}
NOT_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # an interpreter would start with what we ignore
# Options of Popen that a fork would have to do; each is as it is where nobody gave it.
PLAIN: Mapping[str, tuple[object, ...]] = {
    "executable": (None,),
    "preexec_fn": (None, die_with_parent),
    "close_fds": (True,),
    "pass_fds": ((),),
    "shell": (False,),
    "restore_signals": (True,),
    "gid": (None,),
    "gids": (None,),
    "uid": (None,),
    "umask": (-1,),
}

Start = dict[str, Any]  # the arguments of `Popen._execute_child`, by name


class Request(TypedDict):
    words: list[str]
    folder: str | None
    environment: dict[bytes, bytes]
    process_group: int
    new_session: bool
    dies_with_parent: bool
    open_files: tuple[int, int]
    blocked: list[int]


class Popen(subprocess.Popen[Any]):
    """Python's own, but for the one step that makes the process."""

    def _execute_child(self, *arguments: Any) -> None:
        start = dict(zip(_names_of_arguments, arguments, strict=True))
        pid = _fork(start)
        if pid is None:
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        self.pid = pid
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(start[name] for name in pipes))  # type: ignore[attr-defined]


_names_of_arguments = list(signature(subprocess.Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]


class Zygote:
    """The process, and the link to it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._turn = threading.Lock()
        self._link, theirs = socket.socketpair()
        with theirs:
            line = [sys.executable, str(ZYGOTE), str(theirs.fileno())]
            self.process = _real_popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=ENVIRONMENT,
            )
        assert self._answer() == self.process.pid

    def fork(self, request: Request, streams: list[int]) -> int:
        """The process id."""
        body = marshal.dumps(dict(request))
        with self._turn:
            socket.send_fds(self._link, [LENGTH.pack(len(body))], streams)
            self._link.sendall(body)
            answer = self._answer()
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer))
        return answer

    def end(self) -> None:
        if os.getpid() == self.owner:
            self._link.close()
            self.process.wait()

    def _answer(self) -> int:
        said = self._link.recv(ANSWER.size, socket.MSG_WAITALL)
        assert said, f"the zygote ended with {self.process.wait()}"
        answer: int = ANSWER.unpack(said)[0]
        return answer


def is_forkable(start: Start, environment: Mapping[bytes, bytes], zygotes: Mapping[bytes, bytes]) -> bool:
    """Whether a fork of a process with the last environment does what an interpreter would."""
    words = start["args"]
    is_ours = isinstance(words, list) and len(words) > 2 and all(isinstance(word, str) for word in words)
    return (
        is_ours
        and words[:2] == [sys.executable, "-m"]
        and words[2] in PROGRAMS
        and all(start[name] in plain for name, plain in PLAIN.items())
        and (start["cwd"] is None or Path(os.fsdecode(start["cwd"])).is_dir())  # else the refusal is Python's to say
        and _at_start(environment) == _at_start(zygotes)
    )


def install() -> None:
    if WANTED:
        subprocess.Popen = Popen  # type: ignore[misc]


def use(wanted: bool) -> None:
    """Whether forks are made from now on; else there are real interpreters."""
    global _is_used
    _is_used = wanted


_real_popen = subprocess.Popen
_zygote: Zygote | None = None
_is_used = True


def _fork(start: Start) -> int | None:
    """The process id, or None where a real interpreter is needed."""
    if not _is_used or any(signal.getsignal(one) is signal.SIG_IGN for one in NOT_IGNORED):
        return None
    environment = _environment_of(start)
    zygote = _running() if is_forkable(start, environment, ENVIRONMENT) else None
    if zygote is None:
        return None
    request: Request = {
        "words": list(start["args"]),
        "folder": None if start["cwd"] is None else os.fspath(start["cwd"]),
        "environment": environment,
        "process_group": -1 if start["process_group"] is None else start["process_group"],
        "new_session": bool(start["start_new_session"]),
        "dies_with_parent": start["preexec_fn"] is die_with_parent,
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    }
    ends = (start["p2cread"], start["c2pwrite"], start["errwrite"])
    return zygote.fork(request, [number if end == -1 else end for number, end in enumerate(ends)])


def _running() -> Zygote | None:
    """This process's. A child that dies with its parent dies with the thread that started it: so it is the first."""
    global _zygote
    if _zygote is not None and _zygote.owner == os.getpid() and _zygote.process.poll() is None:
        return _zygote
    if threading.current_thread() is not threading.main_thread():
        return None
    _zygote = Zygote()
    atexit.register(_zygote.end)
    return _zygote


def _environment_of(start: Start) -> dict[bytes, bytes]:
    given = os.environb if start["env"] is None else start["env"]
    return {os.fsencode(name): os.fsencode(value) for name, value in given.items()}


def _at_start(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    names = [name for name in environment if name.startswith(_AT_START) and name != BUFFERS.encode()]
    return {name: environment[name] for name in names}


_AT_START = tuple(prefix.encode() for prefix in AT_START)
