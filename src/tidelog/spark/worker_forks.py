"""The process that the Python workers of a run are forked from: it has imported, once, what each of them needs.

A run has some ten of them: a planner for each source, a daemon for each thing that Spark does in Python, and what a
fold begins with. Each would import PySpark, Arrow and us by itself: a third of the CPU of a start. This process does it
while the JVM is launched.

    listening   its socket is there, so that nobody is turned away; it imports
    forking     who wants a worker (`worker_entry.py`, in the place of that worker's Python) sends what it was started
                with, and its descriptors: 0, 1 and 2, and the connection to Spark, where it has one. The fork takes all
                of that over, and runs; who asked stays for as long as the fork does, and ends with its exit code
    the end     of who started it: its standard input ends. Forks end by themselves, with the JVM

Rules:
- It is `python -P -m tidelog.spark.worker_forks SOCKET`, with the environment of workers; only for commands, and where
  `worker_launch.py` gives the driver's own Python.
- It starts no thread: a fork would have it broken.
- Who asks and dies is followed by its fork: Spark knows only the one.
- Whoever needs another interpreter than this one, by its environment, is turned away, and starts its own. So does
  everybody where this process is no more.
"""

from __future__ import annotations

import marshal
import os
import selectors
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import NamedTuple

from tidelog.spark import worker_daemon, worker_entry

MODULES = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
)
ASKING_MAX = 64
WAIT_S = 10.0  # for the whole of what somebody asks, of which the first byte has come
OF_WORKERS = ("PYTHON_", "PYTHONPATH", "PYTHONUNBUFFERED")  # told to a worker, or of no consequence
SEED = "PYTHONHASHSEED"


class ForkWanted(NamedTuple):
    """What a fork is to be."""

    words: tuple[str, ...]  # behind -m
    environment: dict[str, str]
    folder: str
    descriptors: tuple[int, ...]


def main(place: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as for what the JVM starts: Ctrl-C is the driver's
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen(ASKING_MAX)
        for name in MODULES:
            with suppress(Exception):  # a worker will say why
                import_module(name)
        worker_daemon.preload(worker_daemon.TASKS)
        with selectors.DefaultSelector() as looking, woken_by_children() as children:
            wanted = Forks(looking, listening, children).serve()
    if wanted is not None:
        become(wanted)


class Forks:
    """`children` has something to read when a fork has ended."""

    def __init__(self, looking: selectors.BaseSelector, listening: socket.socket, children: socket.socket) -> None:
        self._looking, self._listening, self._children = looking, listening, children
        self._asked: dict[int, socket.socket] = {}  # who wants the forks, by their numbers
        for one in (sys.stdin.fileno(), listening, children):
            looking.register(one, selectors.EVENT_READ)

    def serve(self) -> ForkWanted | None:
        """In each fork what it is to be; here None, when standard input has ended."""
        while True:
            for key, _ in self._looking.select():
                found = key.fileobj
                if not isinstance(found, socket.socket):
                    return None
                if found is self._children:
                    self._note_ended()
                elif found is not self._listening:
                    self._end_forks_of(found)
                elif (wanted := self._fork()) is not None:
                    return wanted

    def _fork(self) -> ForkWanted | None:
        """In the fork what it is to be."""
        asking, _ = self._listening.accept()
        wanted = asked_by(asking)
        if wanted is None:
            return None
        try:
            pid = os.fork()
        except OSError:
            tell(asking, worker_entry.ALONE)
            pid = -1
        if pid == 0:
            for one in (asking, *self._asked.values()):
                one.close()
            return wanted
        for descriptor in wanted.descriptors:
            os.close(descriptor)
        if pid > 0:
            self._asked[pid] = asking
            self._looking.register(asking, selectors.EVENT_READ)
        return None

    def _note_ended(self) -> None:
        self._children.recv(ASKING_MAX)
        for pid, code in ended():
            asking = self._asked.pop(pid)
            with suppress(KeyError):  # who has gone before
                self._looking.unregister(asking)
            tell(asking, code if 0 <= code < worker_entry.ALONE else 1)

    def _end_forks_of(self, gone: socket.socket) -> None:
        with suppress(KeyError, ValueError):  # its fork has ended just now
            self._looking.unregister(gone)
        for pid in [pid for pid, asking in self._asked.items() if asking is gone]:
            os.kill(pid, signal.SIGTERM)  # its end was not noted, so that it is still this one


@contextmanager
def woken_by_children() -> Iterator[socket.socket]:
    """A socket that has something to read when a child of this process has ended."""
    read, written = socket.socketpair()
    with read, written:
        written.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
        try:
            yield read
        finally:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def ended() -> Iterator[tuple[int, int]]:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, os.waitstatus_to_exitcode(status)


def tell(asking: socket.socket, code: int) -> None:
    with suppress(OSError):
        asking.send(bytes([code]))
    asking.close()


def asked_by(asking: socket.socket) -> ForkWanted | None:
    """None where it does not say it, or is better off alone."""
    descriptors: list[int] = []
    asking.settimeout(WAIT_S)
    try:
        size, descriptors, _, _ = socket.recv_fds(asking, worker_entry.SIZE_BYTES, worker_entry.DESCRIPTORS_MAX)
        words, environment, folder = marshal.loads(received(asking, int.from_bytes(size)))
    except (OSError, ValueError, EOFError, TypeError):
        words, environment, folder = (), {}, ""
    asking.settimeout(None)
    known = words[:1] == (worker_daemon.__name__,) or len(descriptors) == worker_entry.DESCRIPTORS_MAX
    if words and known and interpreters(environment) == interpreters(os.environ):
        return ForkWanted(words, environment, folder, tuple(descriptors))
    for one in descriptors:
        os.close(one)
    tell(asking, worker_entry.ALONE)
    return None


def received(asking: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        if not (part := asking.recv(size - len(found))):
            raise EOFError
        found += part
    return bytes(found)


def interpreters(environment: Mapping[str, str]) -> dict[str, str]:
    """What in an environment makes a Python another one when it starts. Who names no seed may have any."""
    found = {name for name in environment if name.startswith("PYTHON") and not name.startswith(OF_WORKERS)}
    return {SEED: os.environ.get(SEED, ""), **{name: environment[name] for name in found}}


# In a fork ------------------------------------------------------------------------------------------------------------


def become(wanted: ForkWanted) -> None:
    import time

    for number, descriptor in enumerate(wanted.descriptors[:3]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    here = os.environ.get("PYTHONPATH", "")
    os.environ.clear()
    os.environ.update(wanted.environment)
    time.tzset()
    os.chdir(wanted.folder)
    sys.path[:] = path_of(sys.path, here, wanted)
    module, *arguments = wanted.words
    if module == worker_daemon.__name__:
        sys.argv = [module, *arguments]
        worker_daemon.main()
        return
    sys.modules.pop(module, None)  # it is run as a program
    worker_entry.run(str(wanted.descriptors[3]), module, *arguments)


def path_of(ours: list[str], here: str, wanted: ForkWanted) -> list[str]:
    """As that Python would have it: its folder, what its environment names, and what every Python has here."""
    named = here.split(os.pathsep)
    theirs = [one for one in wanted.environment.get("PYTHONPATH", "").split(os.pathsep) if one]
    return [wanted.folder, *theirs, *(one for one in ours if one not in named)]


if __name__ == "__main__":
    main(sys.argv[1])
