"""Processes: children that end with their parent, how a process is told to end, and what systemd is told of it.

A child of ours (`start`)
- has a pipe from its parent as standard input. The end of that is its sign to end, however the parent has ended; the
  child's side of it is `when_parent_ends`. With `dies` the kernel ends it, too, on Linux, when the thread that started
  it does.
- is in a session of its own: a Ctrl-C at the terminal is its parent's to pass on.
- is told what it needs by its arguments and its input, and gets no environment that is about its parent.

A supervisor such as systemd is told: ready, alive, stopping. Nothing where no NOTIFY_SOCKET is set. A stop may wait for
work under way, so it is told meanwhile that this process is alive, and, where all ends, that more time is needed. Not
for longer than a stop may take, though: one that hangs is the supervisor's to end.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from concurrent.futures import Future
    from pathlib import Path
    from subprocess import Popen
    from threading import Event
    from typing import IO

# What the commands go by that reach a broker, and a socket that is the parent's alone.
NOT_FOR_CHILDREN = ("NOTIFY_SOCKET", "TIDELOG_BOOTSTRAP", "TIDELOG_COMMAND_CONFIG")
SAID_BYTES = 4096
READ_BYTES = 1024
PR_SET_PDEATHSIG = 1

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"
MORE_TIME = f"EXTEND_TIMEOUT_USEC={10_000_000}"  # from when it is told: 10 seconds
TELL_EVERY_S = 0.2
LOOK_S = 0.02


# Children -------------------------------------------------------------------------------------------------------------


def start(
    words: list[str],
    *,
    told: bytes = b"",
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    folder: Path | None = None,
    descriptors: Iterable[int] = (),
    environment: Mapping[str, str] | None = None,
    dies: bool = False,
) -> Popen[bytes]:
    """`told` is written to its standard input, which stays open. `environment` is that of this process, without what is
    not for children, unless it is given.
    """
    import subprocess

    child = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        cwd=folder,
        env=for_children() if environment is None else environment,
        pass_fds=tuple(descriptors),
        start_new_session=True,
        preexec_fn=_dying_with_parent() if dies else None,
    )
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # it has ended already, and its exit code says more
        child.stdin.write(told)
        child.stdin.flush()
    return child


def end(child: Popen[bytes], within_s: float, signal: int | None = None) -> None:
    """By the end of its standard input, and by a signal if one is given. Who has not ended in time is killed."""
    from subprocess import TimeoutExpired

    if signal is not None:
        child.send_signal(signal)
    if child.stdin is not None:
        with suppress(OSError):
            child.stdin.close()
    try:
        child.wait(within_s)
    except TimeoutExpired:
        child.kill()
        child.wait()


def for_children() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in NOT_FOR_CHILDREN}


class Said:
    """What a child says on a pipe: it goes where this process says things, too, and the end of it is kept."""

    def __init__(self, pipe: IO[bytes]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._tail = b""

    def pass_on(self) -> None:
        with suppress(OSError, ValueError):
            while said := self._pipe.read(SAID_BYTES):
                self._tail = (self._tail + said)[-SAID_BYTES:]
                sys.stderr.buffer.write(said)
                sys.stderr.flush()

    @property
    def last_line(self) -> str:
        return self._tail.decode(errors="replace").strip().split("\n")[-1]


def _dying_with_parent() -> Callable[[], object] | None:
    """What the child does between fork and exec. All of it is made ready here: a child of a process with threads, as
    Spark's is, may find locked for ever whatever they held, that of an import as well.
    """
    if sys.platform != "linux":
        return None
    import ctypes
    from functools import partial
    from signal import SIGTERM

    return partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, int(SIGTERM))


# To be told to end ----------------------------------------------------------------------------------------------------


def stop_on_signals(stopping: Event | None = None) -> Event:
    """An event that SIGTERM and SIGINT set."""
    import signal
    from threading import Event

    found = stopping or Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: found.set())
    return found


def when_parent_ends(stop: Callable[[], object]) -> None:
    """Of a process whose standard input is a pipe from its parent."""
    from threading import Thread

    def watch() -> None:
        while os.read(
            sys.stdin.fileno(), READ_BYTES
        ):  # not by `sys.stdin`, whose lock the end of Python would wait for
            pass
        stop()

    Thread(target=watch, daemon=True).start()


# A supervisor of this process -----------------------------------------------------------------------------------------


def notify(*lines: str) -> bool:
    """Whether somebody was told."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return False
    import socket

    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.sendto("\n".join(lines).encode(), address)
        return True
    return False


def tell_until_done(futures: Collection[Future[None]], *lines: str, at_most_s: float) -> None:
    """By no `wait` of theirs: locks may wait by the time of day (`clock.rest`)."""
    tell_at = time.monotonic() + TELL_EVERY_S
    deadline = time.monotonic() + at_most_s
    while not all(one.done() for one in futures) and (now := time.monotonic()) < deadline:
        if now >= tell_at:
            notify(*lines)
            tell_at = now + TELL_EVERY_S
        time.sleep(LOOK_S)
